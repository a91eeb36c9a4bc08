"""Runs the tests of Go projects."""
