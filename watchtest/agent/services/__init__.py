"""Keeps the services of a project running in the box, by a process of its own: the service manager."""
