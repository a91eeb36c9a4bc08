"""Runs inside the pytest process of a run: plugins, selection, and the rows for each test."""
