"""The folder of the user's project: where it is, who watches it, what was done to its box by hand."""
