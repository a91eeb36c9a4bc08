"""The terminal of an attached dashboard, told what its watcher can tell no other way."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from watchtest.core.text import encodable
from watchtest.views.notify.terminal_channel import Access, TerminalChannel
from watchtest.views.notify.zz_views_notify_channel import DeliveryFailed
from watchtest.views.notify.zz_views_notify_outbox import Outbox
from watchtest.views.notify.zz_views_notify_relay import relayed

log = logging.getLogger(__name__)

Document = dict[str, Any]


class Ringing:
    """Use it within one event loop. What stood there before the first look is no news."""

    def __init__(self, environ: Mapping[str, str], workspace: str, access: Access, say: Callable[[str], None]) -> None:
        self._environ = environ
        self._workspace = workspace
        self._access = access
        self._outbox = Outbox("a notification", self._tell, say, most=1)
        self._has_looked = False
        self._heard: Document | None = None
        self._channel: TerminalChannel | None = None

    def hear(self, live: Document | None) -> None:
        """The notice that is live at the watcher now."""
        is_news, self._heard = self._has_looked and live != self._heard, live
        self._has_looked = True
        if is_news:
            self._outbox.put(live)

    async def close(self, grace_s: float) -> None:
        await self._outbox.close(grace_s)

    async def _tell(self, live: Document | None) -> None:
        try:
            if live is None:
                await self._channel.withdraw() if self._channel is not None else None
                return
            notice, form = relayed(live)
            self._channel = TerminalChannel(self._access, self._environ, self._workspace, form)
            await self._channel.deliver(notice)
        except (ValueError, TypeError, KeyError):  # of another version of watchtest
            log.info("a notice that cannot be understood")
        except DeliveryFailed as failure:
            log.info("%s", failure)


def write_to_stdout(text: str) -> None:
    """In the loop's own thread, as the dashboard draws: no drawing is under way."""
    sys.stdout.write(encodable(text, sys.stdout.encoding))
    sys.stdout.flush()
