"""The log file of a watcher: how it is written and how it is shown."""
