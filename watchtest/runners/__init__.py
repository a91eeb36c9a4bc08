"""The test tools, each in its own module or folder: how to start it, and how to read its reports."""
