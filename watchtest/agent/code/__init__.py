"""Reads Python code without running it: fingerprints of functions, and what they cache."""
