"""The user's project folder: find it, lock it for one watcher, and record manual changes to its box."""
