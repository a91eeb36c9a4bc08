"""Holds no test yet."""
