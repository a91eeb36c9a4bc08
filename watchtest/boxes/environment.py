"""What a box needs before tests can run in it: a virtualenv, and the project's setup, done once for what it depends on.

The plan is made on the host from the snapshot; the commands run in the box, shown as they go. A box remembers the key
of the setup it has had, so that an adopted box starts at once and a changed dependency file sets it up again.
"""

from __future__ import annotations

import fnmatch
import hashlib
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups

from watchtest.boxes.base import Command, Job, JobEnd, Limits, Note, Place, Read, StopWish
from watchtest.boxes.session import Session
from watchtest.core.model import Kind, Snapshot
from watchtest.errors import BoxError

DEPENDENCY_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "*-requirements.txt")
TEST_EXTRAS = ("test", "tests", "testing", "dev")
TEST_GROUPS = ("test", "tests", "testing", "dev")
TAIL_LINES = 8


@dataclass(frozen=True, slots=True)
class Setup:
    """Shell commands, and a key that changes when they have to run again."""

    commands: tuple[str, ...]
    needs_pytest: bool
    key: str


def plan(wish: tuple[str, ...] | str, snapshot: Snapshot, read: Read) -> Setup:
    """The setup of a workspace: the commands given, or what an ordinary Python project needs."""
    files = _dependency_files(snapshot)
    commands = tuple(inferred(files, snapshot, read)) if isinstance(wish, str) else wish
    basis = [*commands, *(f"{path} {snapshot.entries[path].digest}" for path in files)]
    key = hashlib.sha256("\n".join(basis).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Setup(commands, needs_pytest=isinstance(wish, str), key=key)


def inferred(files: list[str], snapshot: Snapshot, read: Read) -> list[str]:
    commands = [f"pip install -r {shlex.quote(path)}" for path in files if path.endswith(".txt")]
    if "pyproject.toml" in files:
        pyproject = _toml(read("pyproject.toml", snapshot.entries["pyproject.toml"]))
        commands += [*_project_install(pyproject), *_group_install(pyproject)]
    elif "setup.py" in files:
        commands.append("pip install -e .")
    return commands


def _project_install(pyproject: Mapping[str, Any]) -> list[str]:
    project = pyproject.get("project")
    if not isinstance(project, dict) or "build-system" not in pyproject:
        return []
    optional = project.get("optional-dependencies")
    extras = [extra for extra in TEST_EXTRAS if isinstance(optional, dict) and extra in optional]
    return [f"pip install -e {shlex.quote('.[' + ','.join(extras) + ']') if extras else '.'}"]


def _group_install(pyproject: Mapping[str, Any]) -> list[str]:
    """The dependency group that tests need, by the names it usually has (PEP 735)."""
    groups = pyproject.get("dependency-groups")
    name = next((name for name in TEST_GROUPS if isinstance(groups, dict) and name in groups), None)
    if groups is None or name is None:
        return []
    try:
        needed = resolve_dependency_groups(groups, name)
    except (ValueError, TypeError, LookupError, ExceptionGroup):
        return []  # not a group that can be read: pip would not install it either
    return [f"pip install {shlex.join(needed)}"] if needed else []


def _toml(content: bytes) -> Mapping[str, Any]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except ValueError:
        return {}  # half written: pip, or the next save, will tell


def _dependency_files(snapshot: Snapshot) -> list[str]:
    """Only those at the top: what lies deeper belongs to samples and vendored code more often than not."""
    return sorted(
        path
        for path, entry in snapshot.entries.items()
        if "/" not in path
        and entry.kind is Kind.FILE
        and any(fnmatch.fnmatch(path, pattern) for pattern in DEPENDENCY_FILES)
    )


class Environment:
    """The virtualenv and the setup of one box."""

    def __init__(self, place: Place, *, timeout_s: float, grace_s: float, python: str, env: Mapping[str, str]) -> None:
        self._place = place
        self._limits = Limits(timeout_s, timeout_s, grace_s)
        self._python = python
        self.env = dict(env)
        self._prepared: Session | None = None

    @property
    def venv(self) -> str:
        return f"{self._place.home}/venv"

    @property
    def path_first(self) -> tuple[str, ...]:
        return (f"{self.venv}/bin",)

    async def prepare(self, session: Session, setup: Setup, note: Note, stop: StopWish) -> str | None:
        """The interpreter to test with, or None if it was stopped on the way."""
        base = self._python or session.executable
        key = f"{setup.key} {base}"
        if await self._is_prepared(session, key):
            return str(session.remembered["python"])
        if session.remembered.get("base", base) != base:
            note(f"the box's Python is {base} now: making its virtualenv anew")
            await self._job(session, f"rm -rf {shlex.quote(self.venv)}")
        python = await self._make_virtualenv(session, base, note)
        for command in setup.commands:
            if stop.is_wanted or await self._run(session, command, note, stop) is None:
                return None
        lacks_pytest = setup.needs_pytest and not await self._has_pytest(session, python)
        if lacks_pytest and (stop.is_wanted or await self._run(session, "pip install pytest", note, stop) is None):
            return None
        await session.remember({"setup": key, "python": python, "base": base})
        self._prepared = session
        return python

    async def _is_prepared(self, session: Session, key: str) -> bool:
        python = session.remembered.get("python")
        if session.remembered.get("setup") != key or not isinstance(python, str):
            return False
        # Once a session: somebody may have removed it from the box meanwhile.
        if self._prepared is not session:
            has_python = (await self._job(session, f"test -x {shlex.quote(python)}")).exit_code == 0
            self._prepared = session if has_python else None
        return self._prepared is session

    async def _make_virtualenv(self, session: Session, base: str, note: Note) -> str:
        options = "" if self._place.is_shared else "--system-site-packages"
        venv, python = shlex.quote(self.venv), shlex.quote(f"{self.venv}/bin/python")
        # The pip wrapper is written last, and all at once: a virtualenv without it was never finished.
        script = f"""
            test -x {python} && test -x {venv}/bin/pip && exit 0
            {shlex.quote(base)} -m venv --clear --without-pip {options} {venv} || exit 1
            printf '#!/bin/sh\\n"%s" -c "import pip" 2>/dev/null || "%s" -m ensurepip >/dev/null || exit 1\\n'"""
        script += f"""'exec "%s" -m pip "$@"\\n' {python} {python} {python} > {venv}/bin/pip.new
            chmod 755 {venv}/bin/pip.new && mv {venv}/bin/pip.new {venv}/bin/pip
        """
        note("making the box's virtualenv")
        end = await self._job(session, script)
        if end.exit_code != 0:
            note(f"no virtualenv could be made ({_tail(end, 1)}): the image's own Python is used")
            return base
        return f"{self.venv}/bin/python"

    async def _has_pytest(self, session: Session, python: str) -> bool:
        return (await self._job(session, f"{shlex.quote(python)} -c 'import pytest'")).exit_code == 0

    async def _run(self, session: Session, command: str, note: Note, stop: StopWish) -> JobEnd | None:
        note(f"setup: {command}")
        end = await self._job(session, command, note, stop)
        if end.stopped in ("cancelled", "killed"):
            return None
        if end.exit_code != 0:
            why = end.reason or f"exit code {end.exit_code}"
            raise BoxError(
                f"setup failed: {command} ({why})\n{_tail(end, TAIL_LINES)}",
                hint="fix it and save, try it by hand with `watchtest exec -- …`, or set box.setup",
            )
        return end

    async def _job(
        self, session: Session, script: str, note: Note | None = None, stop: StopWish | None = None
    ) -> JobEnd:
        def show(text: str) -> None:
            lines = [line for line in text.splitlines() if line.strip()]
            if lines and note is not None:
                note(f"setup: {lines[-1].strip()[:200]}")

        job = Job(Command(("/bin/sh", "-c", script)), self._limits, self.variables, self.path_first)
        return await session.run(job, lambda _rows: None, show, stop.jobs if stop is not None else None)

    @property
    def variables(self) -> dict[str, str]:
        return {**self._place.variables, **self.env, "VIRTUAL_ENV": self.venv, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _tail(end: JobEnd, lines: int) -> str:
    kept = [line for line in end.output.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])
