"""Who is told, beside the screen, what changed. Sends beside the loop, never in its way.

notices    what is worth a notice, and its words: a pure function of what was told and what is true
quiet      hours in which nobody is told
notifier   delivers notices in the background: desktop, else terminal; and the hook
outbox     things that are sent one after the other
channel    what a way to the user promises
bus        the desktops of Linux and the BSDs, over D-Bus (dbus-fast)
native     other systems (desktop-notifier)
terminal   the terminal we run in: which sequence it knows, tmux in between
sequences  the bytes of these sequences, around harmless text
hook       the user's own command, with JSON on its stdin
"""
