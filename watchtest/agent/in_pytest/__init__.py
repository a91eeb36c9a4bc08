"""Runs inside the project's own pytest: plugins, selection, and the rows for each test."""
