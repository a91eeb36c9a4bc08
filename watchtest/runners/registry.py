"""Every kind of runner: how to create it, how to detect it, and its rank.

A new runner needs its own module or folder and one line here; the config accepts its kind from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from watchtest.runners.cargo import cargo_runner
from watchtest.runners.cargo.cargo_runner import CargoRunner
from watchtest.runners.command import CommandRunner
from watchtest.runners.go import go_runner
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.javascript import javascript_tools
from watchtest.runners.javascript.jest_runner import JestRunner
from watchtest.runners.javascript.vitest_runner import VitestRunner
from watchtest.runners.project_tree import DetectedProject, ProjectTree
from watchtest.runners.pytest import PytestRunner
from watchtest.runners.runner import Runner, RunnerSpec
from watchtest.runners.unittest import UnittestRunner

AnyRunner = PytestRunner | UnittestRunner | Runner


@dataclass(frozen=True, slots=True)
class RunnerDefaults:
    """The settings of `[runner]` that apply to every runner."""

    args: tuple[str, ...] = ()
    """For pytest only, before the arguments of the runner itself."""
    workers: int = 1
    timeout_s: float = 600.0


def _no_projects(tree: ProjectTree) -> Iterator[DetectedProject]:
    return iter(())


@dataclass(frozen=True, slots=True)
class RunnerKind:
    """Test ids of the lowest rank are the most specific, so its runners are asked first whether a test is theirs."""

    rank: int
    create: Callable[[RunnerSpec, RunnerDefaults], AnyRunner]
    manifest: str = ""
    """The name of the file that marks a project of this kind."""
    detect: Callable[[ProjectTree], Iterator[DetectedProject]] = _no_projects


KINDS: Mapping[str, RunnerKind] = MappingProxyType(
    {
        "pytest": RunnerKind(1, lambda spec, defaults: _pytest(spec, defaults)),
        "unittest": RunnerKind(1, lambda spec, _: UnittestRunner(spec.args, spec.folder, spec.env, spec.title)),
        "go": RunnerKind(
            4,
            lambda spec, defaults: GoRunner(*_common(spec), defaults.timeout_s),
            go_runner.MANIFEST,
            go_runner.detect,
        ),
        "cargo": RunnerKind(3, lambda spec, _: CargoRunner(*_common(spec)), cargo_runner.MANIFEST, cargo_runner.detect),
        "vitest": RunnerKind(
            2,
            lambda spec, _: VitestRunner(*_common(spec)),
            javascript_tools.MANIFEST,
            lambda tree: javascript_tools.detect(tree, "vitest"),
        ),
        "jest": RunnerKind(
            2,
            lambda spec, _: JestRunner(*_common(spec)),
            javascript_tools.MANIFEST,
            lambda tree: javascript_tools.detect(tree, "jest"),
        ),
        "command": RunnerKind(0, lambda spec, _: CommandRunner(spec.command, *_common(spec), spec.junit)),
    }
)
"""Python projects are detected separately: pytest is also the default."""


def _pytest(spec: RunnerSpec, defaults: RunnerDefaults) -> PytestRunner:
    return PytestRunner((*defaults.args, *spec.args), defaults.workers, spec.folder, spec.env, spec.title)


def _common(spec: RunnerSpec) -> tuple[str, str, tuple[str, ...], Mapping[str, str]]:
    return spec.title, spec.folder, spec.args, spec.env
