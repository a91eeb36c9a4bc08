"""Which tests a change can affect, by their recorded dependencies. The rules themselves are in core."""
