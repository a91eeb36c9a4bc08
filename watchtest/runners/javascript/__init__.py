"""Runs the tests of JavaScript projects with jest or vitest."""
