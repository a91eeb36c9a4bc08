"""Renders a story in the views: rows of the dashboard, plain lines, the status document."""

from __future__ import annotations

import io
import json
import time

import jsonschema
from rich.console import Console

from support.watcher_states import NOON, Story
from watchtest.core.state import State
from watchtest.views.dashboard.failure_list import ScreenContext
from watchtest.views.dashboard.live_screen import render
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.watcher_screen import screen_rows as screen_rows
from watchtest.views.lines.plain_lines import PlainLines
from watchtest.views.schemas import status_schema
from watchtest.views.status.status_document import (
    Document,
    WriterInfo,
    document,
)


def screen(state: State, width: int, height: int, now: float, view: ViewState | None = None) -> list[str]:
    """Return the rows as a terminal shows them, without trailing blanks."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None, highlight=False, legacy_windows=False)
    console.print(
        render(screen_rows(state, now=now, height=height, title="shop", view=view, context=ScreenContext("/w")), width)
    )
    rows = out.getvalue().removesuffix("\n").split("\n")
    assert len(rows) == height
    assert all(len(row) <= width for row in rows)
    return [row.rstrip() for row in rows]


def plain_output(story: Story) -> str:
    stream = io.StringIO()
    plain = PlainLines(stream, local=time.gmtime)
    for before, after, event in story.steps:
        plain.show(before, after, event)
    return stream.getvalue()


def lines(story: Story) -> list[str]:
    """Return the plain lines without their times."""
    return [line.partition(" ")[2] for line in plain_output(story).splitlines()]


WRITER = WriterInfo(pid=7, host="host", version="0.1.0", started_at=NOON, pid_start=99, boot_id="b00t")


def of(state: State) -> Document:
    written = document(state, seq=1, now=NOON, writer=WRITER)
    jsonschema.Draft202012Validator(status_schema()).validate(json.loads(json.dumps(written)))
    return written
