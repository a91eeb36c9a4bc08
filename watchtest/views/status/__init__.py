"""The status file that prompts and editor plugins read."""
