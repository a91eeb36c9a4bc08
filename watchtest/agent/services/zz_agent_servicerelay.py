"""Between the host and the steward: passes orders and news on, and has a steward that was killed brought back."""

from __future__ import annotations

import json
import selectors
from typing import Callable, Optional

from ..frames import Header
from ..zz_agent_errors import MirrorError
from .service_manager_link import StewardLink


class ServiceRelay:
    def __init__(
        self,
        home: str,
        root: str,
        selector: selectors.BaseSelector,
        send: Callable[..., None],
        show_life: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._send = send
        self._steward = StewardLink(home, root, show_life)

    @property
    def fd(self) -> Optional[int]:
        return self._steward.fd

    @property
    def are_there(self) -> bool:
        return self._steward.is_there

    def order(self, header: Header, body: bytes) -> None:
        order = json.loads(body.decode("ascii"))
        before = self._steward.fd
        try:
            self._steward.order(dict(order, t="order", id=header["id"]))
        finally:
            self._listen_instead_of(before)

    def heard(self, fd: int) -> bool:
        """Whether that was the steward; its news has been passed on then."""
        if fd != self._steward.fd:
            return False
        messages = self._steward.receive()
        for message in messages or ():
            frame = {"t": "services", "id": message.pop("id", None)}
            self._send(frame, json.dumps(message, separators=(",", ":")).encode("ascii"))
        if messages is None:
            self._lose()
        return True

    def close(self) -> None:
        self._steward.close()

    def _listen_instead_of(self, before: Optional[int]) -> None:
        if before is not None:
            self._selector.unregister(before)
        if self._steward.fd is not None:
            self._selector.register(self._steward.fd, selectors.EVENT_READ)

    def _lose(self) -> None:
        """It has ended: because there is nothing left to do, or because somebody killed it and all services with it."""
        before = self._steward.fd
        was_killed = self._steward.lose()
        self._listen_instead_of(before)
        if not was_killed and self._steward.unanswered is None:
            return
        # Whoever waits for an answer orders again; else it is on us to bring the services back.
        if self._steward.unanswered is None and self._revive():
            return
        self._send({"t": "services", "id": self._steward.unanswered}, b'{"lost":true,"services":[]}')
        self._steward.unanswered = None

    def _revive(self) -> bool:
        try:
            return self._steward.revive()
        except (MirrorError, OSError):
            return False
        finally:
            self._listen_instead_of(None)
