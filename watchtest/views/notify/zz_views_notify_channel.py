"""What a way to the user promises."""

from __future__ import annotations

from typing import Protocol

from watchtest.views.notify.notices import Notice


class DeliveryFailed(Exception):
    """Why a notice did not reach the user, in a few words."""


class Channel(Protocol):
    """One live notice a workspace: each stands in the place of the last. Cancelled at any point, it can go on after.

    What cannot be done raises DeliveryFailed; nothing else leaves a channel.
    """

    async def look(self) -> str:
        """Who would show it, in words; shows nothing."""

    async def deliver(self, notice: Notice) -> None:
        """It has been shown when this returns."""

    async def withdraw(self) -> None:
        """Take the live notice away, if there is one and this way can."""

    async def close(self) -> None:
        """Give up what is held open. What is shown stays."""
