"""Making the container of a box: what it may do, what it is labelled with, what lies in it before anything runs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import APIError, NotFound

from watchtest import __version__
from watchtest.boxes.docker import labels
from watchtest.boxes.docker.container_tools import ContainerFiles
from watchtest.boxes.docker.images import BoxOrigin, ImageOwner
from watchtest.boxes.protocols import Note
from watchtest.errors import BoxError

HOME = "/opt/watchtest"
CACHE = f"{HOME}/cache"
DROPPED_CAPABILITIES = ["NET_RAW", "MKNOD", "AUDIT_WRITE", "SETFCAP"]
# Something that waits for ever in nearly every image, and where it lies; the second is for images without shell tools.
KEEP_ALIVE = {
    ("sleep", "2147483647"): ("/bin/sleep", "/usr/bin/sleep"),
    ("python3", "-c", "import signal; signal.pause()"): ("/usr/local/bin/python3", "/usr/bin/python3"),
}
NO_INIT = "container-init binary not found"
"""What podman says where its catatonit is not installed."""
CACHES = {
    "PIP_CACHE_DIR": f"{CACHE}/pip",
    "UV_CACHE_DIR": f"{CACHE}/uv",
    "POETRY_CACHE_DIR": f"{CACHE}/poetry",
    "npm_config_cache": f"{CACHE}/npm",
    "CARGO_HOME": f"{CACHE}/cargo",
    "GOMODCACHE": f"{CACHE}/go/mod",
    "GOCACHE": f"{CACHE}/go/build",
}
"""Where each tool keeps what it has downloaded: in a volume, so that a new box downloads nothing twice."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """The settings of a container. `frame` and `limits` are digests of those that need another container."""

    name: str
    lane: str
    owner: ImageOwner
    workdir: str = "/workspace"
    user: str = ""
    python: str = ""
    network: str = "on"
    memory: str = ""
    cpus: float = 0.0
    pids: int = 4096
    hardened: bool = False
    ports: tuple[int, ...] = ()
    cache_volume: str = ""
    ca_bundle: bytes = b""

    @property
    def frame(self) -> str:
        """Where the content lies and whose it is: content made under another cannot be carried over."""
        return _digest(self.workdir, self.user)

    @property
    def limits(self) -> str:
        """What the container may do: the content goes on in a container that may do something else."""
        parts = (self.network, self.memory, self.cpus, self.pids, self.hardened, self.ports, self.cache_volume)
        return _digest(*parts)

    @property
    def digest(self) -> str:
        return f"{self.frame}.{self.limits}"


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def create_container(
    client: docker.APIClient, spec: ContainerSpec, origin: BoxOrigin, image: str, name: str, note: Note
) -> str:
    """A container of that image, filled and not yet started; its id."""
    if spec.cache_volume:
        client.create_volume(spec.cache_volume, labels={**spec.owner.labels, labels.VERSION: __version__})
    for command, files in KEEP_ALIVE.items():
        made = _make(client, spec, origin, image, name, list(command), note)
        archives = ContainerFiles(client, made)
        if not any(archives.has(file) for file in files):
            remove_container(client, made)
            continue
        try:
            create_folders(client, spec, origin.image, made)
        except BaseException:
            remove_container(client, made)
            raise
        return made
    raise BoxError(
        f"the image {origin.image} has neither `sleep` nor `python3`, so nothing can keep a box alive",
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
    """The folders we need, owned by the box's user, before anything runs in it."""
    archives = ContainerFiles(client, container)
    uid, gid = _ids(client, spec, image, archives)
    if spec.hardened and uid == 0:
        raise BoxError(
            f"box.hardened = true, but {image} runs as root",
            hint="set box.user to another user of the image, or a number such as 1000",
        )
    folders = (HOME, spec.workdir, *((CACHE,) if spec.cache_volume else ()))
    try:
        archives.make_folders(folders, uid, gid)
    except APIError as error:
        raise _start_refused(spec, error) from error


def _make(
    client: docker.APIClient,
    spec: ContainerSpec,
    origin: BoxOrigin,
    image: str,
    name: str,
    command: list[str],
    note: Note,
) -> str:
    marks = {
        **spec.owner.labels,
        labels.LANE: spec.lane,
        labels.VERSION: __version__,
        labels.SPEC: spec.digest,
        labels.BASE: origin.id,
        labels.IMAGE: origin.image,
    }

    def ask(config: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = client.create_container(
            image,
            name=name,
            entrypoint=command,
            command=[],
            user=spec.user or None,
            working_dir=spec.workdir,
            labels=marks,
            ports=list(spec.ports),
            host_config=client.create_host_config(**config),
        )
        return made

    config = host_config(spec)
    try:
        made = ask(config)
    except APIError as error:
        if NO_INIT not in str(error):
            raise
        note("the engine has no init for containers, so ended processes may linger in the box: install catatonit")
        made = ask({**config, "init": False})
    for warning in made.get("Warnings") or ():
        note(f"the engine says: {warning}")
    return str(made["Id"])


def host_config(spec: ContainerSpec) -> dict[str, Any]:
    config: dict[str, Any] = {
        "init": True,
        "cap_drop": ["ALL"] if spec.hardened else DROPPED_CAPABILITIES,
        "security_opt": ["no-new-privileges"],
        "pids_limit": spec.pids,
        "log_config": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
        # For whoever sits at this machine, and nobody else on its network.
        "port_bindings": {port: ("127.0.0.1", port) for port in spec.ports},
    }
    if spec.network == "off":
        config["network_mode"] = "none"
    elif spec.network == "setup":
        config["network_mode"] = "bridge"  # a rootless podman's usual network cannot be left again
    if spec.memory:
        config["mem_limit"] = spec.memory
    if spec.cpus:
        config["nano_cpus"] = int(spec.cpus * 1e9)
    if spec.cache_volume:
        config["binds"] = [f"{spec.cache_volume}:{CACHE}"]
    return config


def _start_refused(spec: ContainerSpec, error: Exception) -> Exception:
    """A workdir that cannot be made, or a port that is taken, is only found out when the container starts."""
    why = getattr(error, "explanation", None) or error
    taken = next((port for port in spec.ports if f":{port}" in str(error)), None)
    if taken is not None:
        return BoxError(
            f"port {taken} of this machine cannot be given to the box: {why}",
            hint="end whatever listens there, or take the port out of box.ports",
        )
    if spec.workdir not in str(error):
        return error
    return BoxError(
        f"the folder {spec.workdir} cannot be made in the box: {why}",
        hint="set box.workdir to a folder that can be written in this image",
    )


def _ids(client: docker.APIClient, spec: ContainerSpec, image: str, archives: ContainerFiles) -> tuple[int, int]:
    """Numeric user and group of whoever runs things in the box."""
    settings: Mapping[str, Any] = client.inspect_container(archives.container)["Config"]
    name, _, group = (spec.user or settings.get("User") or "0").partition(":")
    if name.isdigit():
        return int(name), int(group) if group.isdigit() else int(name)
    for line in archives.read("/etc/passwd").decode("utf-8", "replace").splitlines():
        fields = line.split(":")
        if len(fields) > 3 and fields[0] == name:
            return int(fields[2]), int(fields[3])
    raise BoxError(f"the image {image} knows no user {name!r}", hint="set box.user to a user of the image, or a number")
