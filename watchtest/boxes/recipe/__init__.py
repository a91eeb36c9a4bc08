"""Decide from the files of a project how to make its box. Creates nothing."""
