"""Answers to the questions of a runner that were recorded, in place of a box."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from watchtest.core.model import Only
from watchtest.runners.runner import Change, Ended, Order, Rule, Runner

ROOT = "/workspace"


def changed(
    *paths: str,
    new: Iterable[str] = (),
    gone: Iterable[str] = (),
    known: Iterable[str] = (),
    rules: tuple[Rule, ...] = (),
) -> Change:
    return Change(frozenset(paths), frozenset(new), frozenset(gone), frozenset(known), ROOT, rules)


@dataclass
class Answers:
    """Ends each order as `answer` says, and remembers it."""

    answer: Callable[[Order], Ended]
    orders: list[Order] = field(default_factory=list)

    async def __call__(self, order: Order) -> Ended:
        self.orders.append(order)
        return self.answer(order)


def narrowed(runner: Runner, change: Change, answer: Callable[[Order], Ended]) -> Only:
    return asyncio.run(runner.narrow(change, Answers(answer)))


def says(report: bytes) -> Callable[[Order], Ended]:
    return lambda _order: Ended(0, report=report)
