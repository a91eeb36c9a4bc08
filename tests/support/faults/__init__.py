"""What the tests of recovery break, and what with: an engine and a socket of their own, and the faults."""
