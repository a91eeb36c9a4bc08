"""Runs inside the unittest process of a run: loader, selection, and the rows for each test."""
