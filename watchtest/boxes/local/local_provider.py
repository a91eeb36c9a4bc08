"""The embedded box: the same agent as a subprocess, on a mirror of the workspace in the user's cache folder.

It leaves the workspace untouched and has its own virtualenv, home and environment. It runs in bubblewrap where that
works, and reports what it does not isolate.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from watchtest.boxes.box import start_command
from watchtest.boxes.environment import completed_setup, has_clean_environment
from watchtest.boxes.local import box_folder, bubblewrap, local_exec
from watchtest.boxes.local.bubblewrap import Bubblewrap, NoBubblewrap
from watchtest.boxes.local.host_variables import box_environ, files_named
from watchtest.boxes.protocols import ExecMode, Note, OpenBox, Recipe
from watchtest.core.model import BoxInfo
from watchtest.errors import BoxError, ConfigError, UsageError

PROBE_LIMIT_S = 30.0
END_LIMIT_S = 2.0
UNWANTED = 'box.sandbox = "off"'
STDERR_LIMIT = 8 * 1024
PYTHON_FOLDERS = """
import json, sys
folders = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
print(json.dumps([sys.executable, getattr(sys, "_base_executable", sys.executable), *folders]))
"""


@dataclass(frozen=True, slots=True)
class LocalSpec:
    """The settings of a local box."""

    folder: Path
    workspace: str
    python: str = ""
    sandbox: str = "auto"
    network: str = "on"
    certificates: str = "auto"
    without_effect: tuple[str, ...] = ()
    """Settings of the user that only apply to containers."""


class PipeStream:
    """The agent as a subprocess, in a session of its own: Ctrl-C on our terminal must not reach it."""

    def __init__(self, command: list[str], environ: Mapping[str, str]) -> None:
        self._last_words = ""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the stream
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,  # a buffer has a lock, which a blocked write would hold against `close`
                cwd="/",
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as error:
            self._stderr.close()
            raise _cannot_start(command[0], error) from error

    def read(self) -> bytes:
        assert self._process.stdout is not None
        piece = os.read(self._process.stdout.fileno(), 256 * 1024)
        if not piece:
            self._process.stdout.close()  # not in `close`, because this thread might still read it
        return piece

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def close(self) -> None:
        """End the input, which makes the agent end its job and itself; kill it if it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # the agent has already ended
            self._process.stdin.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            # Kill the process group: killing only bubblewrap would not end the agent inside.
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(END_LIMIT_S)
        self._last_words = self.stderr_tail()
        self._stderr.close()

    def pids(self) -> list[int]:
        """Return the agent and all its descendants."""
        from watchtest.agent.jobs import supervisor  # not on every system

        return [self._process.pid, *supervisor.descendants(self._process.pid)]

    def kill(self) -> None:
        """Kill the agent and all its descendants."""
        from watchtest.agent.jobs import supervisor  # not on every system

        if self._process.poll() is None:
            supervisor.kill_tree(self._process.pid)

    def stderr_tail(self) -> str:
        if self._stderr.closed:
            return self._last_words
        size = os.fstat(self._stderr.fileno()).st_size
        return os.pread(self._stderr.fileno(), STDERR_LIMIT, max(0, size - STDERR_LIMIT)).decode("utf-8", "replace")


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False  # it has ended, or there is no /proc
    return state[:1] == [b"T"]


def _cannot_start(python: str, error: Exception) -> BoxError:
    why = getattr(error, "strerror", None) or error
    hint = "set box.python to an interpreter that exists, Python 3.8 or newer"
    return BoxError(f"cannot start the Python of the local box, {python}: {why}", hint=hint)


class LocalProvider:
    """Provides a box in a cache folder: `tree` is the mirror, `home` holds agent and virtualenv, `tmp` is its /tmp."""

    engine = "local"
    variables: Mapping[str, str] = MappingProxyType({})
    shares_host_python = True
    restores_from_image = False
    keeps_processes = False

    def __init__(self, spec: LocalSpec, environ: Mapping[str, str], *, is_builder: bool = False) -> None:
        self._spec = spec
        self._bubblewrap = _choose_sandbox(spec, environ)
        # The base interpreter: the box must not depend on the virtualenv of watchtest itself.
        self.image = spec.python or str(getattr(sys, "_base_executable", None) or sys.executable)
        self._is_builder = is_builder
        self._host_environ = environ
        self._is_sandboxed = isinstance(self._bubblewrap, Bubblewrap)
        self._base_environ = box_environ(environ, certificates=spec.certificates, is_sandboxed=self._is_sandboxed)
        self._has_noted_limits = is_builder
        self._stream: PipeStream | None = None

    @property
    def _folder(self) -> Path:
        find = box_folder.spare_folder if self._is_builder else box_folder.current_folder
        return find(self._spec.folder)

    @property
    def root(self) -> str:
        return str(self._folder / box_folder.TREE)

    @property
    def home(self) -> str:
        return str(self._folder / box_folder.HOME)

    @property
    def _environ(self) -> dict[str, str]:
        return {**self._base_environ, "HOME": f"{self.home}/user"}

    # -- the box -----------------------------------------------------------------------------------

    def open(self, agent: bytes, recipe: Recipe, note: Note) -> OpenBox:
        if Path(self.root).exists() and not Path(self.home).exists():
            box_folder.remove_box(self._folder)  # a test has deleted what was known of the tree
        is_new = not Path(self.home).exists()
        box_folder.make_folder(self._folder, self._spec.workspace, is_spare=self._is_builder)
        if not self._has_noted_limits:
            self._has_noted_limits = True
            if isinstance(self._bubblewrap, NoBubblewrap) and self._spec.sandbox == "auto":
                note(f"the local box has no sandbox: {self._bubblewrap}")
            if self._spec.without_effect:
                note(f"no effect in the local box: {', '.join(self._spec.without_effect)}")
        # A new agent cannot reach an old one in another sandbox, so end the old one here.
        box_folder.end_sandbox(self._folder)
        stream = self._stream = self._start_agent(agent)
        info = self._info("running", ("created" if is_new else "adopted",))
        return OpenBox(replace(info, is_new=is_new), stream)

    def _start_agent(self, agent: bytes) -> PipeStream:
        tries = bubblewrap.START_TRIES
        while True:
            tries -= 1
            stream = PipeStream(*self._agent_command(agent))
            try:
                stream.write(agent)  # more than a pipe holds, so the agent must read it
            except OSError as error:
                stream.close()
                while stream.read():
                    pass  # the end of its output closes the pipe
                if not tries or not bubblewrap.mount_vanished(stream.stderr_tail()):
                    raise BoxError(f"the agent did not start: {stream.stderr_tail() or error}") from error
            else:
                return stream

    def _agent_command(self, agent: bytes) -> tuple[list[str], Mapping[str, str]]:
        if not self._is_sandboxed:
            return start_command(self.image, self.home, self.root, agent), self._environ
        # Not `dies_with_parent`: the calling thread ends soon. The agent ends at the end of its input, and everything
        # in its namespace with it.
        command = start_command(self._interpreter[0], self.home, self.root, agent)
        return self._sandboxed(command, cwd="/"), {**self._environ, box_folder.SANDBOX: self.home}

    def local_images(self) -> frozenset[str]:
        return frozenset()

    def image_name(self, recipe: Recipe) -> str:
        return self.image

    def image_id(self, recipe: Recipe) -> str:
        return ""  # the name of the interpreter identifies it

    def save_environment(self, recipe: Recipe, note: Note) -> None:
        """Do nothing: the folder persists."""

    def has_environment(self, recipe: Recipe, key: str) -> bool:
        return has_clean_environment(_saved_state(box_folder.spare_folder(self._spec.folder)), key)

    def renew(self, recipe: Recipe, key: str) -> None:
        """Use the spare folder if it holds this environment; otherwise remove the current one."""
        if not self._is_builder and self.has_environment(recipe, key):
            box_folder.end_sandbox(self._folder)
            box_folder.use_spare(self._spec.folder)
        elif self._folder.exists():
            box_folder.remove_box(self._folder)

    def builder(self) -> LocalProvider:
        return LocalProvider(self._spec, self._host_environ, is_builder=True)

    def free(self) -> None:
        """Do nothing: the folder is the environment."""

    def allow_network(self, is_allowed: bool) -> None:
        """Do nothing: the constructor rejects a network for setup only."""

    def is_prepared(self) -> bool:
        return bool(completed_setup(_saved_state(self._folder)))

    def snapshot(self, recipe: Recipe, note: Note) -> str:
        raise UsageError(
            "snapshot: the local box cannot be copied; its content persists from run to run anyway",
            hint="put what other boxes need into box.setup, or use a container engine",
        )

    def reset(self, with_environment: bool) -> tuple[str, ...]:
        boxes = set(box_folder.boxes_of(self._spec.workspace, self._spec.folder.parent))
        boxes |= {self._folder} if self._folder.exists() else set()
        for folder in boxes:
            box_folder.remove_box(folder)
        return (f"{len(boxes)} local box{'' if len(boxes) == 1 else 'es'}",)

    def inspect(self) -> BoxInfo | None:
        return self._info("stopped", ()) if Path(self.home).exists() else None

    def describe(self) -> tuple[str, ...]:
        lines = [f"local box in {self._folder}, Python {self.image}"]
        lines.append(f"{'sandbox' if self._is_sandboxed else 'no sandbox'}: {self._bubblewrap}")
        lines.append(f"not isolated: {self._isolation}")
        if self._spec.without_effect:
            lines.append(f"no effect in the local box: {', '.join(self._spec.without_effect)}")
        return tuple(lines)

    def is_stopped(self) -> bool:
        return any(map(_is_stopped, self._pids()))

    def revive(self) -> None:
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended
                os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        return self._stream.pids() if self._stream is not None else []

    def kill(self) -> None:
        if self._stream is not None:
            self._stream.kill()
        box_folder.end_processes(self._folder)

    def discard(self) -> None:
        box_folder.remove_box(self._folder)

    def close(self) -> None:
        return

    # -- commands ----------------------------------------------------------------------------------

    def execute(
        self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...], mode: ExecMode = ExecMode.ATTACHED
    ) -> int:
        box_folder.make_folder(self._folder, self._spec.workspace)
        environ = {**self._environ, **env}
        environ["PATH"] = os.pathsep.join([*path_first, environ["PATH"]])
        program = shutil.which(argv[0], path=environ["PATH"]) or argv[0]
        target = local_exec.ExecTarget(
            home=self.home,
            root=self.root,
            python=self._interpreter[0] if self._is_sandboxed else self.image,
            sandbox=self._sandboxed if self._is_sandboxed else None,
        )
        try:
            return local_exec.run([program, *argv[1:]], environ, mode, target)
        except OSError as error:
            raise BoxError(f"cannot start {argv[0]}: {error.strerror}") from error

    # -- the sandbox -------------------------------------------------------------------------------

    def _sandboxed(
        self, command: list[str], *, cwd: str = "", dies_with_parent: bool = False, status_fd: int = -1
    ) -> list[str]:
        assert isinstance(self._bubblewrap, Bubblewrap)
        mounts = bubblewrap.plan_mounts(
            self._folder,
            workspace=self._spec.workspace,
            environ=self._host_environ,
            required=self._interpreter,
            optional=(*self._program_folders(), *files_named(self._environ)),
        )
        sandbox = self._bubblewrap.command(
            mounts,
            cwd=cwd or self.root,
            is_offline=self._spec.network == "off",
            dies_with_parent=dies_with_parent,
            status_fd=status_fd,
        )
        return [*sandbox, "--", *command]

    def _program_folders(self) -> list[str]:
        """Return the folders of PATH, and the installations behind the shims of pyenv and similar tools."""
        folders = [Path(folder) for folder in self._environ["PATH"].split(os.pathsep) if folder.startswith("/")]
        return [str(folder.parent if folder.name == "shims" else folder) for folder in folders]

    @cached_property
    def _interpreter(self) -> tuple[str, ...]:
        """The interpreter itself, followed by all paths that it needs to see."""
        command = [self.image, "-I", "-c", PYTHON_FOLDERS]
        try:
            done = subprocess.run(
                command, env=self._environ, cwd="/", capture_output=True, timeout=PROBE_LIMIT_S, check=True
            )
            found = [str(path) for path in json.loads(done.stdout) if path]
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise _cannot_start(self.image, error) from error
        # Also under its configured name, which setup uses.
        named = shutil.which(self.image, path=self._environ["PATH"]) or self.image
        return (*found, named)

    # -- descriptions ------------------------------------------------------------------------------

    @property
    def _isolation(self) -> str:
        network = () if self._spec.network == "off" else ("the network",)
        if self._is_sandboxed:
            parts = (*network, "reading files outside homes and workspace", "use of memory and processors")
        else:
            parts = ("processes", *network, "files outside the mirror", "use of memory and processors")
        return ", ".join(parts)

    def _info(self, state: str, notes: tuple[str, ...]) -> BoxInfo:
        return BoxInfo(
            engine=self.engine,
            id=box_folder.read_mark(self._folder, box_folder.IDENTITY),
            image=self.image,
            state=state,
            since=time.time(),
            isolation=self._isolation,
            notes=(*notes, "sandboxed by bubblewrap" if self._is_sandboxed else "no sandbox"),
        )


def _saved_state(folder: Path) -> bytes:
    try:
        return (folder / box_folder.HOME / "remembered.json").read_bytes()
    except OSError:
        return b""


def _choose_sandbox(spec: LocalSpec, environ: Mapping[str, str]) -> Bubblewrap | NoBubblewrap:
    """Choose the sandbox for box.sandbox and box.network; raise if they cannot be satisfied here."""
    if spec.network == "setup":
        raise ConfigError(
            'box.network = "setup": the local box cannot be disconnected after setup',
            hint='use a container engine (box.engine), or box.network = "on" or "off"',
        )
    is_offline, is_off = spec.network == "off", spec.sandbox == "off"
    found = NoBubblewrap(UNWANTED) if is_off else bubblewrap.find_bubblewrap(environ, is_offline=is_offline)
    if isinstance(found, Bubblewrap):
        return found
    if is_offline:
        raise ConfigError(
            f'box.network = "off": the local box needs its sandbox for that: {found}',
            hint='use a container engine (box.engine), or set box.network = "on"',
        )
    if spec.sandbox == "on":
        raise ConfigError(
            f'box.sandbox = "on": {found.reason}',
            hint=found.hint or 'set box.sandbox = "auto" to run without a sandbox',
        )
    return found


def sandbox_lack(sandbox: str, environ: Mapping[str, str]) -> str:
    """Return why a local box with this box.sandbox has no sandbox; "" if it has one."""
    found = NoBubblewrap(UNWANTED) if sandbox == "off" else bubblewrap.find_bubblewrap(environ)
    return found.reason if isinstance(found, NoBubblewrap) else ""
