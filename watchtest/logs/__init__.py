"""The log file of a watcher: write it, and show it."""
