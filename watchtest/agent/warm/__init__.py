"""Keeps a warm process with imported libraries, from which test runs are forked."""
