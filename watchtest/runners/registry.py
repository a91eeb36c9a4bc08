"""Every kind of runner: how to create it, how to detect it, and its rank.

A new runner needs its own module or folder and one line here; the config accepts its kind from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from watchtest.runners.cargo import cargo_runner
from watchtest.runners.command import CommandRunner
from watchtest.runners.go import go_runner
from watchtest.runners.javascript import javascript_runner
from watchtest.runners.project_tree import DetectedProject, ProjectTree
from watchtest.runners.python import PytestRunner, UnittestRunner
from watchtest.runners.runner import Runner, RunnerSpec

AnyRunner = PytestRunner | UnittestRunner | Runner


@dataclass(frozen=True, slots=True)
class RunnerDefaults:
    """The settings of `[runner]` that apply to every runner."""

    args: tuple[str, ...] = ()
    """For pytest only, before the arguments of the runner itself."""
    workers: int = 1
    timeout_s: float = 600.0


Create = Callable[[RunnerSpec, RunnerDefaults], AnyRunner]
Detect = Callable[[ProjectTree], Iterator[DetectedProject]]
CommonRunner = Callable[[str, str, tuple[str, ...], Mapping[str, str]], AnyRunner]


@dataclass(frozen=True, slots=True)
class RunnerKind:
    """Test ids of the lowest rank are the most specific, so its runners are asked first whether a test is theirs."""

    rank: int
    create: Create
    manifest: str = ""
    """The name of the file that marks a project of this kind."""
    detect: Detect = lambda tree: iter(())
    toolchain: str = ""
    """The language whose tools it needs besides Python; "" if it needs none, or if only the user can know."""


def _pytest(spec: RunnerSpec, defaults: RunnerDefaults) -> AnyRunner:
    return PytestRunner(spec.title, spec.folder, (*defaults.args, *spec.args), spec.env, defaults.workers)


def _go(spec: RunnerSpec, defaults: RunnerDefaults) -> AnyRunner:
    return go_runner.GoRunner(spec.title, spec.folder, spec.args, spec.env, defaults.timeout_s)


def _command(spec: RunnerSpec, _: RunnerDefaults) -> AnyRunner:
    return CommandRunner(spec.title, spec.folder, spec.args, spec.env, spec.command, spec.junit)


def _plain(runner: CommonRunner) -> Create:
    return lambda spec, _: runner(spec.title, spec.folder, spec.args, spec.env)


def _javascript(tool: str, runner: CommonRunner) -> RunnerKind:
    return RunnerKind(
        2, _plain(runner), javascript_runner.MANIFEST, partial(javascript_runner.detect, tool=tool), "node"
    )


KINDS: Mapping[str, RunnerKind] = MappingProxyType(
    {
        "pytest": RunnerKind(1, _pytest),
        "unittest": RunnerKind(1, _plain(UnittestRunner)),
        "go": RunnerKind(4, _go, go_runner.MANIFEST, go_runner.detect, "go"),
        "cargo": RunnerKind(3, _plain(cargo_runner.CargoRunner), cargo_runner.MANIFEST, cargo_runner.detect, "rust"),
        "vitest": _javascript("vitest", javascript_runner.VitestRunner),
        "jest": _javascript("jest", javascript_runner.JestRunner),
        "command": RunnerKind(0, _command),
    }
)
"""Python projects are detected separately, because pytest is also the default."""


def lacking_tools(spec: RunnerSpec, toolchain: str) -> str:
    """Return a remark if the tools of a runner are not in the official image for another language."""
    needed = KINDS[spec.kind].toolchain
    if not toolchain or needed in ("", toolchain):
        return ""
    return f": left out unless the box has the tools of {needed}, because its image is for {toolchain}"
