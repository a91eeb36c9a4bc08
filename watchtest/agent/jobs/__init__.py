"""Starts, supervises and stops the commands that run in the box."""
