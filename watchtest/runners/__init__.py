"""Test tools, each with its own module: how it is started and how its reports become results."""
