"""Show the progress of a pull or a build as a growing bar instead of one line per layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from watchtest.boxes.protocols import Note

BAR_WIDTH = 20
STEP = 0.1
"""Show a line for every tenth…"""
LONGEST_SILENCE_S = 5.0
"""…and after this time without a line: a slow pull must not look dead."""
MEGABYTE = 1e6


class PullProgress:
    """Adds up the layers of a pull. Layers appear over time, so the bar may go back."""

    def __init__(self, what: str, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._note = note
        self._clock = clock
        self._layers: dict[str, tuple[float, float]] = {}
        self._shown = -1.0
        self._shown_at = clock()

    def feed(self, line: Mapping[str, Any]) -> None:
        layer, detail = str(line.get("id", "")), line.get("progressDetail")
        status = str(line.get("status", ""))
        if status in ("Pull complete", "Already exists") and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
        elif status == "Downloading" and isinstance(detail, Mapping) and detail.get("total"):
            self._layers[layer] = (float(detail.get("current") or 0), float(detail["total"]))
        self._show()

    def _show(self) -> None:
        total = sum(size for _, size in self._layers.values())
        if not total:
            return
        share = sum(done for done, _ in self._layers.values()) / total
        now = self._clock()
        if share - self._shown >= STEP or share >= 1 > self._shown or now - self._shown_at > LONGEST_SILENCE_S:
            self._shown, self._shown_at = share, now
            self._note(f"pulling {self._what} {bar(share)} {share:4.0%} of {total / MEGABYTE:.0f} MB")


class BuildProgress:
    """Shows the numbered steps of a build and keeps the end of its output."""

    def __init__(self, what: str, note: Note) -> None:
        self._what = what
        self._note = note
        self.tail: list[str] = []

    def feed(self, line: Mapping[str, Any]) -> None:
        text = str(line.get("stream", line.get("status", ""))).strip()
        if not text:
            return
        self.tail = [*self.tail, *text.splitlines()][-8:]
        done, total = _step_numbers(text)
        if total:
            self._note(f"building {self._what} {bar((done - 1) / total)} {text.splitlines()[0][:120]}")


def _step_numbers(text: str) -> tuple[int, int]:
    """Parse Docker's "Step 2/7 : RUN …" and podman's "STEP 2/7: RUN …". Return (0, 0) for other lines."""
    word, _, rest = text.partition(" ")
    done, slash, total = rest.partition(" ")[0].rstrip(":").partition("/")
    if word.lower() != "step" or not slash or not done.isdigit() or not total.isdigit():
        return 0, 0
    return int(done), int(total)


def bar(share: float) -> str:
    full = round(max(0.0, min(share, 1.0)) * BAR_WIDTH)
    return "━" * full + "─" * (BAR_WIDTH - full)
