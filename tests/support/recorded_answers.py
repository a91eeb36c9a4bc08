"""Replays recorded answers to the queries of a runner, in place of a box."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from watchtest.core.model import Only
from watchtest.runners.runner import Change, Invocation, InvocationEnd, Rule, Runner

ROOT = "/workspace"


def changed(
    *paths: str,
    new: Iterable[str] = (),
    removed: Iterable[str] = (),
    known: Iterable[str] = (),
    rules: tuple[Rule, ...] = (),
) -> Change:
    return Change(frozenset(paths), frozenset(new), frozenset(removed), frozenset(known), ROOT, rules)


@dataclass
class Answers:
    """Answers each invocation with `answer`, and records it."""

    answer: Callable[[Invocation], InvocationEnd]
    invocations: list[Invocation] = field(default_factory=list)

    async def __call__(self, invocation: Invocation) -> InvocationEnd:
        self.invocations.append(invocation)
        return self.answer(invocation)


def narrowed(runner: Runner, change: Change, answer: Callable[[Invocation], InvocationEnd]) -> Only:
    return asyncio.run(runner.narrow(change, Answers(answer)))


def says(report: bytes) -> Callable[[Invocation], InvocationEnd]:
    return lambda _invocation: InvocationEnd(0, report=report)
