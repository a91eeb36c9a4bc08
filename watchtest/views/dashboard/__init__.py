"""The dashboard on the terminal."""
