"""A podman that serves its API from its own folder and neither sees nor touches a user's containers.

It has no daemon: containers outlive the service, so `stop` ends them first.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.command import EngineScriptError, run

PROGRAMS = {"podman": "podman", "catatonit": "catatonit"}
"""podman runs catatonit as process 1 of a container, but its package only recommends it."""
END_TIMEOUT_S = 60.0
MOST_FILES = 20_000
MOST_PROCESSES = 32_768
"""podman lowers its own limit to this, and cannot grant more than it has."""


@dataclass(frozen=True, slots=True)
class PodmanPlace:
    """The paths of the started podman: all of it is in one folder."""

    folder: Path

    @property
    def name(self) -> str:
        return "podman"

    @property
    def host(self) -> str:
        return f"unix://{self.folder / 'podman.sock'}"

    @property
    def log(self) -> Path:
        return self.folder / "podman.log"

    @property
    def record(self) -> Path:
        return self.folder / "started.json"

    @property
    def pid_files(self) -> tuple[Path, ...]:
        return ()

    def prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # By default podman asks for more open files than a machine without CAP_SYS_RESOURCE may grant, and for systemd.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = MOST_FILES if most == resource.RLIM_INFINITY else min(most, MOST_FILES)
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        processes = MOST_PROCESSES if most == resource.RLIM_INFINITY else min(most, MOST_PROCESSES)
        limits = [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]
        self._settings.write_text(
            f"[containers]\ndefault_ulimits = {json.dumps(limits)}\n"
            # By default the monitor of each exec stays for five minutes, which adds up to hundreds in a test session.
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nexit_command_delay = 20\n'
            f"[network]\nnetwork_config_dir = {json.dumps(str(self.folder / 'networks'))}\n"
        )
        (self.folder / "podman.sock").unlink(missing_ok=True)

    def environment(self) -> Mapping[str, str]:
        return {"CONTAINERS_CONF": str(self._settings)}

    def command(self) -> list[str]:
        return [*self._podman, "system", "service", "--time=0", self.host]

    def end_containers(self) -> None:
        """End all containers: they have no parent process that could."""
        if not (self.folder / "storage").exists():
            return
        remove = (*self._podman, "rm", "--all", "--force", "--time=0")
        try:
            run(remove, timeout_s=END_TIMEOUT_S, environment=self.environment())
        except EngineScriptError as error:
            raise EngineScriptError(f"containers of the tests' podman may be left: {error}") from error

    @property
    def _settings(self) -> Path:
        return self.folder / "containers.conf"

    @property
    def _podman(self) -> list[str]:
        kept = {"root": "storage", "runroot": "run", "tmpdir": "tmp"}
        return ["podman", *(f"--{option}={self.folder / name}" for option, name in kept.items())]
