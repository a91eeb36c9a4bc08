"""The SQLite file of the history: its schema, how it is opened, written and pruned."""
