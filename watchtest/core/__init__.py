"""The decisions of watchtest: pure values and functions. Standard library only, no clock, no I/O."""
