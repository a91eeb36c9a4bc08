"""Boxes that are containers of a Docker engine. The only importer of docker-py.

One labelled container a workspace and lane: adopted while it lives, started when it is stopped, made anew when it is
lost or when the settings that made it have changed. Everything the engine can refuse becomes an error with a hint.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from watchtest import __version__
from watchtest.boxes.agentzip import start_command
from watchtest.boxes.base import Note, Opened
from watchtest.boxes.dockererrors import explained_api, explained_connection
from watchtest.boxes.dockerexec import ExecStream, run_attached
from watchtest.core.model import BoxInfo
from watchtest.errors import BoxError, ImageError

LABEL_WORKSPACE = "watchtest.workspace"
LABEL_LANE = "watchtest.lane"
LABEL_VERSION = "watchtest.version"
LABEL_SPEC = "watchtest.spec"
HOME = "/opt/watchtest"
API_TIMEOUT_S = 60
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DROPPED_CAPABILITIES = ["NET_RAW", "MKNOD", "AUDIT_WRITE", "SETFCAP"]
# Something that waits for ever in nearly every image, and where it lies; the second is for images without shell tools.
KEEP_ALIVE = {
    ("sleep", "2147483647"): ("/bin/sleep", "/usr/bin/sleep"),
    ("python3", "-c", "import signal; signal.pause()"): ("/usr/local/bin/python3", "/usr/bin/python3"),
}
CA_FILE = f"{HOME}/ca.crt"
CA_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Everything that makes a container what it is; another spec is another container."""

    name: str
    workspace: str
    lane: str
    image: str
    workdir: str
    user: str = ""
    python: str = ""
    network: str = "on"
    memory: str = ""
    cpus: float = 0.0
    pids: int = 4096
    hardened: bool = False
    ca_bundle: bytes = b""

    @property
    def digest(self) -> str:
        """Changes exactly when a container made from this would differ."""
        parts = (self.image, self.workdir, self.user, self.network, self.memory, self.cpus, self.pids, self.hardened)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


class DockerPlace:
    """The container of one workspace and lane."""

    engine = "docker"
    home = HOME
    is_shared = False

    def __init__(self, spec: ContainerSpec, environ: Mapping[str, str]) -> None:
        self._spec = spec
        self._environ = dict(environ)
        self.root = spec.workdir
        self.image = spec.image
        self.variables: Mapping[str, str] = dict.fromkeys(CA_VARIABLES, CA_FILE) if spec.ca_bundle else {}
        self._client: docker.APIClient | None = None
        self._restarts = 0

    # -- the box -----------------------------------------------------------------------------------

    def open(self, agent: bytes, note: Note) -> Opened:
        with explained_api(self._spec.name):
            container, how = self._ensure(note)
            self._refresh_certificates(container["Id"])
            python = self._find_python(container["Id"])
            info = self._info(self._api.inspect_container(container["Id"]), how)
            command = start_command(python, self.home, self.root, agent)
            stream = ExecStream(self._api, container["Id"], command, user=self._spec.user)
            try:
                stream.write(agent)
            except OSError:
                stream.close()
                raise
            return Opened(info, stream)

    def execute(self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...]) -> int:
        with explained_api(self._spec.name):
            container = self._find()
            if container is None:
                container, _ = self._ensure(lambda _text: None)
            elif container["State"] != "running":
                # As it is, whatever the settings say now: a command must never cost the user their box.
                self._revive(container)
            settings = self._api.inspect_container(container["Id"])["Config"].get("Env") or ()
            path = dict(setting.split("=", 1) for setting in settings).get("PATH", DEFAULT_PATH)
            env = {**env, "PATH": ":".join([*path_first, path])}
            return run_attached(self._api, container["Id"], argv, env, self._spec.user, self.root)

    def inspect(self) -> BoxInfo | None:
        with explained_api(self._spec.name):
            found = self._find()
            return None if found is None else self._info(self._api.inspect_container(found["Id"]), ())

    def describe(self) -> tuple[str, ...]:
        with explained_api(self._spec.name):
            version = self._api.version()
            try:
                self._api.inspect_image(self._spec.image)
                image = f"image {self._spec.image} is here"
            except ImageNotFound:
                image = f"image {self._spec.image} is not here; it is pulled when the box is made"
            return (f"Docker {version.get('Version')} (API {version.get('ApiVersion')}) at {self._api.base_url}", image)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def _api(self) -> docker.APIClient:
        if self._client is None:
            self._client = connect(self._environ)
        return self._client

    # -- finding and making ------------------------------------------------------------------------

    def _find(self) -> dict[str, Any] | None:
        """Our container, whatever its state. Of several (a creation that was killed) the newest."""
        labels = [f"{LABEL_WORKSPACE}={self._spec.workspace}", f"{LABEL_LANE}={self._spec.lane}"]
        found = self._api.containers(all=True, filters={"label": labels})
        return max(found, key=lambda container: int(container["Created"]), default=None)

    def _ensure(self, note: Note) -> tuple[dict[str, Any], tuple[str, ...]]:
        container = self._find()
        if container is None:
            return self._create(note), ("created",)
        if container["Labels"].get(LABEL_SPEC) != self._spec.digest:
            note("the box's settings have changed: making it anew")
            self._remove(container)
            return self._create(note), ("created anew: its settings have changed",)
        match container["State"]:
            case "running":
                return container, ("adopted",)
            case "paused" | "exited" | "created" as state:
                try:
                    self._revive(container)
                except APIError as error:
                    note(f"the box does not start again ({error.explanation or error}): making it anew")
                    self._remove(container)
                    return self._create(note), ("created anew: it did not start again",)
                return container, (f"started again, was {state}",)
            case state:
                note(f"the box is {state}: making it anew")
                self._remove(container)
                return self._create(note), (f"created anew: it was {state}",)

    def _revive(self, container: Mapping[str, Any]) -> None:
        if container["State"] == "paused":
            self._api.unpause(container["Id"])
            return
        if container["State"] == "created":
            self._fill(container["Id"])  # a watcher was killed between making and filling it
        self._api.start(container["Id"])
        self._restarts += 1

    def _remove(self, container: Mapping[str, Any]) -> None:
        with contextlib.suppress(NotFound):
            self._api.remove_container(container["Id"], force=True, v=True)

    def _create(self, note: Note) -> dict[str, Any]:
        self._need_image(note)
        note(f"making the box from {self._spec.image}")
        for command, files in KEEP_ALIVE.items():
            made = self._make(list(command))
            if not any(self._exists(made["Id"], file) for file in files):
                self._remove(made)
                continue
            try:
                self._fill(made["Id"])
                self._api.start(made["Id"])
            except APIError as error:
                self._remove(made)
                raise self._start_refused(error) from error
            return made
        raise BoxError(
            f"the image {self._spec.image} has neither `sleep` nor `python3`, so nothing can keep a box alive",
            hint="set box.image to an image with a shell, or with Python",
        )

    def _start_refused(self, error: Exception) -> Exception:
        """A workdir that cannot be made is only found out when the container starts."""
        if self._spec.workdir not in str(error):
            return error
        why = getattr(error, "explanation", None) or error
        return BoxError(
            f"the folder {self._spec.workdir} cannot be made in the box: {why}",
            hint="set box.workdir to a folder that can be written in this image",
        )

    def _make(self, command: list[str]) -> dict[str, Any]:
        spec = self._spec
        limits: dict[str, Any] = {"mem_limit": spec.memory} if spec.memory else {}
        if spec.cpus:
            limits["nano_cpus"] = int(spec.cpus * 1e9)
        host_config = self._api.create_host_config(
            init=True,
            cap_drop=["ALL"] if spec.hardened else DROPPED_CAPABILITIES,
            security_opt=["no-new-privileges"],
            pids_limit=spec.pids,
            network_mode="none" if spec.network == "off" else None,
            log_config={"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
            **limits,
        )
        made: dict[str, Any] = self._api.create_container(
            spec.image,
            name=spec.name,
            entrypoint=command,
            command=[],
            user=spec.user or None,
            working_dir=spec.workdir,
            labels={
                LABEL_WORKSPACE: spec.workspace,
                LABEL_LANE: spec.lane,
                LABEL_VERSION: __version__,
                LABEL_SPEC: spec.digest,
            },
            host_config=host_config,
        )
        return made

    def _refresh_certificates(self, container: str) -> None:
        """The host's certificates as they are now; a renewed bundle is no reason for a new box."""
        bundle = self._spec.ca_bundle
        if not bundle or self._text_file(container, CA_FILE).encode() == bundle:
            return
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo(CA_FILE.lstrip("/"))
            member.size, member.mode = len(bundle), 0o644
            tar.addfile(member, io.BytesIO(bundle))
        self._api.put_archive(container, "/", archive.getvalue())

    def _fill(self, container: str) -> None:
        """The folders we need, owned by the box's user, before anything runs in it."""
        uid, gid = self._ids(container)
        if self._spec.hardened and uid == 0:
            raise BoxError(
                f"box.hardened = true, but {self._spec.image} runs as root",
                hint="set box.user to another user of the image, or a number such as 1000",
            )
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for folder in (HOME, self._spec.workdir):
                for parent in [*list(PurePosixPath(folder).parents)[-2::-1], PurePosixPath(folder)]:
                    member = tarfile.TarInfo(str(parent).lstrip("/"))
                    member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
                    if str(parent) == folder:
                        member.uid, member.gid = uid, gid
                    if str(parent) == folder or not self._exists(container, str(parent)):
                        tar.addfile(member)
        try:
            self._api.put_archive(container, "/", archive.getvalue())
        except APIError as error:
            raise self._start_refused(error) from error

    def _exists(self, container: str, path: str) -> bool:
        try:
            stream, _ = self._api.get_archive(container, path)
        except NotFound:
            return False
        stream.close()
        return True

    def _ids(self, container: str) -> tuple[int, int]:
        """Numeric user and group of whoever runs things in the box."""
        user = self._spec.user or self._api.inspect_container(container)["Config"].get("User") or "0"
        name, _, group = user.partition(":")
        if name.isdigit():
            return int(name), int(group) if group.isdigit() else int(name)
        for line in self._text_file(container, "/etc/passwd").splitlines():
            fields = line.split(":")
            if len(fields) > 3 and fields[0] == name:
                return int(fields[2]), int(fields[3])
        raise BoxError(
            f"the image {self._spec.image} knows no user {name!r}",
            hint="set box.user to a user of the image, or a number",
        )

    def _text_file(self, container: str, path: str) -> str:
        try:
            stream, _ = self._api.get_archive(container, path)
        except NotFound:
            return ""
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            member = tar.extractfile(tar.getmembers()[0])
            return member.read().decode("utf-8", "replace") if member is not None else ""

    def _need_image(self, note: Note) -> None:
        try:
            self._api.inspect_image(self._spec.image)
            return
        except ImageNotFound:
            note(f"pulling {self._spec.image}")
        repository, _, tag = self._spec.image.partition("@")[0].rpartition(":")
        if not repository or "/" in tag:
            repository, tag = self._spec.image, "latest"
        try:
            for line in self._api.pull(repository, tag=tag, stream=True, decode=True):
                if "error" in line:
                    raise _no_image(self._spec.image, str(line["error"]))
        except (APIError, DockerException) as error:
            raise _no_image(self._spec.image, str(getattr(error, "explanation", None) or error)) from error

    def _find_python(self, container: str) -> str:
        """The interpreter for the agent: the one given, else the first that answers."""
        candidates = [self._spec.python] if self._spec.python else ["python3", "python", "/usr/local/bin/python3"]
        for python in candidates:
            probe = self._api.exec_create(
                container, [python, "-I", "-c", "import sys; sys.exit(sys.version_info < (3, 8))"]
            )
            self._api.exec_start(probe["Id"])
            if self._api.exec_inspect(probe["Id"])["ExitCode"] == 0:
                return python
        raise BoxError(
            f"no Python 3.8 or newer in the image {self._spec.image} (tried {', '.join(candidates)})",
            hint="set box.image to an image with Python, or box.python to its interpreter; "
            "`watchtest exec` works without",
        )

    def _info(self, found: Mapping[str, Any], notes: tuple[str, ...]) -> BoxInfo:
        started = str(found["State"].get("StartedAt", ""))
        return BoxInfo(
            engine=self.engine,
            id=found["Id"],
            image=self._spec.image,
            state=found["State"]["Status"],
            since=_epoch(started),
            restarts=self._restarts,
            notes=notes,
        )


def connect(environ: Mapping[str, str]) -> docker.APIClient:
    """A client of the engine that the environment names, which has answered a ping."""
    try:
        client = docker.APIClient(timeout=API_TIMEOUT_S, **docker.utils.kwargs_from_env(environment=dict(environ)))
        client.ping()
    except (DockerException, OSError) as error:
        raise explained_connection(error, environ.get("DOCKER_HOST", "")) from error
    return client


def _no_image(image: str, reason: str) -> ImageError:
    return ImageError(
        f"the image {image} is not here and cannot be pulled: {' '.join(reason.split())[:300]}",
        hint=f"check the name (box.image), log in to its registry, or load it: `docker pull {image}`, `docker load`",
    )


def _epoch(stamp: str) -> float:
    """Docker writes nanoseconds, which datetime does not read."""
    try:
        return datetime.fromisoformat(re.sub(r"\.(\d{1,6})\d*", r".\1", stamp)).timestamp()
    except ValueError:
        return 0.0


def remove_boxes(workspace: str, environ: Mapping[str, str]) -> int:
    """Remove every container of a workspace; how many there were."""
    client = connect(environ)
    try:
        found = client.containers(all=True, filters={"label": [f"{LABEL_WORKSPACE}={workspace}"]})
        for container in found:
            with explained_api(workspace), contextlib.suppress(NotFound):
                client.remove_container(container["Id"], force=True, v=True)
        return len(found)
    finally:
        client.close()
