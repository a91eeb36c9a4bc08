"""Boxes without Python: files are copied by the engine's archive calls, and `sh` does the rest.

shell_agent.sh  runs inside the box; POSIX sh with xargs, mv, rm and ln, as in busybox
shell_tree      the tree as it should be: archive, lists and manifest; and what a listing proves about it
shell_job       a supervised command: its output, its results, and how it is stopped
shell_session   the same interface as a session with an agent
"""
