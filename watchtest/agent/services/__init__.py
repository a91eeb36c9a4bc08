"""Keeps the services of a project running in the box."""
