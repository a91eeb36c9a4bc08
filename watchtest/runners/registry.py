"""Every kind of runner: how to make it, and its rank. A new runner needs its own module and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from watchtest.runners.cargo.cargo_runner import CargoRunner
from watchtest.runners.command import CommandRunner
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.javascript.jest_runner import JestRunner
from watchtest.runners.javascript.vitest_runner import VitestRunner
from watchtest.runners.pytest import Pytest
from watchtest.runners.runner import Runner, RunnerSpec
from watchtest.runners.unittest import Unittest

AnyRunner = Pytest | Unittest | Runner


@dataclass(frozen=True, slots=True)
class RunnerDefaults:
    """The settings of `[runner]` that apply to every runner."""

    args: tuple[str, ...] = ()
    """For pytest only, before the arguments of the runner itself."""
    workers: int = 1
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class RunnerKind:
    """Test ids of the lowest rank are the most specific, so its runners are asked first whether a test is theirs."""

    rank: int
    make: Callable[[RunnerSpec, RunnerDefaults], AnyRunner]


KINDS: Mapping[str, RunnerKind] = MappingProxyType(
    {
        "command": RunnerKind(0, lambda spec, _: CommandRunner(spec.command, *_usual(spec), spec.junit)),
        "pytest": RunnerKind(1, lambda spec, defaults: _pytest(spec, defaults)),
        "unittest": RunnerKind(1, lambda spec, _: Unittest(spec.args, spec.folder, spec.env, spec.title)),
        "vitest": RunnerKind(2, lambda spec, _: VitestRunner(*_usual(spec))),
        "jest": RunnerKind(2, lambda spec, _: JestRunner(*_usual(spec))),
        "cargo": RunnerKind(3, lambda spec, _: CargoRunner(*_usual(spec))),
        "go": RunnerKind(4, lambda spec, defaults: GoRunner(*_usual(spec), defaults.timeout_s)),
    }
)


def _pytest(spec: RunnerSpec, defaults: RunnerDefaults) -> Pytest:
    return Pytest((*defaults.args, *spec.args), defaults.workers, spec.folder, spec.env, spec.title)


def _usual(spec: RunnerSpec) -> tuple[str, str, tuple[str, ...], Mapping[str, str]]:
    return spec.title, spec.folder, spec.args, spec.env
