"""Which tests a change can affect: what the box has recorded, kept and asked. The rules themselves are in core."""
