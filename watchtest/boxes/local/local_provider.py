"""The embedded box: the same agent as a subprocess, on a mirror of the workspace in the user's cache folder.

It keeps the workspace untouched, has a virtualenv, a home and an environment of its own, and stands within bubblewrap
where that works. What it does not isolate, it says.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from watchtest.boxes.box import start_command
from watchtest.boxes.environment import has_setup
from watchtest.boxes.local import local_exec
from watchtest.boxes.local.box_folder import (
    HOME,
    SANDBOX,
    TEMPORARY,
    TREE,
    boxes_of,
    end_sandbox,
    identity_of,
    make_folder,
    remove_box,
)
from watchtest.boxes.local.bubblewrap import Bubblewrap, NoBubblewrap, find_bubblewrap
from watchtest.boxes.local.host_variables import box_environ, files_named
from watchtest.boxes.local.pipe_stream import PipeStream
from watchtest.boxes.protocols import ExecMode, Note, OpenBox, Recipe
from watchtest.core.model import BoxInfo
from watchtest.errors import BoxError, ConfigError, UsageError

ASK_LIMIT_S = 30.0
WHERE_IT_LIVES = """
import json, sys
folders = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
print(json.dumps([sys.executable, getattr(sys, "_base_executable", sys.executable), *folders]))
"""


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """Everything that makes a local box what it is."""

    folder: Path
    workspace: str
    python: str = ""
    sandbox: str = "auto"
    network: str = "on"
    certificates: str = "auto"
    without_effect: tuple[str, ...] = ()
    """Settings that the user made and that only a container obeys."""


class LocalProvider:
    """A folder of the cache: `tree` is the mirror, `home` holds agent and virtualenv, `tmp` is its /tmp."""

    engine = "local"
    variables: Mapping[str, str] = MappingProxyType({})
    shares_host_python = True
    keeps_processes = False

    def __init__(self, spec: LocalSpec, environ: Mapping[str, str]) -> None:
        self._spec = spec
        self._bubblewrap = _chosen(spec, environ)
        # The bare interpreter: a virtualenv around watchtest itself is none of the box's business.
        self.image = spec.python or str(getattr(sys, "_base_executable", None) or sys.executable)
        self.root = str(spec.folder / TREE)
        self.home = str(spec.folder / HOME)
        self._host_environ = environ
        self._environ = box_environ(
            environ, certificates=spec.certificates, is_sandboxed=isinstance(self._bubblewrap, Bubblewrap)
        )
        self._environ["HOME"] = f"{self.home}/user"
        self._has_spoken = False

    # -- the box -----------------------------------------------------------------------------------

    def open(self, agent: bytes, recipe: Recipe, note: Note) -> OpenBox:
        is_new = not Path(self.home).exists()
        make_folder(self._spec.folder, self._spec.workspace)
        self._speak_once(note)
        # In a sandbox no new agent could reach the old one, whose host is gone or has lost it.
        end_sandbox(self._spec.folder)
        stream = PipeStream(*self._start(agent))
        try:
            stream.write(agent)
        except OSError as error:
            stream.close()
            raise BoxError(f"the agent did not start: {stream.stderr_tail() or error}") from error
        return OpenBox(self._info("running", ("created" if is_new else "adopted",)), stream)

    def _start(self, agent: bytes) -> tuple[list[str], Mapping[str, str]]:
        if not isinstance(self._bubblewrap, Bubblewrap):
            return start_command(self.image, self.home, self.root, agent), self._environ
        # No death with the parent: it would come with the end of the thread that calls this, which is soon. At the end
        # of its input the agent ends, and with it all that is in its namespace.
        command = start_command(self._interpreter[0], self.home, self.root, agent)
        return [*self._walled("/"), *command], {**self._environ, SANDBOX: self.home}

    def _speak_once(self, note: Note) -> None:
        if self._has_spoken:
            return
        self._has_spoken = True
        if isinstance(self._bubblewrap, NoBubblewrap) and self._spec.sandbox == "auto":
            note(f"the local box has no sandbox: {_because(self._bubblewrap)}")
        if self._spec.without_effect:
            note(f"without effect in the local box: {', '.join(self._spec.without_effect)}")

    def image_name(self, recipe: Recipe) -> str:
        return self.image

    def image_id(self, recipe: Recipe) -> str:
        return ""  # the interpreter is all it grows from, and names itself

    def save_environment(self, recipe: Recipe, is_clean: bool, note: Note) -> None:
        """The folder stays as it is."""

    def allow_network(self, is_allowed: bool) -> None:
        """Network for setup alone was refused when the place was made."""

    def is_prepared(self) -> bool:
        try:
            return has_setup(Path(self.home, "remembered.json").read_bytes())
        except OSError:
            return False

    def snapshot(self, recipe: Recipe, note: Note) -> str:
        raise UsageError(
            "snapshot: the local box cannot be multiplied; it stays as it is from run to run anyway",
            hint="put what other boxes need into box.setup, or use a container engine",
        )

    def reset(self, with_environment: bool) -> tuple[str, ...]:
        boxes = set(boxes_of(self._spec.workspace, self._spec.folder.parent))
        boxes |= {self._spec.folder} if self._spec.folder.exists() else set()
        for folder in boxes:
            remove_box(folder)
        return (f"{len(boxes)} local box{'' if len(boxes) == 1 else 'es'}",)

    def inspect(self) -> BoxInfo | None:
        return self._info("stopped", ()) if Path(self.home).exists() else None

    def describe(self) -> tuple[str, ...]:
        lines = [f"local box in {self._spec.folder}, Python {self.image}"]
        if isinstance(self._bubblewrap, Bubblewrap):
            lines.append(f"sandbox: {self._bubblewrap.version} ({self._bubblewrap.program})")
        else:
            lines.append(f"no sandbox: {_because(self._bubblewrap)}")
        lines.append(f"not isolated: {self._isolation}")
        if self._spec.without_effect:
            lines.append(f"without effect in the local box: {', '.join(self._spec.without_effect)}")
        return tuple(lines)

    def close(self) -> None:
        return

    # -- commands ----------------------------------------------------------------------------------

    def execute(
        self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...], mode: ExecMode = ExecMode.ATTACHED
    ) -> int:
        make_folder(self._spec.folder, self._spec.workspace)
        environ = {**self._environ, **env}
        environ["PATH"] = os.pathsep.join([*path_first, environ["PATH"]])
        program = shutil.which(argv[0], path=environ["PATH"]) or argv[0]
        is_walled = isinstance(self._bubblewrap, Bubblewrap)
        inside = local_exec.ExecTarget(
            home=self.home,
            root=self.root,
            python=self._interpreter[0] if is_walled else self.image,
            wrap=self._wrapped if is_walled else None,
        )
        try:
            return local_exec.run([program, *argv[1:]], environ, mode, inside)
        except OSError as error:
            raise BoxError(f"cannot start {argv[0]}: {error.strerror}") from error

    def _wrapped(self, command: list[str], dies_with_parent: bool) -> list[str]:
        return [*self._walled(self.root, dies_with_parent=dies_with_parent), *command]

    # -- the sandbox -------------------------------------------------------------------------------

    def _walled(self, cwd: str, *, dies_with_parent: bool = False) -> list[str]:
        from watchtest.boxes.local.bubblewrap import BoxFolders, plan_mounts  # Linux only

        assert isinstance(self._bubblewrap, Bubblewrap)
        folder = self._spec.folder
        walls = plan_mounts(
            BoxFolders(folder / TREE, folder / HOME, folder / TEMPORARY),
            workspace=self._spec.workspace,
            environ=self._host_environ,
            needed=self._interpreter,
            welcome=(*self._programs(), *files_named(self._environ)),
        )
        is_cut_off = self._spec.network == "off"
        command = self._bubblewrap.command(walls, cwd=cwd, is_cut_off=is_cut_off, dies_with_parent=dies_with_parent)
        return [*command, "--"]

    def _programs(self) -> list[str]:
        """The folders of PATH, and the installations behind the shims of pyenv and its kin."""
        folders = [Path(folder) for folder in self._environ["PATH"].split(os.pathsep) if folder.startswith("/")]
        return [str(folder.parent if folder.name == "shims" else folder) for folder in folders]

    @cached_property
    def _interpreter(self) -> tuple[str, ...]:
        """The interpreter itself, then all the folders it needs to see."""
        command = [self.image, "-I", "-c", WHERE_IT_LIVES]
        hint = "set box.python to an interpreter that exists, Python 3.8 or newer"
        try:
            done = subprocess.run(
                command, env=self._environ, cwd="/", capture_output=True, timeout=ASK_LIMIT_S, check=True
            )
            found = [str(path) for path in json.loads(done.stdout) if path]
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise BoxError(f"cannot start the Python of the local box, {self.image}: {why}", hint=hint) from error
        # As it was named, too: setup calls it by that name.
        named = shutil.which(self.image, path=self._environ["PATH"]) or self.image
        return (*found, named)

    # -- words ---------------------------------------------------------------------------------------

    @property
    def _isolation(self) -> str:
        network = () if self._spec.network == "off" else ("the network",)
        if isinstance(self._bubblewrap, Bubblewrap):
            parts = (*network, "reading files outside homes and workspace", "use of memory and processors")
        else:
            parts = ("processes", *network, "files outside the mirror", "use of memory and processors")
        return ", ".join(parts)

    def _info(self, state: str, notes: tuple[str, ...]) -> BoxInfo:
        is_walled = isinstance(self._bubblewrap, Bubblewrap)
        return BoxInfo(
            engine=self.engine,
            id=identity_of(self._spec.folder),
            image=self.image,
            state=state,
            since=time.time(),
            isolation=self._isolation,
            notes=(*notes, "sandboxed by bubblewrap" if is_walled else "no sandbox"),
        )


def _chosen(spec: LocalSpec, environ: Mapping[str, str]) -> Bubblewrap | NoBubblewrap:
    """What box.sandbox and box.network come to here; an error where a wish cannot be granted."""
    if spec.network == "setup":
        raise ConfigError(
            'box.network = "setup": the local box cannot be cut off once setup is done',
            hint='use a container engine (box.engine), or box.network = "on" or "off"',
        )
    is_cut_off = spec.network == "off"
    if spec.sandbox == "off":
        found: Bubblewrap | NoBubblewrap = NoBubblewrap('box.sandbox = "off"')
    else:
        found = find_bubblewrap(environ, is_cut_off=is_cut_off)
    if isinstance(found, Bubblewrap):
        return found
    if is_cut_off:
        raise ConfigError(
            f'box.network = "off": the local box needs its sandbox for that: {_because(found)}',
            hint='use a container engine (box.engine), or set box.network = "on"',
        )
    if spec.sandbox == "on":
        raise ConfigError(
            f'box.sandbox = "on": {found.reason}', hint=found.hint or 'set box.sandbox = "auto" to go without'
        )
    return found


def _because(absent: NoBubblewrap) -> str:
    return f"{absent.reason}; {absent.hint}" if absent.hint else absent.reason
