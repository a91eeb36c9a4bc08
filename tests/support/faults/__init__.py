"""Faults for the recovery tests, with an engine and a socket that they may break."""
