"""What commands share: finding the watcher, speaking with it, reading its files."""
