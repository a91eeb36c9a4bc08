"""Refusals of requests, with a reason and what to do instead."""

from __future__ import annotations


class Refusal(Exception):
    """The watcher refuses a request: an HTTP status, a stable code, the reason and what to do instead."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint

    def document(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "hint": self.hint}


def stopping_refusal() -> Refusal:
    return Refusal(503, "leaving", "the watcher is stopping", "start a new one with `watchtest watch`")
