"""Prepare a box for tests: create its virtualenv and run the setup commands of the project.

The box stores the key of its last setup. An adopted box therefore starts at once, and a changed dependency file
triggers a new setup. The provider saves the result for the next box.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.channel import FREE_DISK_HINT
from watchtest.boxes.protocols import (
    BoxProvider,
    BoxSession,
    Command,
    JobLimits,
    JobResult,
    JobSpec,
    Note,
    Recipe,
    StopSignal,
    no_python_error,
)
from watchtest.errors import BoxError, DiskFull, EngineError, WatchtestError

TAIL_LINES = 8
SAVE_LIMIT_S = 660.0
NETWORK_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class PreparedBox:
    """A box that is ready for tests: its interpreter, and whether setup has just run."""

    python: str
    is_fresh: bool


class Environment:
    """The virtualenv and the setup of one box."""

    def __init__(
        self,
        provider: BoxProvider,
        *,
        timeout_s: float,
        grace_s: float,
        python: str,
        env: Mapping[str, str],
        has_manual_changes: Callable[[], bool] = lambda: False,
    ) -> None:
        """`has_manual_changes` tells whether the user has changed the box by hand since it was created."""
        self.has_manual_changes = has_manual_changes
        self._provider = provider
        self.venv = f"{provider.home}/venv"
        self.path_first = (f"{self.venv}/bin",)
        self._limits = JobLimits(timeout_s, timeout_s, grace_s)
        self._python = python
        self.env = dict(env)
        self._prepared: BoxSession | None = None

    async def prepare(self, session: BoxSession, recipe: Recipe, note: Note, stop: StopSignal) -> PreparedBox | None:
        """Set up the box unless that is done already. Return None if the run was stopped."""
        base = self._python or session.executable
        if not base and recipe.needs_pytest:
            raise no_python_error()
        key = f"{recipe.key} {base}"
        if await self._is_prepared(session, key, recipe, note):
            return PreparedBox(str(session.saved_state["python"]), is_fresh=False)
        if "setup" in session.saved_state:
            note("the dependencies have changed: running setup again in the existing box")
        is_clean = not session.saved_state and not self.has_manual_changes()
        # An interrupted setup must not pass for a completed one.
        without_setup = {name: value for name, value in session.saved_state.items() if name != "setup"}
        await session.save_state({**without_setup, "is_clean": False})
        await self._allow_network(True)
        try:
            python = await self._set_up(session, recipe, base, note, stop)
        except WatchtestError:
            with contextlib.suppress(WatchtestError):
                await self._allow_network(False)
            raise
        await self._allow_network(False)
        if python is None:
            return None
        await session.save_state({"setup": key, "python": python, "base": base, "is_clean": is_clean})
        await self._save(recipe, is_clean, note)
        self._prepared = session
        return PreparedBox(python, is_fresh=True)

    async def _set_up(self, session: BoxSession, recipe: Recipe, base: str, note: Note, stop: StopSignal) -> str | None:
        if base and session.saved_state.get("base", base) != base:
            note(f"the box's Python is now {base}: recreating its virtualenv")
            await self._job(session, f"rm -rf {shlex.quote(self.venv)}")
        python = await self._make_virtualenv(session, base, note, stop) if base else ""
        for command in recipe.commands:
            if not await self._run(session, command, note, stop):
                return None
        if recipe.needs_pytest:
            check = await self._job(session, f"{shlex.quote(python)} -c 'import pytest'")
            if check.exit_code != 0 and not await self._run(session, "pip install pytest", note, stop):
                return None
        return None if stop.is_set else python

    async def _save(self, recipe: Recipe, is_clean: bool, note: Note) -> None:
        """Save the box for the next one. A failure is only reported: this box works all the same."""
        try:
            await in_daemon_thread(lambda: self._provider.save_environment(recipe, is_clean, note), SAVE_LIMIT_S)
        except (WatchtestError, TimeoutError) as error:
            note(f"the environment could not be saved, so a new box will need setup again: {error}")

    async def _allow_network(self, is_allowed: bool) -> None:
        try:
            await in_daemon_thread(lambda: self._provider.allow_network(is_allowed), NETWORK_LIMIT_S)
        except TimeoutError as error:
            raise EngineError("the engine did not change the box's network in time") from error

    async def _is_prepared(self, session: BoxSession, key: str, recipe: Recipe, note: Note) -> bool:
        python = session.saved_state.get("python")
        if session.saved_state.get("setup") != key or not isinstance(python, str):
            return False
        # Once per session: the interpreter may be gone from the box meanwhile, or the network may still be on.
        if self._prepared is not session:
            has_python = not python or (await self._job(session, f"test -x {shlex.quote(python)}")).exit_code == 0
            if has_python:
                await self._allow_network(False)
                is_clean = session.saved_state.get("is_clean") is True and not self.has_manual_changes()
                await self._save(recipe, is_clean, note)  # in case a watcher was killed before it did
            self._prepared = session if has_python else None
        return self._prepared is session

    async def _make_virtualenv(self, session: BoxSession, base: str, note: Note, stop: StopSignal) -> str:
        options = "" if self._provider.shares_host_python else "--system-site-packages"
        venv, python = shlex.quote(self.venv), shlex.quote(f"{self.venv}/bin/python")
        # The pip wrapper is written last and atomically: a virtualenv without it is incomplete.
        script = f"""
            test -x {python} && test -x {venv}/bin/pip && exit 0
            {shlex.quote(base)} -m venv --clear --without-pip {options} {venv} || exit 1
            printf '#!/bin/sh\\n"%s" -c "import pip" 2>/dev/null || "%s" -m ensurepip >/dev/null || exit 1\\n'"""
        script += f"""'exec "%s" -m pip "$@"\\n' {python} {python} {python} > {venv}/bin/pip.new
            chmod 755 {venv}/bin/pip.new && mv {venv}/bin/pip.new {venv}/bin/pip
        """
        note("creating the box's virtualenv")
        result = await self._job(session, script, stop=stop)
        if result.exit_code != 0 and result.stopped is None:
            note(f"cannot create a virtualenv ({_tail(result, 1)}): using the image's own Python")
            return base
        return f"{self.venv}/bin/python"

    async def _run(self, session: BoxSession, command: str, note: Note, stop: StopSignal) -> bool:
        """Run a command of the setup. Return False if the run was stopped."""
        if stop.is_set:
            return False
        note(f"setup: {command}")
        result = await self._job(session, command, note, stop)
        if result.stopped in ("cancelled", "killed"):
            return False
        if result.exit_code != 0 and result.full_disk:
            raise DiskFull(
                f"setup failed: {command}: the box has no space left in {result.full_disk}", hint=FREE_DISK_HINT
            )
        if result.exit_code != 0:
            why = result.reason or f"exit code {result.exit_code}"
            raise BoxError(
                f"setup failed: {command} ({why})\n{_tail(result, TAIL_LINES)}",
                hint="fix it and save, try it by hand with `watchtest exec -- …`, or set box.setup",
            )
        return True

    async def _job(
        self, session: BoxSession, script: str, note: Note | None = None, stop: StopSignal | None = None
    ) -> JobResult:
        def show(text: str) -> None:
            lines = [line for line in text.splitlines() if line.strip()]
            if lines and note is not None:
                note(f"setup: {lines[-1].strip()[:200]}")

        job = JobSpec(Command(("/bin/sh", "-c", script)), self._limits, self.variables, self.path_first)
        return await session.run(job, lambda _rows: None, show, stop.job_stops if stop is not None else None)

    @property
    def variables(self) -> dict[str, str]:
        return {**self._provider.variables, **self.env, "VIRTUAL_ENV": self.venv, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def has_setup(saved_state: bytes) -> bool:
    """Return whether setup has completed in a box with this saved state."""
    try:
        return "setup" in json.loads(saved_state)
    except (ValueError, TypeError):
        return False  # nothing saved yet, or cut off


def _tail(result: JobResult, count: int) -> str:
    lines = [line for line in result.output.splitlines() if line.strip()]
    return "\n".join(lines[-count:])
