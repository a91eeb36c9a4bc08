"""What a box needs before tests can run in it: a virtualenv, and the project's setup, done once for what it depends on.

The commands run in the box, shown as they go. A box remembers the key of the setup it has had, so that an adopted box
starts at once and a changed dependency file sets it up again; what setup made of it is kept by the provider.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.channel import FREE_ROOM
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
KEEP_LIMIT_S = 660.0
NETWORK_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class PreparedBox:
    """A box that is ready for tests: by which interpreter, and whether setup has just run."""

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
        is_touched: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_touched`: whether the user has done something by hand in the box since it was made."""
        self.is_touched = is_touched
        self._provider = provider
        self._limits = JobLimits(timeout_s, timeout_s, grace_s)
        self._python = python
        self.env = dict(env)
        self._prepared: BoxSession | None = None

    @property
    def venv(self) -> str:
        return f"{self._provider.home}/venv"

    @property
    def path_first(self) -> tuple[str, ...]:
        return (f"{self.venv}/bin",)

    async def prepare(self, session: BoxSession, recipe: Recipe, note: Note, stop: StopSignal) -> PreparedBox | None:
        """Set the box up, if it is not; None if it was stopped on the way."""
        base = self._python or session.executable
        if not base and recipe.needs_pytest:
            raise no_python_error()
        key = f"{recipe.key} {base}"
        if await self._is_prepared(session, key, recipe, note):
            return PreparedBox(str(session.remembered["python"]), is_fresh=False)
        if "setup" in session.remembered:
            note("the dependencies have changed: setting the box up again, as it stands")
        is_clean = not session.remembered and not self.is_touched()
        # From here on it is neither what it was nor what it shall be: an interrupted setup must not pass for either.
        await session.remember({**_without_setup(session.remembered), "is_clean": False})
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
        await session.remember({"setup": key, "python": python, "base": base, "is_clean": is_clean})
        await self._keep(recipe, is_clean, note)
        self._prepared = session
        return PreparedBox(python, is_fresh=True)

    async def _set_up(self, session: BoxSession, recipe: Recipe, base: str, note: Note, stop: StopSignal) -> str | None:
        if base and session.remembered.get("base", base) != base:
            note(f"the box's Python is {base} now: making its virtualenv anew")
            await self._job(session, f"rm -rf {shlex.quote(self.venv)}")
        python = await self._make_virtualenv(session, base, note, stop) if base else ""
        for command in recipe.commands:
            if stop.is_set or await self._run(session, command, note, stop) is None:
                return None
        lacks_pytest = recipe.needs_pytest and not await self._has_pytest(session, python)
        if lacks_pytest and (stop.is_set or await self._run(session, "pip install pytest", note, stop) is None):
            return None
        return None if stop.is_set else python

    async def _keep(self, recipe: Recipe, is_clean: bool, note: Note) -> None:
        """A box that cannot be kept is as good for its tests; only the next one has to be set up again."""
        try:
            await in_daemon_thread(lambda: self._provider.keep(recipe, is_clean, note), KEEP_LIMIT_S)
        except (WatchtestError, TimeoutError) as error:
            note(f"the environment could not be kept, so a new box will have to be set up again: {error}")

    async def _allow_network(self, is_allowed: bool) -> None:
        try:
            await in_daemon_thread(lambda: self._provider.allow_network(is_allowed), NETWORK_LIMIT_S)
        except TimeoutError as error:
            raise EngineError("the engine did not change the box's network in time") from error

    async def _is_prepared(self, session: BoxSession, key: str, recipe: Recipe, note: Note) -> bool:
        python = session.remembered.get("python")
        if session.remembered.get("setup") != key or not isinstance(python, str):
            return False
        # Once a session: somebody may have removed it from the box meanwhile, or left the network on.
        if self._prepared is not session:
            has_python = not python or (await self._job(session, f"test -x {shlex.quote(python)}")).exit_code == 0
            if has_python:
                await self._allow_network(False)
                is_clean = session.remembered.get("is_clean") is True and not self.is_touched()
                await self._keep(recipe, is_clean, note)  # if a watcher was killed before it could
            self._prepared = session if has_python else None
        return self._prepared is session

    async def _make_virtualenv(self, session: BoxSession, base: str, note: Note, stop: StopSignal) -> str:
        options = "" if self._provider.is_shared else "--system-site-packages"
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
        end = await self._job(session, script, stop=stop)
        if end.exit_code != 0 and end.stopped is None:
            note(f"no virtualenv could be made ({_tail(end, 1)}): the image's own Python is used")
            return base
        return f"{self.venv}/bin/python"

    async def _has_pytest(self, session: BoxSession, python: str) -> bool:
        return (await self._job(session, f"{shlex.quote(python)} -c 'import pytest'")).exit_code == 0

    async def _run(self, session: BoxSession, command: str, note: Note, stop: StopSignal) -> JobResult | None:
        note(f"setup: {command}")
        end = await self._job(session, command, note, stop)
        if end.stopped in ("cancelled", "killed"):
            return None
        if end.exit_code != 0 and end.full_disk:
            raise DiskFull(f"setup failed: {command}: no room is left in the box, in {end.full_disk}", hint=FREE_ROOM)
        if end.exit_code != 0:
            why = end.reason or f"exit code {end.exit_code}"
            raise BoxError(
                f"setup failed: {command} ({why})\n{_tail(end, TAIL_LINES)}",
                hint="fix it and save, try it by hand with `watchtest exec -- …`, or set box.setup",
            )
        return end

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


def has_setup(remembered: bytes) -> bool:
    """By what an agent wrote down beside its tree: whether a setup came to its end in that box."""
    try:
        return "setup" in json.loads(remembered)
    except (ValueError, TypeError):
        return False  # nothing yet, or half of it


def _without_setup(remembered: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in remembered.items() if name != "setup"}


def _tail(end: JobResult, lines: int) -> str:
    kept = [line for line in end.output.splitlines() if line.strip()]
    return "\n".join(kept[-lines:])
