"""Create the container of a box: its limits and privileges, its labels, and the folders that must exist in it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import docker
from docker.errors import APIError, NotFound

from watchtest import __version__
from watchtest.boxes.docker import labels
from watchtest.boxes.docker.container_exec import ContainerFiles
from watchtest.boxes.docker.container_limits import ConfiguredLimits, EnforcedLimits, ignored_limits
from watchtest.boxes.docker.images import BoxOrigin, ImageOwner
from watchtest.boxes.protocols import Note
from watchtest.errors import BoxError

HOME = "/opt/watchtest"
CACHE = f"{HOME}/cache"
DROPPED_CAPABILITIES = ["NET_RAW", "MKNOD", "AUDIT_WRITE", "SETFCAP"]
# Commands that wait for ever, and the files they need; the second one is for images without shell tools.
KEEP_ALIVE = {
    ("sleep", "2147483647"): ("/bin/sleep", "/usr/bin/sleep"),
    ("python3", "-c", "import signal; signal.pause()"): ("/usr/local/bin/python3", "/usr/bin/python3"),
}
NETWORK_MODES = {"off": "none", "setup": "bridge"}
"""A container cannot leave the default network of rootless podman, so setup uses another one."""
NO_INIT = "container-init binary not found"
"""podman's error if catatonit is not installed."""
CACHES = {
    "PIP_CACHE_DIR": f"{CACHE}/pip",
    "UV_CACHE_DIR": f"{CACHE}/uv",
    "POETRY_CACHE_DIR": f"{CACHE}/poetry",
    "npm_config_cache": f"{CACHE}/npm",
    "CARGO_HOME": f"{CACHE}/cargo",
    "GOMODCACHE": f"{CACHE}/go/mod",
    "GOCACHE": f"{CACHE}/go/build",
}
"""The cache folder of each tool, in a volume: a new box downloads nothing twice."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The settings of a container. A change of either digest requires a new container."""

    name: str
    lane: str
    owner: ImageOwner
    workdir: str = "/workspace"
    user: str = ""
    python: str = ""
    network: str = "on"
    limits: ConfiguredLimits = field(default_factory=ConfiguredLimits)
    hardened: bool = False
    ports: tuple[int, ...] = ()
    cache_volume: str = ""
    ca_bundle: bytes = b""

    @property
    def layout_digest(self) -> str:
        """A digest of the settings that the content depends on: a new container cannot keep the content."""
        return _digest(self.workdir, self.user)

    @property
    def digest(self) -> str:
        """A digest of all settings. The second part is for those that limit the container: the content can be kept."""
        limits = (self.limits.memory, self.limits.cpus, self.limits.pids)
        others = (self.hardened, self.ports, self.cache_volume)
        return f"{self.layout_digest}.{_digest(self.network, *limits, *others)}"


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def create_container(
    client: docker.APIClient, spec: ContainerSpec, origin: BoxOrigin, image: str, name: str, note: Note
) -> str:
    """Create a container of that image with the folders of the box, do not start it, and return its id."""
    if spec.cache_volume:
        client.create_volume(spec.cache_volume, labels={**spec.owner.labels, labels.VERSION: __version__})
    marks = {
        **spec.owner.labels,
        labels.LANE: spec.lane,
        labels.VERSION: __version__,
        labels.SPEC: spec.digest,
        labels.BASE: origin.id,
        labels.IMAGE: origin.image,
    }
    options = {
        **{"image": image, "name": name, "command": [], "labels": marks, "ports": list(spec.ports)},
        **{"user": spec.user or None, "working_dir": spec.workdir},
    }
    for command, programs in KEEP_ALIVE.items():
        container = _create(client, spec, {**options, "entrypoint": list(command)}, note)
        files = ContainerFiles(client, container)
        if not any(files.has(program) for program in programs):
            remove_container(client, container)
            continue
        try:
            create_folders(client, spec, origin.image, container)
        except BaseException:
            remove_container(client, container)
            raise
        return container
    raise BoxError(
        f"the image {origin.image} has neither `sleep` nor `python3`, so nothing can keep the box running",
        hint="set box.image to an image with a shell, or with Python",
    )


def start_container(client: docker.APIClient, spec: ContainerSpec, container: str) -> None:
    try:
        client.start(container)
    except APIError as error:
        raise _start_refused(spec, error) from error


def remove_container(client: docker.APIClient, container: str) -> None:
    with contextlib.suppress(NotFound):
        client.remove_container(container, force=True, v=True)


def create_folders(client: docker.APIClient, spec: ContainerSpec, image: str, container: str) -> None:
    """Create the folders of the box, owned by its user, before anything runs in it."""
    files = ContainerFiles(client, container)
    uid, gid = _user_ids(client, spec, image, files)
    if spec.hardened and uid == 0:
        raise BoxError(
            f"box.hardened = true, but {image} runs as root",
            hint="set box.user to another user of the image, or a number such as 1000",
        )
    folders = (HOME, spec.workdir, *((CACHE,) if spec.cache_volume else ()))
    try:
        files.make_folders(folders, uid, gid)
    except APIError as error:
        raise _start_refused(spec, error) from error


def _create(client: docker.APIClient, spec: ContainerSpec, options: Mapping[str, Any], note: Note) -> str:
    info = client.info()
    if ignored := sorted(ignored_limits(info)):
        note(f"this engine does not enforce limits of {', '.join(ignored)}: `watchtest doctor` says why")
    config = host_config(spec, spec.limits.on_engine(info), can_limit_swap=info.get("SwapLimit") is not False)
    try:
        created = client.create_container(**options, host_config=client.create_host_config(**config))
    except APIError as error:
        if NO_INIT not in str(error):
            raise
        note("the engine has no init process for containers, so zombies may remain in the box: install catatonit")
        config["init"] = False
        created = client.create_container(**options, host_config=client.create_host_config(**config))
    for warning in created.get("Warnings") or ():
        note(f"the engine warns: {warning}")
    return str(created["Id"])


def host_config(spec: ContainerSpec, limits: EnforcedLimits, *, can_limit_swap: bool) -> dict[str, Any]:
    return {
        "init": True,
        "cap_drop": ["ALL"] if spec.hardened else DROPPED_CAPABILITIES,
        "security_opt": ["no-new-privileges"],
        "pids_limit": limits.pids or None,
        "log_config": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
        # Only for this machine, not for its network.
        "port_bindings": {port: ("127.0.0.1", port) for port in spec.ports},
        "network_mode": NETWORK_MODES.get(spec.network),
        "mem_limit": limits.memory or None,
        # The same number means no swap: a box that swaps slows down the whole machine.
        "memswap_limit": (limits.memory or None) if can_limit_swap else None,
        "nano_cpus": int(limits.cpus * 1e9) or None,
        "binds": [f"{spec.cache_volume}:{CACHE}"] if spec.cache_volume else None,
    }


def _start_refused(spec: ContainerSpec, error: Exception) -> Exception:
    """Explain an error at the start: only then the engine reports a port in use or an impossible workdir."""
    why = getattr(error, "explanation", None) or error
    taken = next((port for port in spec.ports if f":{port}" in str(error)), None)
    if taken is not None:
        return BoxError(
            f"port {taken} of this machine cannot be published for the box: {why}",
            hint="stop the process that listens there, or remove the port from box.ports",
        )
    if spec.workdir not in str(error):
        return error
    return BoxError(
        f"the folder {spec.workdir} cannot be created in the box: {why}",
        hint="set box.workdir to a folder that is writable in this image",
    )


def _user_ids(client: docker.APIClient, spec: ContainerSpec, image: str, files: ContainerFiles) -> tuple[int, int]:
    """Return the numeric user and group of the box's user."""
    settings: Mapping[str, Any] = client.inspect_container(files.container)["Config"]
    name, _, group = (spec.user or settings.get("User") or "0").partition(":")
    if name.isdigit():
        return int(name), int(group) if group.isdigit() else int(name)
    passwd = files.read("/etc/passwd") or b""
    for line in passwd.decode("utf-8", "replace").splitlines():
        fields = line.split(":")
        if len(fields) > 3 and fields[0] == name:
            return int(fields[2]), int(fields[3])
    raise BoxError(f"the image {image} has no user {name!r}", hint="set box.user to a user of the image, or a number")
