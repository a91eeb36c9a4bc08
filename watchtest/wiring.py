"""From settings to concrete parts: which place, which source, which pipeline. Builds; runs nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watchtest.boxes.box import Box
from watchtest.boxes.docker.container_spec import ContainerSpec
from watchtest.boxes.docker.docker_provider import DockerPlace
from watchtest.boxes.docker.engines import Engine, connect, find_engine
from watchtest.boxes.docker.images import Owner
from watchtest.boxes.environment import Environment
from watchtest.boxes.local.local_provider import LocalPlace, LocalSpec
from watchtest.boxes.protocols import Limits, Place
from watchtest.boxes.recipe.recipe import RecipeWish
from watchtest.boxes.service_keys import Check, Definition
from watchtest.boxes.services import Services
from watchtest.config import Config, Ready, RunnerChoice, Service
from watchtest.core.model import Lane, Policy
from watchtest.errors import ConfigError, EngineError
from watchtest.execution import AnyRunner, Testing
from watchtest.pipeline import Pipeline, Source
from watchtest.runners.detect import Choosing
from watchtest.runners.pytest import Pytest
from watchtest.runners.registry import MAKERS
from watchtest.runners.runner import RunnerWish
from watchtest.runners.unittest import Unittest
from watchtest.selection.selector import Pattern, Selector
from watchtest.sources.git_tree import GitTree, TreeId
from watchtest.sources.globs import specification
from watchtest.sources.worktree import Worktree
from watchtest.workspace import manual_changes as byhand
from watchtest.workspace.folder import FOLDER, machine_id
from watchtest.workspace.shrink_consent import take_acceptance

log = logging.getLogger(__name__)

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")
CONTAINER_KEYS = ("user", "memory", "cpus", "pids", "hardened", "ports")
"""Keys of `box` that the local box cannot obey."""
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Folders:
    """Where this user's system keeps things."""

    cache: Path
    state: Path
    runtime: tuple[Path, ...] = ()
    """For sockets, the best first."""


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
    # With the machine: on an engine that several share, the same path is somebody else's workspace.
    identity = f"{machine_id()} {workspace}".encode("utf-8", "surrogateescape")
    return f"{name}-{hashlib.sha256(identity).hexdigest()[:8]}"


def maps_folder(state: Path, workspace: Path) -> Path:
    """Where it is kept what the tests of a workspace touch."""
    return state / "maps" / workspace_key(workspace)


def choose_place(setting: Setting, owner: str, say: Callable[[str], None]) -> Place:
    """The box of a lane, or of the gate; `auto` means a container wherever there is an engine."""
    wish = setting.config.box.engine
    if wish == "local":
        return local_place(setting, owner)
    if wish != "auto":
        return docker_place(setting, owner, lambda: find_engine(setting.environ, wish), wish)
    try:
        found = find_engine(setting.environ, wish)
    except EngineError as error:
        say(f"no container engine ({error.message}): tests run in the local box")
        return local_place(setting, owner)
    found.close()
    for miss in found.passed_over:
        say(f"{found.describe()[0]} makes the box, because {miss}")
    # From now on this one and no other: a box must not move to another engine while its own is away for a moment.
    return docker_place(setting, owner, lambda: connect(found.at), found.kind)


def docker_place(setting: Setting, lane: str, dial: Callable[[], Engine], engine: str) -> DockerPlace:
    box = setting.config.box
    key = workspace_key(setting.workspace)
    if box.ports and box.network != "on":
        raise ConfigError(
            f'box.ports = {list(box.ports)}: a box with box.network = "{box.network}" has no ports',
            hint='set box.network = "on", or take out box.ports',
        )
    spec = ContainerSpec(
        name=f"watchtest-{key}-{lane}",
        lane=lane,
        owner=Owner(str(setting.workspace), machine_id(), f"watchtest/{key}"),
        workdir=box.workdir,
        user=box.user,
        python=box.python,
        network=box.network,
        memory=box.memory,
        cpus=box.cpus,
        pids=box.pids,
        hardened=box.hardened,
        # One box can have a port of this machine; it is the one of the lane people look at.
        ports=box.ports if lane == Lane.SAVE else (),
        cache_volume=f"watchtest-{key}-cache" if box.cache else "",
        ca_bundle=ca_bundle(box.ca, setting.environ),
    )
    return DockerPlace(spec, dial, engine)


def local_place(setting: Setting, owner: str) -> LocalPlace:
    box = setting.config.box
    ca_bundle(box.ca, setting.environ)  # a file that cannot be read is said now, not by pip later
    spec = LocalSpec(
        folder=setting.folders.cache / "boxes" / f"{workspace_key(setting.workspace)}-{owner}",
        workspace=str(setting.workspace),
        python=box.python,
        sandbox=box.sandbox,
        network=box.network,
        certificates=box.ca,
        without_effect=tuple(f"box.{key}" for key in CONTAINER_KEYS if key in box.model_fields_set),
    )
    return LocalPlace(spec, setting.environ)


def recipe_wish(setting: Setting, source: Source, choosing: Choosing | None = None) -> RecipeWish:
    """`choosing`: who finds the runners of that source, where somebody else asks, too."""
    box = setting.config.box
    choosing = choosing or build_choosing(setting, source)
    return RecipeWish(
        host_python=sys.version_info[:2],
        dependencies=box.dependencies,
        runs_pytest=lambda snapshot: any(wish.kind == "pytest" for wish in choosing.wishes(snapshot)),
        image=box.image,
        dockerfile=box.dockerfile,
        setup=box.setup,
    )


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


def settings_digest(setting: Setting) -> str:
    """Of the settings that a verdict depends on, beside what the box is made of."""
    config = setting.config
    box = (config.box.python, config.box.user, config.box.network)
    parts = (*box, config.runner.args, config.runners, config.services)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:8]


def build_environment(setting: Setting, place: Place, lane: str = Lane.SAVE) -> Environment:
    box, runner = setting.config.box, setting.config.runner
    carried = {name: setting.environ[name] for name in box.environment if name in setting.environ}
    return Environment(
        place,
        timeout_s=box.setup_timeout_s,
        grace_s=runner.grace_s,
        python=box.python,
        env=carried,
        # Commands of the user go to the box of the save lane.
        is_touched=lambda: lane == Lane.SAVE and byhand.is_any(setting.workspace),
    )


def build_services(setting: Setting, place: Place) -> Services:
    grace_s = setting.config.runner.grace_s
    return Services(
        tuple(_definition(service, grace_s) for service in setting.config.services),
        lambda globs: specification(globs, "services.restart_on").match_file,
        is_tied=not place.keeps_processes,
    )


def _definition(service: Service, grace_s: float) -> Definition:
    command, ready = service.command, service.ready
    return Definition(
        name=service.name,
        argv=("/bin/sh", "-c", command) if isinstance(command, str) else command,
        ready=_check(ready) if ready is not None else None,
        ready_timeout_s=ready.timeout_s if ready is not None else 0.0,
        restart_on=service.restart_on,
        env=service.env,
        restart_limit=service.restart_limit,
        grace_s=grace_s,
    )


def _check(ready: Ready) -> Check:
    if ready.tcp is not None:
        return Check("tcp", ready.tcp)
    return Check("http", ready.http) if ready.http is not None else Check("command", ready.command or "")


def policies(config: Config) -> dict[Lane, Policy]:
    """The lanes that are on, and how much each runs. With every trigger off there is still the save lane, to ask."""
    triggers = config.triggers
    wishes = {Lane.SAVE: triggers.save, Lane.STAGE: triggers.stage, Lane.COMMIT: triggers.commit}
    on = {lane: Policy(wish) for lane, wish in wishes.items() if wish != "off"}
    return on or {Lane.SAVE: Policy.OFF}


def build_pipeline(
    setting: Setting, lane: Lane, place: Place, source: Source, *, is_selecting: bool = False
) -> Pipeline:
    """`is_selecting`: its runs may leave tests out, so what tests touch has to be recorded."""
    environment = build_environment(setting, place, lane)
    choosing = build_choosing(setting, source)
    return Pipeline(
        lane=lane,
        source=source,
        box=Box(place),
        environment=environment,
        services=build_services(setting, place),
        wish=recipe_wish(setting, source, choosing),
        testing=build_testing(setting, place, environment, choosing, build_selector(setting, is_selecting)),
        settings=settings_digest(setting),
        done_by_hand=(lambda: byhand.take(setting.workspace)) if lane is Lane.SAVE else tuple,
        may_shrink=lambda: not setting.config.watch.shrink_guard or take_acceptance(setting.workspace),
    )


def build_choosing(setting: Setting, source: Source) -> Choosing:
    runner = setting.config.runner

    def make(wish: RunnerWish) -> AnyRunner:
        name = wish.name or wish.kind
        if wish.kind == "pytest":
            return Pytest((*runner.args, *wish.args), runner.workers, wish.folder, wish.env, name)
        if wish.kind == "unittest":
            return Unittest(wish.args, wish.folder, wish.env, name)
        return MAKERS[wish.kind](wish, runner.timeout_s)

    is_for_pytest = bool(runner.args) or runner.workers > 1
    return Choosing(tuple(map(_wish, setting.config.runners)), source.read, make, is_for_pytest)


def build_testing(
    setting: Setting, place: Place, environment: Environment, choosing: Choosing, selector: Selector
) -> Testing:
    runner = setting.config.runner
    return Testing(
        root=place.root,
        environment=environment,
        limits=Limits(runner.timeout_s, runner.silence_timeout_s, runner.grace_s, runner.test_timeout_s),
        warm=runner.warm,
        choose=choosing,
        selector=selector,
        is_given=bool(setting.config.runners),
    )


def build_selector(setting: Setting, is_selecting: bool) -> Selector:
    return Selector(
        mode=setting.config.selection.mode if is_selecting else "all",
        patterns=tuple(map(_pattern, setting.config.watch.rules)),
        keep_miss=lambda document: _keep_miss(setting.workspace / FOLDER, document),
    )


def _keep_miss(folder: Path, document: Mapping[str, object]) -> str:
    file = folder / f"missed-{document['run']}.json"
    try:
        file.write_text(json.dumps(document, indent=1), encoding="utf-8")
    except OSError as error:
        log.warning("%s cannot be written: %s\n%s", file, error, document)
        return "the log"
    return f"{FOLDER}/{file.name}"


def _pattern(rule: str) -> Pattern:
    globs, _, tests = (part.strip() for part in rule.partition("->"))
    return rule, specification([globs], "watch.rules").match_file, tests.rstrip("/")


def _wish(choice: RunnerChoice) -> RunnerWish:
    return RunnerWish(
        kind=choice.kind,
        name=choice.name,
        folder=choice.folder,
        args=choice.args,
        command=choice.command or (),
        junit=choice.junit,
        env=choice.env,
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
