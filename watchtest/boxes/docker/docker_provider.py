"""Boxes that are containers of a Docker or podman engine.

Each lane of a workspace has one labelled container. It is adopted while it runs, restarted if it has stopped, and
recreated if it is lost or its image has changed. If only its limits change, a new container takes over the content.
Every error of the engine becomes an error with a hint.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import docker
from docker.errors import APIError

from watchtest.boxes.box import RECREATED, start_command
from watchtest.boxes.ca_bundle import CA_VARIABLES
from watchtest.boxes.docker import labels
from watchtest.boxes.docker.container_exec import (
    ContainerCommand,
    ContainerFiles,
    ExecConnection,
    ExecStream,
    path_variable,
)
from watchtest.boxes.docker.container_spec import CACHES, HOME, ContainerSpec, remove_container
from watchtest.boxes.docker.container_tools import DockerTools
from watchtest.boxes.docker.containers import Containers, ContainerSummary, builder_lane
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine, parse_time
from watchtest.boxes.docker.images import Images
from watchtest.boxes.environment import completed_setup
from watchtest.boxes.protocols import ExecMode, Note, OpenBox, OpenShellBox, Recipe, no_python_error
from watchtest.core.model import BoxInfo
from watchtest.errors import BY_ITSELF, BoxDamaged, BoxError, BoxGone

PERMANENT_NETWORKS = ("slirp4netns", "pasta", "host")
"""Networks that a container cannot leave; the first two are those of rootless podman."""
PING_LIMIT_S = 5
"""Detects an engine that hangs early, before a call that may legitimately take a minute."""
NOT_A_PYTHON = (1, 126, 127)
"""Exit codes of a probe: the interpreter is too old, not executable, or missing."""
CA_FILE = f"{HOME}/ca.crt"
REVIVE = "import os, signal; os.kill(-1, signal.SIGCONT)"


class DockerProvider:
    """Provides the container of one workspace and lane. `connect` finds the engine, again after every failure."""

    home = HOME
    shares_host_python = False
    restores_from_image = True
    keeps_processes = True

    def __init__(self, spec: ContainerSpec, connect: Callable[[], Engine], engine: str = "docker") -> None:
        self._spec = spec
        self._connect = connect
        self.engine = engine
        self.root = spec.workdir
        certificates = dict.fromkeys(CA_VARIABLES, CA_FILE) if spec.ca_bundle else {}
        self.variables: Mapping[str, str] = {**certificates, **(CACHES if spec.cache_volume else {})}
        self._engine: Engine | None = None
        self._containers = Containers(spec)
        self._container: str | None = None
        """The container that was opened; others with our labels may have appeared since."""
        self._agent_python = ""

    # -- the box -----------------------------------------------------------------------------------

    def open(self, agent: bytes, recipe: Recipe, note: Note) -> OpenBox | OpenShellBox:
        with explained_api(self._spec.name):
            self._ping()
            container, how, is_new = self._containers.ensure(self._api, recipe, note)
            self._container = container
            bundle, files = self._spec.ca_bundle, ContainerFiles(self._api, container)
            if bundle and files.read(CA_FILE) != bundle:
                files.write(CA_FILE, bundle)  # a renewed bundle does not require a new box
            python = self._find_python(container)
            info = replace(self._info(self._api.inspect_container(container)), notes=(how,), is_new=is_new)
            self._agent_python = python or ""
            if python is None and not is_new and _had_python(files.read(f"{HOME}/remembered.json")):
                raise BoxDamaged("the Python of the box is gone", hint=RECREATED)
            if python is None:
                return OpenShellBox(
                    info, DockerTools(self._connect, container, user=self._spec.user, name=self._spec.name)
                )
            command = start_command(python, self.home, self.root, agent)
            stream = ExecStream(ExecConnection(self._api, container, command, user=self._spec.user))
            try:
                stream.write(agent)
            except OSError:
                stream.close()
                raise
            return OpenBox(info, stream)

    def local_images(self) -> frozenset[str]:
        with explained_api(self._spec.name):
            return self._images().local_names()

    def image_name(self, recipe: Recipe) -> str:
        return self._spec.owner.name_of(recipe.image)

    def image_id(self, recipe: Recipe) -> str:
        with explained_api(self._spec.name):
            origin = self._images().local_origin(recipe.image)
            return origin.id if origin is not None else ""

    def save_environment(self, recipe: Recipe, note: Note) -> None:
        with explained_api(self._spec.name):
            images = self._images()
            found = self._open_container()
            origin = self._containers.origin_of(images, found, recipe)
            key = self._containers.environment_key(recipe)
            if images.environment(origin, key) is not None:
                return
            note("saving the box for the next one")
            images.save_environment(str(found["Id"]), origin, key)

    def has_environment(self, recipe: Recipe, key: str) -> bool:
        with explained_api(self._spec.name):
            images = self._images()
            origin = images.local_origin(recipe.image)
            return (
                origin is not None and images.environment(origin, self._containers.environment_key(recipe)) is not None
            )

    def renew(self, recipe: Recipe, key: str) -> None:
        with explained_api(self._spec.name):
            self._containers.remove_own(self._api)

    def builder(self) -> DockerProvider:
        lane = builder_lane(self._spec.lane)
        spec = replace(self._spec, name=f"{self._spec.name}-build", lane=lane, ports=())
        return DockerProvider(spec, self._connect, self.engine)

    def free(self) -> None:
        with explained_api(self._spec.name):
            self._containers.remove_own(self._api)

    def allow_network(self, is_allowed: bool) -> None:
        if self._spec.network != "setup":
            return
        with explained_api(self._spec.name):
            container = str(self._open_container()["Id"])
            found = self._api.inspect_container(container)
            joined = found["NetworkSettings"].get("Networks") or {}
            mode = str(found["HostConfig"].get("NetworkMode", ""))
            if not is_allowed and mode.startswith(PERMANENT_NETWORKS):
                raise BoxError(
                    f'box.network = "setup" is impossible: the box uses {mode}, a network that it cannot leave',
                    hint='`watchtest reset` recreates it on another network; or set box.network = "off"',
                )
            if is_allowed and not joined:
                self._api.connect_container_to_network(container, "podman" if self.engine == "podman" else "bridge")
            for network in () if is_allowed else joined:
                self._api.disconnect_container_from_network(container, network, force=True)

    def execute(
        self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...], mode: ExecMode = ExecMode.ATTACHED
    ) -> int:
        with explained_api(self._spec.name):
            container = self._containers.require(self._api)
            if container["State"] != "running":
                # Restart it as it is, even if the settings have changed: a command must never cost the user their box.
                self._containers.restart(self._api, container)
            identity = str(container["Id"])
            path = path_variable(self._api.inspect_container(identity))
            env = {**env, "PATH": ":".join([*path_first, path])}
            command = ContainerCommand(self._api, identity, argv, env, self._spec.user, self.root)
            match mode:
                case ExecMode.ATTACHED:
                    return command.run_attached()
                case ExecMode.TERMINAL:
                    return command.run_on_terminal()
                case ExecMode.DETACHED:
                    return command.run_detached()

    def is_prepared(self) -> bool:
        with explained_api(self._spec.name):
            found = self._containers.find(self._api)
            if found is None:
                return False
            saved_state = ContainerFiles(self._api, found["Id"]).read(f"{HOME}/remembered.json") or b""
            return bool(completed_setup(saved_state))

    def snapshot(self, recipe: Recipe, note: Note) -> str:
        with explained_api(self._spec.name):
            container = self._containers.require(self._api)
            actual, configured = container["Labels"].get(labels.IMAGE), self.image_name(recipe)
            if actual != configured:
                raise BoxError(
                    f"the box was created from {actual}, but the image is now {configured}",
                    hint="run the tests once, or `watchtest reset`, to get a box of that image",
                )
            note("saving the box as the environment of this workspace")
            return self._images().take_snapshot(str(container["Id"]), str(container["Labels"][labels.BASE]))

    def reset(self, with_environment: bool) -> tuple[str, ...]:
        with explained_api(self._spec.name):
            count = self._containers.remove_all(self._api)
            removed = [f"{count} container{'' if count == 1 else 's'}"]
            if with_environment:
                count = self._images().remove_all()
                removed.append(f"{count} saved image{'' if count == 1 else 's'}")
                if self._spec.cache_volume:
                    with contextlib.suppress(docker.errors.NotFound):  # nothing has been cached yet
                        self._api.remove_volume(self._spec.cache_volume)
            return tuple(removed)

    def inspect(self) -> BoxInfo | None:
        with explained_api(self._spec.name):
            found = self._containers.find(self._api)
            return None if found is None else self._info(self._api.inspect_container(found["Id"]))

    def describe(self) -> tuple[str, ...]:
        with explained_api(self._spec.name):
            self._ping()
            assert self._engine is not None
            return (str(self._engine),)

    # -- repair ------------------------------------------------------------------------------------

    def is_stopped(self) -> bool:
        with self._other_connection() as client:
            columns = "pid,state" if self.engine == "podman" else "-eo pid,stat"
            found = client.top(self._container or "", ps_args=columns)
            return any(str(row[1]).startswith("T") for row in found["Processes"])

    def revive(self) -> None:
        command = [self._agent_python, "-I", "-c", REVIVE]
        with self._other_connection() as client:
            created = client.exec_create(self._container or "", command, user=self._spec.user)
            client.exec_start(created["Id"])

    def kill(self) -> None:
        with self._other_connection() as client:
            found = self._containers.find(client)
            if found is not None and found["State"] in ("running", "paused"):
                client.kill(found["Id"])

    def discard(self) -> None:
        with explained_api(self._spec.name):
            found = self._containers.find(self._api)
            if found is not None:
                remove_container(self._api, str(found["Id"]))

    @contextlib.contextmanager
    def _other_connection(self) -> Iterator[docker.APIClient]:
        """Connect anew: another thread may be using, or waiting for, our own connection."""
        with explained_api(self._spec.name), contextlib.closing(self._connect()) as engine:
            yield engine.client

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # -- the engine --------------------------------------------------------------------------------

    @property
    def _api(self) -> docker.APIClient:
        if self._engine is None:
            self._engine = self._connect()
            self.engine = self._engine.kind
        return self._engine.client

    def _ping(self) -> None:
        """Raise if the engine does not answer, and close the connection, so that the next call reconnects."""
        client = self._api
        usual, client.timeout = client.timeout, PING_LIMIT_S
        try:
            client.ping()
        except Exception:
            self.close()
            raise
        finally:
            client.timeout = usual

    def _open_container(self) -> ContainerSummary:
        found = next((one for one in self._containers.all(self._api) if one["Id"] == self._container), None)
        if found is None:
            raise BoxGone("the box was removed", hint=BY_ITSELF)
        return found

    def _images(self) -> Images:
        return Images(self._api, self._spec.owner)

    # -- what the agent needs ----------------------------------------------------------------------

    def _find_python(self, container: str) -> str | None:
        """Return an interpreter for the agent: the configured one or the first that works; None if there is none."""
        candidates = [self._spec.python] if self._spec.python else ["python3", "python", "/usr/local/bin/python3"]
        probe = "import sys; sys.exit(sys.version_info < (3, 8))"
        for python in candidates:
            tried = self._api.exec_create(container, [python, "-I", "-c", probe])
            try:
                self._api.exec_start(tried["Id"])
            except APIError as error:
                if error.status_code != 400 and "not found" not in str(error) and "no such file" not in str(error):
                    raise  # Docker reports a missing program by an exit code, podman by an error
                continue
            code = self._api.exec_inspect(tried["Id"])["ExitCode"]
            if code == 0:
                return python
            if code not in NOT_A_PYTHON:
                # The connection broke or the box stopped; the image may still have Python.
                raise BoxGone(f"lost the box while looking for its Python (exit code {code})", hint=BY_ITSELF)
        if self._spec.python or not ContainerFiles(self._api, container).has("/bin/sh"):
            raise no_python_error()
        return None

    def _info(self, found: ContainerSummary) -> BoxInfo:
        return BoxInfo(
            engine=self.engine,
            id=found["Id"],
            image=(found["Config"].get("Labels") or {}).get(labels.IMAGE) or found["Config"].get("Image", ""),
            state=found["State"]["Status"],
            since=parse_time(str(found["State"].get("StartedAt", ""))),
            restarts=self._containers.restarts,
            origin=str((found["Config"].get("Labels") or {}).get(labels.BASE, "")),
        )


def _had_python(saved_state: bytes | None) -> bool:
    """Return whether setup has found a Python in a box with this saved state."""
    try:
        return bool(json.loads(saved_state or b"{}").get("python"))
    except (ValueError, AttributeError):
        return False  # damaged, too
