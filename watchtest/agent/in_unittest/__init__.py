"""Runs inside the project's own unittest: loader, selection, and the rows for each test."""
