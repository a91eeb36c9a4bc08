"""What a box of a project is made of, read from its files. Decides; makes nothing."""
