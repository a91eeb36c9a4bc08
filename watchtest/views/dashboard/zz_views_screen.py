"""What the dashboard says, row by row, for a screen of a given height. Pure, and knows no terminal library.

head      the verdict, its code and its age; the other lanes; what goes on now, what waits, what is wrong
failures  those of the current run first; or the end of an output that could not be read; or what a filter finds
foot      box, last runs, keys
"""

from __future__ import annotations

from watchtest.core.state import State
from watchtest.views.dashboard.failure_list import Around, body
from watchtest.views.dashboard.footer import foot
from watchtest.views.dashboard.header import NOTES_SHOWN, head
from watchtest.views.dashboard.navigation import Look
from watchtest.views.dashboard.styled_rows import Row

ROOMY = 20
"""From this height on there are empty rows between the parts."""


def rows(
    state: State,
    *,
    now: float,
    height: int,
    title: str = "",
    look: Look | None = None,
    around: Around | None = None,
) -> list[Row]:
    """The rows of a screen of `height`, exactly."""
    look, around = look or Look(), around or Around()
    lane = state.top
    above = head(state, now, title, NOTES_SHOWN if height >= ROOMY else 1)
    below = foot(lane, look, max(height - len(above) - 6, 0))
    gap = [Row()] if height >= ROOMY else []
    room = height - len(above) - len(below) - 2 * len(gap)
    between = body(lane, look, max(room, 0), around)
    filling = [Row()] * (room - len(between))
    return [*above, *gap, *between, *filling, *gap, *below][:height]
