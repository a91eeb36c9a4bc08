"""From settings to concrete parts: which place, which source, which pipeline. Builds; runs nothing."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watchtest.acceptance import take_acceptance
from watchtest.boxes.base import Limits, Place
from watchtest.boxes.box import Box
from watchtest.boxes.docker import ContainerSpec, DockerPlace, connect
from watchtest.boxes.environment import Environment
from watchtest.boxes.local import LocalPlace
from watchtest.config import Config
from watchtest.core.model import Lane, Policy
from watchtest.errors import ConfigError, EngineError
from watchtest.pipeline import Pipeline, Source
from watchtest.sources.gittree import GitTree, TreeId
from watchtest.sources.worktree import Worktree

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Folders:
    """Where this user's system keeps things."""

    cache: Path
    state: Path


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that comes from outside."""

    workspace: Path
    config: Config
    environ: Mapping[str, str]
    folders: Folders


# -- parts -----------------------------------------------------------------------------------------


def workspace_key(workspace: Path) -> str:
    """Short, readable, and different for every workspace of this machine."""
    name = re.sub(r"[^a-z0-9]+", "-", workspace.name.lower()).strip("-")[:30] or "workspace"
    return f"{name}-{hashlib.sha256(str(workspace).encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"


def choose_place(setting: Setting, owner: str, say: Callable[[str], None]) -> Place:
    """The box of a lane, or of the gate; `auto` means a container wherever there is an engine."""
    engine = setting.config.box.engine
    if engine == "docker":
        return docker_place(setting, owner)
    if engine == "auto":
        try:
            connect(setting.environ).close()
        except EngineError as error:
            say(f"no container engine ({error.message}): tests run in the local box")
        else:
            return docker_place(setting, owner)
    return local_place(setting, owner)


def docker_place(setting: Setting, owner: str) -> DockerPlace:
    box = setting.config.box
    spec = ContainerSpec(
        name=f"watchtest-{workspace_key(setting.workspace)}-{owner}",
        workspace=str(setting.workspace),
        lane=owner,
        image=chosen_image(box.image),
        workdir=box.workdir,
        user=box.user,
        python=box.python,
        network=box.network,
        memory=box.memory,
        cpus=box.cpus,
        pids=box.pids,
        hardened=box.hardened,
        ca_bundle=ca_bundle(box.ca, setting.environ),
    )
    return DockerPlace(spec, setting.environ)


def local_place(setting: Setting, owner: str) -> LocalPlace:
    folder = setting.folders.cache / "boxes" / f"{workspace_key(setting.workspace)}-{owner}"
    return LocalPlace(folder, setting.environ, setting.config.box.python)


def chosen_image(image: str) -> str:
    """`auto`: the official image of the Python that runs watchtest."""
    return image if image != "auto" else f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"


def ca_bundle(wish: str, environ: Mapping[str, str]) -> bytes:
    """The certificates that the host was told to trust beyond the usual: users behind a proxy need them in the box."""
    if wish == "off":
        return b""
    file = wish if wish != "auto" else next((environ[name] for name in CA_VARIABLES if environ.get(name)), "")
    if not file:
        return b""
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        if wish == "auto":
            return b""
        raise ConfigError(
            f'box.ca = "{wish}": cannot be read: {error.strerror}', hint='name a file of certificates, or use "off"'
        ) from error


def build_environment(setting: Setting, place: Place) -> Environment:
    box, runner = setting.config.box, setting.config.runner
    carried = {name: setting.environ[name] for name in box.environment if name in setting.environ}
    return Environment(place, timeout_s=box.setup_timeout_s, grace_s=runner.grace_s, python=box.python, env=carried)


def policies(config: Config) -> dict[Lane, Policy]:
    """The lanes that are on, and how much each runs. With every trigger off there is still the save lane, to ask."""
    triggers = config.triggers
    wishes = {Lane.SAVE: triggers.save, Lane.STAGE: triggers.stage, Lane.COMMIT: triggers.commit}
    on = {lane: Policy(wish) for lane, wish in wishes.items() if wish != "off"}
    return on or {Lane.SAVE: Policy.OFF}


def build_pipeline(setting: Setting, lane: Lane, place: Place, source: Source) -> Pipeline:
    runner = setting.config.runner
    return Pipeline(
        lane=lane,
        source=source,
        box=Box(place),
        environment=build_environment(setting, place),
        setup=setting.config.box.setup,
        runner_args=runner.args,
        limits=Limits(runner.timeout_s, runner.silence_timeout_s, runner.grace_s),
        may_shrink=lambda: not setting.config.watch.shrink_guard or take_acceptance(setting.workspace),
    )


def build_worktree(setting: Setting) -> Worktree:
    watch_settings = setting.config.watch
    return Worktree(
        setting.workspace,
        ignore=watch_settings.ignore,
        include=watch_settings.include,
        max_file_bytes=watch_settings.max_file_mb * MEBIBYTE,
        environ=setting.environ,
    )


def build_git_tree(setting: Setting, which: Literal["index", "head"] | TreeId, *, index: Path | None = None) -> GitTree:
    limit = setting.config.watch.max_file_mb * MEBIBYTE
    return GitTree(setting.workspace, which, environ=setting.environ, max_file_bytes=limit, index=index)
