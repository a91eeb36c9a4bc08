"""Notifications beside the screen: on the desktop, in the terminal, or through the user's own hook.

They are sent in the background and never block the watcher's loop.
"""
