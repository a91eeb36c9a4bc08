"""The SQLite file of the history: its schema, and how it is opened, written and pruned."""
