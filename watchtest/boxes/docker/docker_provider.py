"""Boxes that are containers of a Docker or podman engine.

One labelled container a workspace and lane: adopted while it lives, started when it is stopped, made anew when it is
lost or grew from something else; with other limits, its content goes on in a new container. Everything the engine can
refuse becomes an error with a hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime

import docker
from docker.errors import APIError

from watchtest.boxes.box import start_command
from watchtest.boxes.docker import labels
from watchtest.boxes.docker.container_exec import ExecStream, run_attached, run_detached
from watchtest.boxes.docker.container_spec import CACHES, HOME, ContainerSpec
from watchtest.boxes.docker.container_tools import DEFAULT_PATH, ContainerFiles, DockerTools
from watchtest.boxes.docker.containers import Containers, ContainerSummary
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine
from watchtest.boxes.docker.images import Images
from watchtest.boxes.environment import has_setup
from watchtest.boxes.protocols import ExecMode, Note, OpenBox, OpenShellBox, Recipe, no_python_error
from watchtest.core.model import BoxInfo
from watchtest.errors import BY_ITSELF, BoxError, BoxGone

CANNOT_BE_LEFT = ("slirp4netns", "pasta", "host")
"""Networks of rootless podman that a container has for life."""
PING_LIMIT_S = 5
"""An engine that stalls is found out here, not in the middle of something that may rightly take a minute."""
NOT_A_PYTHON = (1, 126, 127)
"""Exit codes of a probe that was answered: too old, not executable, not there."""
CA_FILE = f"{HOME}/ca.crt"
CA_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
)


class DockerProvider:
    """The container of one workspace and lane. `dial` finds the engine; it is called again after every failure."""

    home = HOME
    shares_host_python = False
    keeps_processes = True

    def __init__(self, spec: ContainerSpec, dial: Callable[[], Engine], engine: str = "docker") -> None:
        self._spec = spec
        self._dial = dial
        self.engine = engine
        self.root = spec.workdir
        certificates = dict.fromkeys(CA_VARIABLES, CA_FILE) if spec.ca_bundle else {}
        self.variables: Mapping[str, str] = {**certificates, **(CACHES if spec.cache_volume else {})}
        self._engine: Engine | None = None
        self._containers = Containers(spec)
        self._container: str | None = None
        """The one that was opened: others with our labels may have come since."""

    # -- the box -----------------------------------------------------------------------------------

    def open(self, agent: bytes, recipe: Recipe, note: Note) -> OpenBox | OpenShellBox:
        with explained_api(self._spec.name):
            self._need_answer()
            container, how = self._containers.ensure(self._api, recipe, note)
            self._container = container
            self._refresh_certificates(container)
            python = self._find_python(container)
            info = self._info(self._api.inspect_container(container), how)
            if python is None:
                return OpenShellBox(
                    info, DockerTools(self._dial, container, user=self._spec.user, name=self._spec.name)
                )
            command = start_command(python, self.home, self.root, agent)
            stream = ExecStream(self._api, container, command, user=self._spec.user)
            try:
                stream.write(agent)
            except OSError:
                stream.close()
                raise
            return OpenBox(info, stream)

    def image_name(self, recipe: Recipe) -> str:
        return self._spec.owner.name_of(recipe.image)

    def image_id(self, recipe: Recipe) -> str:
        with explained_api(self._spec.name):
            origin = self._images().known_origin(recipe.image)
            return origin.id if origin is not None else ""

    def save_environment(self, recipe: Recipe, is_clean: bool, note: Note) -> None:
        with explained_api(self._spec.name):
            images = self._images()
            found = self._opened()
            origin = self._containers.origin_of(images, found, recipe)
            key = self._containers.environment_key(recipe)
            if images.environment(origin, key) is not None:
                return
            note("keeping the box as it is now: the next one starts from here")
            images.keep_environment(str(found["Id"]), origin, key, is_clean=is_clean)

    def allow_network(self, is_allowed: bool) -> None:
        if self._spec.network != "setup":
            return
        with explained_api(self._spec.name):
            container = str(self._opened()["Id"])
            found = self._api.inspect_container(container)
            joined = found["NetworkSettings"].get("Networks") or {}
            mode = str(found["HostConfig"].get("NetworkMode", ""))
            if not is_allowed and mode.startswith(CANNOT_BE_LEFT):
                raise BoxError(
                    f'box.network = "setup" cannot be kept: the box is on {mode}, which a container cannot leave',
                    hint='`watchtest reset` makes it on a network that it can leave; or set box.network = "off"',
                )
            if is_allowed and not joined:
                self._api.connect_container_to_network(container, "podman" if self.engine == "podman" else "bridge")
            for network in () if is_allowed else joined:
                self._api.disconnect_container_from_network(container, network, force=True)

    def execute(
        self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...], mode: ExecMode = ExecMode.ATTACHED
    ) -> int:
        with explained_api(self._spec.name):
            container = self._containers.need(self._api)
            if container["State"] != "running":
                # As it is, whatever the settings say now: a command must never cost the user their box.
                self._containers.revive(self._api, container)
            identity = str(container["Id"])
            settings = self._api.inspect_container(identity)["Config"].get("Env") or ()
            path = dict(setting.split("=", 1) for setting in settings).get("PATH", DEFAULT_PATH)
            env = {**env, "PATH": ":".join([*path_first, path])}
            return _way(mode)(self._api, identity, argv, env, self._spec.user, self.root)

    def is_prepared(self) -> bool:
        with explained_api(self._spec.name):
            found = self._containers.find(self._api)
            return found is not None and has_setup(
                ContainerFiles(self._api, found["Id"]).read(f"{HOME}/remembered.json")
            )

    def snapshot(self, recipe: Recipe, note: Note) -> str:
        with explained_api(self._spec.name):
            container = self._containers.need(self._api)
            made_from, wanted = container["Labels"].get(labels.IMAGE), self.image_name(recipe)
            if made_from != wanted:
                raise BoxError(
                    f"the box was made from {made_from}, but its image is {wanted} now: it cannot stand for that",
                    hint="run the tests once, or `watchtest reset`, so that there is a box of that image",
                )
            note("keeping the box as the environment of this workspace")
            return self._images().take_snapshot(str(container["Id"]), str(container["Labels"][labels.BASE]))

    def reset(self, with_environment: bool) -> tuple[str, ...]:
        with explained_api(self._spec.name):
            count = self._containers.remove_all(self._api)
            gone = [f"{count} container{'' if count == 1 else 's'}"]
            self._images().forget_unclean()
            if with_environment:
                gone.append(f"{self._images().forget()} kept images")
                self._remove_cache()
            return tuple(gone)

    def inspect(self) -> BoxInfo | None:
        with explained_api(self._spec.name):
            found = self._containers.find(self._api)
            return None if found is None else self._info(self._api.inspect_container(found["Id"]), ())

    def describe(self) -> tuple[str, ...]:
        with explained_api(self._spec.name):
            self._need_answer()
            assert self._engine is not None
            return self._engine.describe()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # -- the engine --------------------------------------------------------------------------------

    @property
    def _api(self) -> docker.APIClient:
        if self._engine is None:
            self._engine = self._dial()
            self.engine = self._engine.kind
        return self._engine.client

    def _need_answer(self) -> None:
        """A connection that answers now; one that does not is dropped, so that the next try dials anew."""
        client = self._api
        usual, client.timeout = client.timeout, PING_LIMIT_S
        try:
            client.ping()
        except Exception:
            self.close()
            raise
        finally:
            client.timeout = usual

    def _opened(self) -> ContainerSummary:
        found = next((one for one in self._containers.all(self._api) if one["Id"] == self._container), None)
        if found is None:
            raise BoxGone("the box was removed", hint=BY_ITSELF)
        return found

    def _images(self) -> Images:
        return Images(self._api, self._spec.owner)

    def _remove_cache(self) -> None:
        if self._spec.cache_volume:
            try:
                self._api.remove_volume(self._spec.cache_volume)
            except docker.errors.NotFound:
                return  # nothing was ever cached

    # -- what the agent needs ----------------------------------------------------------------------

    def _refresh_certificates(self, container: str) -> None:
        """The host's certificates as they are now; a renewed bundle is no reason for a new box."""
        bundle = self._spec.ca_bundle
        archives = ContainerFiles(self._api, container)
        if bundle and archives.read(CA_FILE) != bundle:
            archives.write(CA_FILE, bundle)

    def _find_python(self, container: str) -> str | None:
        """The interpreter for the agent: the one given, else the first that answers; None where a shell must do."""
        candidates = [self._spec.python] if self._spec.python else ["python3", "python", "/usr/local/bin/python3"]
        probe = "import sys; sys.exit(sys.version_info < (3, 8))"
        for python in candidates:
            tried = self._api.exec_create(container, [python, "-I", "-c", probe])
            try:
                self._api.exec_start(tried["Id"])
            except APIError as error:
                if error.status_code != 400 and "not found" not in str(error) and "no such file" not in str(error):
                    raise  # docker answers with an exit code, podman refuses to start what is not there
                continue
            code = self._api.exec_inspect(tried["Id"])["ExitCode"]
            if code == 0:
                return python
            if code not in NOT_A_PYTHON:
                # The connection was cut or the box stopped: that says nothing about the image.
                raise BoxGone(f"the box was lost while its Python was looked for (exit code {code})", hint=BY_ITSELF)
        if self._spec.python or not ContainerFiles(self._api, container).has("/bin/sh"):
            raise no_python_error()
        return None

    def _info(self, found: ContainerSummary, notes: tuple[str, ...]) -> BoxInfo:
        return BoxInfo(
            engine=self.engine,
            id=found["Id"],
            image=(found["Config"].get("Labels") or {}).get(labels.IMAGE) or found["Config"].get("Image", ""),
            state=found["State"]["Status"],
            since=_epoch(str(found["State"].get("StartedAt", ""))),
            restarts=self._containers.restarts,
            notes=notes,
            origin=str((found["Config"].get("Labels") or {}).get(labels.BASE, "")),
        )


def _way(mode: ExecMode) -> Callable[..., int]:
    match mode:
        case ExecMode.ATTACHED:
            return run_attached
        case ExecMode.DETACHED:
            return run_detached
        case ExecMode.TERMINAL:
            from watchtest.boxes.docker.container_exec import (
                run_on_terminal,  # needs a Unix terminal; Windows has the others
            )

            return run_on_terminal


def _epoch(stamp: str) -> float:
    """Docker writes nanoseconds, which datetime does not read."""
    try:
        return datetime.fromisoformat(re.sub(r"\.(\d{1,6})\d*", r".\1", stamp)).timestamp()
    except ValueError:
        return 0.0
