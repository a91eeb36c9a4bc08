"""The terminals of those who are attached to a watcher that has none: each hears of a notice with its next screen."""

from __future__ import annotations

from typing import Any

from watchtest.core.model import Lane, Verdict
from watchtest.views.notify.notices import Notice, NoticeKind
from watchtest.views.notify.zz_views_notify_sequences import Form

Document = dict[str, Any]


class Relay:
    """Holds the live notice until the next. `form`: as the user wants to be told; None: as each terminal knows it."""

    words = "whoever is attached is told instead"

    def __init__(self) -> None:
        self.form: Form | None = None
        self._number = 0
        self._live: Document | None = None

    def live(self) -> Document | None:
        """The notice for whoever asks; its number is another for each."""
        return self._live

    async def look(self) -> str:
        return self.words

    async def deliver(self, notice: Notice) -> None:
        self._number += 1
        self._live = {
            "number": self._number,
            "kind": notice.kind.value,
            "title": notice.title,
            "lines": list(notice.lines),
            "lane": notice.lane.value,
            "verdict": notice.verdict.value,
            "form": self.form.value if self.form else None,
        }

    async def withdraw(self) -> None:
        self._live = None

    async def close(self) -> None:
        pass


def relayed(document: Document) -> tuple[Notice, Form | None]:
    """The notice that such a document is of; ValueError, TypeError, KeyError: of none."""
    lines = tuple(map(str, document["lines"]))
    notice = Notice(
        NoticeKind(document["kind"]),
        str(document["title"]),
        lines,
        Lane(document["lane"]),
        Verdict(document["verdict"]),
    )
    return notice, Form(document["form"]) if document["form"] else None
