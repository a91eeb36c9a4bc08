"""Boxes without Python: files go by the engine's archive calls, commands by plain exec, the rest is done in `sh`.

box.sh    what is done inside the box; POSIX sh with xargs, mv, rm and ln, as busybox has them, too
tools     what an engine must offer for it
tree      the tree as it should be: archive, lists and manifest; and what a listing says of it
job       one supervised command: limits, output, results, the ladder that stops it
line      whether the box is still there, asked every few seconds
session   all of it, with the face of a session that has an agent
"""
