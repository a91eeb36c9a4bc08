"""`watchtest resume`: end a pause.

Allow runs again and test what has changed meanwhile.

    watchtest resume
"""

from __future__ import annotations

from functools import partial

from watchtest.commands import pause

add_options = pause.add_options
run = partial(pause.run, action="resume")
