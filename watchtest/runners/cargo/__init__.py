"""Runs the tests of Rust projects with cargo."""
