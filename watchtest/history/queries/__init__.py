"""Queries of the history: functions that take a connection and only read."""
