"""What is decided, and nothing of how: pure values and functions, standard library only, no clock, no I/O."""
