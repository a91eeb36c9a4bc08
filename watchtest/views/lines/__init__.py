"""Line-by-line output: plain text, and JSON lines for other programs."""
