"""Questions to the history, each a function of a connection. Nothing here writes."""
