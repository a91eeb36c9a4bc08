"""Python projects: which version they need, which of their dependencies tests need, and how these are installed."""
