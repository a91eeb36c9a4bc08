"""From a wish to the runner that fulfils it: all kinds but those of Python, which the agent runs by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from watchtest.runners.cargo.cargo_runner import CargoRunner
from watchtest.runners.command import CommandRunner
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.javascript.jest_runner import JestRunner
from watchtest.runners.javascript.vitest_runner import VitestRunner
from watchtest.runners.runner import Runner, RunnerWish

Maker = Callable[[RunnerWish, float], Runner]

MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        "go": lambda wish, timeout_s: GoRunner(_name(wish), wish.folder, wish.args, wish.env, timeout_s),
        "cargo": lambda wish, _: CargoRunner(_name(wish), wish.folder, wish.args, wish.env),
        "vitest": lambda wish, _: VitestRunner(_name(wish), wish.folder, wish.args, wish.env),
        "jest": lambda wish, _: JestRunner(_name(wish), wish.folder, wish.args, wish.env),
        "command": lambda wish, _: CommandRunner(
            wish.command, _name(wish), wish.folder, wish.args, wish.env, wish.junit
        ),
    }
)
"""By kind; the number is the seconds that a run may take."""


def _name(wish: RunnerWish) -> str:
    return wish.name or wish.kind
