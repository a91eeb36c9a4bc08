"""Builds the parts of a lane from the settings: box provider, source, runners, selector, pipeline. Runs nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from watchtest.boxes.box import Box
from watchtest.boxes.ca_bundle import ca_bundle
from watchtest.boxes.docker.container_limits import ConfiguredLimits
from watchtest.boxes.docker.container_spec import ContainerSpec
from watchtest.boxes.docker.docker_provider import DockerProvider
from watchtest.boxes.docker.engines import Engine, connect, find_engine
from watchtest.boxes.docker.images import ImageOwner
from watchtest.boxes.environment import Environment
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec, sandbox_lack
from watchtest.boxes.protocols import BoxProvider, JobLimits, Recipe
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.recipe_maker import RecipeMaker
from watchtest.boxes.service_restart import ReadyCheck, ServiceDefinition
from watchtest.boxes.services import Services
from watchtest.config import Config, Project, ReadySettings, ServiceSettings
from watchtest.config.keys import RunnerEntry
from watchtest.config.toml_literal import inline
from watchtest.core.model import Lane, Policy, Snapshot
from watchtest.errors import ConfigError, NoEngine, WorkspaceError
from watchtest.execution import TestExecutor
from watchtest.pipeline import Pipeline, SourceTree
from watchtest.runners.detect import RunnerDetector
from watchtest.runners.registry import RunnerDefaults
from watchtest.runners.runner import RunnerSpec
from watchtest.selection.selector import Pattern, Selector
from watchtest.sources.box_repository import BoxRepository
from watchtest.sources.git_tree import GitTree, TreeId
from watchtest.sources.globs import specification
from watchtest.sources.worktree import Worktree
from watchtest.workspace import manual_changes
from watchtest.workspace.added_dependencies import AddedDependencies
from watchtest.workspace.consent import Boxes, ConsentFile, HostRequest, require_consent
from watchtest.workspace.folder import FOLDER, OwnFolder
from watchtest.workspace.machine import machine_id, workspace_digest
from watchtest.workspace.shrink_guard import check_shrinkage

log = logging.getLogger(__name__)

CONTAINER_KEYS = ("user", "memory", "cpus", "pids", "hardened", "ports")
"""Keys of `box` that have no effect in the local box."""
MEBIBYTE = 1024 * 1024


def workspace_key(workspace: Path) -> str:
    """Return a short, readable name that is unique among the workspaces of this machine."""
    name = re.sub(r"[^a-z0-9]+", "-", workspace.name.lower()).strip("-")[:30] or "workspace"
    return f"{name}-{workspace_digest(workspace)[:8]}"


def maps_folder(state: Path, workspace: Path) -> Path:
    """Return the folder of the workspace's test maps."""
    return state / "maps" / workspace_key(workspace)


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    """What runs the boxes. `connect` is None for the local box."""

    kind: str
    connect: Callable[[], Engine] | None


def choose_provider(project: Project, owner: str, say: Callable[[str], None]) -> BoxProvider:
    """Return the box provider of a lane or of the gate.

    Everything that reaches the host begins with it, so this raises NeedsConsent if the project asks for more than the
    user allows.
    """
    engine = choose_engine(project, say)
    if not project.is_trusted:
        consents = ConsentFile(project.dirs.state, project.workspace)
        require_consent(consents, host_requests(project, engine), trust_command(project))
    return provider_of(project, owner, engine)


def choose_engine(project: Project, say: Callable[[str], None]) -> ChosenEngine:
    """Return the engine of the settings; `auto` prefers a container if an engine is running."""
    choice = project.config.box.engine
    if choice == "local":
        return LOCAL
    if choice != "auto":
        return ChosenEngine(choice, lambda: find_engine(project.environ, choice))
    try:
        found = find_engine(project.environ, choice)
    except NoEngine as error:
        say(f"no container engine ({error.message}): tests run in the local box")
        return LOCAL
    found.close()
    for miss in found.skipped:
        say(f"the box runs in {found}, because {miss}")
    # Stay with this engine: a box must not move to another one while its own is unavailable for a moment.
    return ChosenEngine(found.kind, lambda: connect(found.address))


LOCAL = ChosenEngine("local", None)


def provider_of(project: Project, owner: str, engine: ChosenEngine) -> BoxProvider:
    """Return the provider without asking for consent, for commands that only look at boxes."""
    if engine.connect is None:
        return local_provider(project, owner)
    return docker_provider(project, owner, engine.connect, engine.kind)


def check_consent(project: Project) -> None:
    """Raise NeedsConsent if creating the boxes of this project needs one."""
    choose_provider(project, Lane.SAVE, log.info).close()


def host_requests(project: Project, engine: ChosenEngine) -> tuple[HostRequest, ...]:
    """Return what the project asks of the host if its tests run with this engine."""
    kinds, found = {Boxes.ANY}, list(project.requests)
    if engine is LOCAL:
        kinds.add(Boxes.LOCAL)
        lack = sandbox_lack(project.config.box.sandbox, project.environ)
        if lack and not _is_local_by_user(project):
            kinds.add(Boxes.BARE)
            found.append(_bare_host(project, lack))
    unique = {request.digest: request for request in reversed(found) if request.boxes in kinds}
    return tuple(reversed(unique.values()))


def _bare_host(project: Project, lack: str) -> HostRequest:
    no_engine = " and no container engine is running" if project.config.box.engine == "auto" else ""
    why = f"setup and tests run on your machine, as you: {lack}{no_engine}"
    return HostRequest("box.sandbox", inline(project.config.box.sandbox), "this machine", why)


def _is_local_by_user(project: Project) -> bool:
    asked = {request.key for request in project.requests}
    return project.config.box.engine == "local" and "box.engine" not in asked


def trust_command(project: Project) -> str:
    """Return the command that grants what this project asks for."""
    engine = " --engine local" if _is_local_by_user(project) else ""
    return f"watchtest -C {shlex.quote(str(project.workspace))} trust{engine}"


def docker_provider(project: Project, lane: str, connect_engine: Callable[[], Engine], engine: str) -> DockerProvider:
    box = project.config.box
    key = workspace_key(project.workspace)
    if box.ports and box.network != "on":
        raise ConfigError(
            f'box.ports = {list(box.ports)}: a box with box.network = "{box.network}" has no ports',
            hint='set box.network = "on", or take out box.ports',
        )
    spec = ContainerSpec(
        name=f"watchtest-{key}-{lane}",
        lane=lane,
        owner=ImageOwner(str(project.workspace), machine_id(), f"watchtest/{key}"),
        workdir=box.workdir,
        user=box.user,
        python=box.python,
        network=box.network,
        limits=ConfiguredLimits(box.memory, box.cpus, box.pids),
        hardened=box.hardened,
        # Only one box can bind a port of this machine: that of the save lane, which users look at.
        ports=box.ports if lane == Lane.SAVE else (),
        cache_volume=f"watchtest-{key}-cache" if box.cache else "",
        ca_bundle=ca_bundle(box.ca, project.environ),
    )
    return DockerProvider(spec, connect_engine, engine)


def local_provider(project: Project, owner: str) -> LocalProvider:
    box = project.config.box
    ca_bundle(box.ca, project.environ)  # report an unreadable file now instead of in pip
    spec = LocalSpec(
        folder=project.dirs.cache / "boxes" / f"{workspace_key(project.workspace)}-{owner}",
        workspace=str(project.workspace),
        python=box.python,
        sandbox=box.sandbox,
        network=box.network,
        certificates=box.ca,
        without_effect=tuple(f"box.{key}" for key in CONTAINER_KEYS if key in box.model_fields_set),
    )
    return LocalProvider(spec, project.environ)


def project_recipe(
    project: Project, source: SourceTree, snapshot: Snapshot, provider: BoxProvider | None = None
) -> Recipe:
    """Return the recipe of a box for this snapshot of the source; without a provider, all images count as missing."""
    return _recipe_maker(project, build_detector(project, source), provider).recipe(snapshot, source.read)


def _recipe_maker(project: Project, detector: RunnerDetector, provider: BoxProvider | None) -> RecipeMaker:
    settings = _recipe_input(project, detector)
    return RecipeMaker(settings, added_dependencies(project), provider.local_images if provider else frozenset)


def added_dependencies(project: Project) -> AddedDependencies:
    """Return what tests of this workspace turned out to need."""
    return AddedDependencies(project.dirs.state / "added-dependencies" / f"{workspace_key(project.workspace)}.json")


def _recipe_input(project: Project, detector: RunnerDetector) -> RecipeInput:
    box = project.config.box
    return RecipeInput(
        host_python=sys.version_info[:2],
        dependencies=box.dependencies,
        runs_pytest=lambda snapshot: any(spec.kind == "pytest" for spec in detector.specs(snapshot)),
        image=box.image,
        dockerfile=box.dockerfile,
        setup=box.setup,
        has_repository=box.git,
    )


def settings_digest(project: Project) -> str:
    """Return a digest of the settings that affect verdicts, except the recipe of the box."""
    config = project.config
    box = (config.box.python, config.box.user, config.box.network)
    repository = () if config.box.git else ("no git",)
    parts = (*box, *repository, config.runner.args, config.runners, config.services)
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:8]


def build_environment(project: Project, provider: BoxProvider, lane: str = Lane.SAVE) -> Environment:
    box, runner = project.config.box, project.config.runner
    carried = {name: project.environ[name] for name in box.environment if name in project.environ}
    return Environment(
        provider,
        timeout_s=box.setup_timeout_s,
        grace_s=runner.grace_s,
        python=box.python,
        env=carried,
        # Commands of the user run in the box of the save lane.
        manual_changes=partial(manual_changes.changes, project.workspace) if lane == Lane.SAVE else tuple,
        record_change=partial(manual_changes.record_change, project.workspace),
    )


def build_services(project: Project, provider: BoxProvider) -> Services:
    grace_s = project.config.runner.grace_s
    return Services(
        tuple(_definition(service, grace_s) for service in project.config.services),
        lambda globs: specification(globs, "services.restart_on").match_file,
        is_tied=not provider.keeps_processes,
    )


def _definition(service: ServiceSettings, grace_s: float) -> ServiceDefinition:
    command, ready = service.command, service.ready
    return ServiceDefinition(
        name=service.name,
        argv=("/bin/sh", "-c", command) if isinstance(command, str) else command,
        ready=_check(ready) if ready is not None else None,
        ready_timeout_s=ready.timeout_s if ready is not None else 0.0,
        restart_on=service.restart_on,
        env=service.env,
        restart_limit=service.restart_limit,
        grace_s=grace_s,
    )


def _check(ready: ReadySettings) -> ReadyCheck:
    if ready.tcp is not None:
        return ReadyCheck("tcp", ready.tcp)
    return ReadyCheck("http", ready.http) if ready.http is not None else ReadyCheck("command", ready.command or "")


def policies(config: Config) -> dict[Lane, Policy]:
    """Return the policies of the lanes that are on. If all triggers are off, the save lane still accepts requests."""
    triggers = config.triggers
    configured = {Lane.SAVE: triggers.save, Lane.STAGE: triggers.stage, Lane.COMMIT: triggers.commit}
    on = {lane: Policy(policy) for lane, policy in configured.items() if policy != "off"}
    return on or {Lane.SAVE: Policy.OFF}


def build_pipeline(
    project: Project,
    lane: Lane,
    provider: BoxProvider,
    source: SourceTree,
    *,
    is_selecting: bool = False,
    build_lock: asyncio.Lock | None = None,
) -> Pipeline:
    """Build the pipeline of a lane. `is_selecting`: runs may leave tests out, so dependencies must be recorded.

    With a `build_lock`, which the lanes share, tests go on in an outdated box while a clean environment is built.
    """
    environment = build_environment(project, provider, lane)
    detector = build_detector(project, source)
    return Pipeline(
        lane=lane,
        source=source,
        box=Box(provider),
        environment=environment,
        services=build_services(project, provider),
        recipes=_recipe_maker(project, detector, provider),
        executor=build_executor(project, provider, environment, detector, build_selector(project, is_selecting)),
        settings=settings_digest(project),
        build_lock=build_lock,
        lost_changes=(lambda: manual_changes.take_changes(project.workspace)) if lane is Lane.SAVE else tuple,
        repository=_repository(project, lane),
        check_shrinkage=(
            partial(check_shrinkage, project.workspace, lane)
            if project.config.watch.shrink_guard
            else lambda in_box, in_source: None
        ),
    )


def _repository(project: Project, lane: Lane) -> BoxRepository | None:
    if not project.config.box.git:
        return None
    return BoxRepository(project.workspace, "head" if lane is Lane.COMMIT else "index", project.environ)


def build_detector(project: Project, source: SourceTree) -> RunnerDetector:
    runner = project.config.runner
    defaults = RunnerDefaults(runner.args, runner.workers, runner.timeout_s)
    return RunnerDetector(tuple(map(_runner_spec, project.config.runners)), source.read, defaults)


def build_executor(
    project: Project, provider: BoxProvider, environment: Environment, detector: RunnerDetector, selector: Selector
) -> TestExecutor:
    runner = project.config.runner
    return TestExecutor(
        environment=environment,
        limits=JobLimits(runner.timeout_s, runner.silence_timeout_s, runner.grace_s, runner.test_timeout_s),
        warm=runner.warm,
        choose=detector,
        selector=selector,
        is_given=bool(project.config.runners),
    )


def build_selector(project: Project, is_selecting: bool) -> Selector:
    return Selector(
        mode=project.config.selection.mode if is_selecting else "all",
        patterns=tuple(map(_pattern, project.config.watch.rules)),
        report_miss=lambda document: _keep_miss(OwnFolder(project.workspace / FOLDER), document),
    )


def _keep_miss(folder: OwnFolder, document: Mapping[str, object]) -> str:
    name = f"missed-{document['run']}.json"
    try:
        folder.replace(name, json.dumps(document, indent=1).encode())
    except (OSError, WorkspaceError) as error:
        log.warning("%s cannot be written: %s\n%s", name, error, document)
        return "the log"
    return f"{FOLDER}/{name}"


def _pattern(rule: str) -> Pattern:
    globs, _, tests = (part.strip() for part in rule.partition("->"))
    return rule, specification([globs], "watch.rules").match_file, tests.rstrip("/")


def _runner_spec(entry: RunnerEntry) -> RunnerSpec:
    """Return the entry of the settings as a specification, which has the same fields."""
    return RunnerSpec(**{**dict(entry), "command": entry.command or ()})


def build_worktree(project: Project) -> Worktree:
    watch_settings = project.config.watch
    return Worktree(
        project.workspace,
        ignore=watch_settings.ignore,
        include=watch_settings.include,
        max_file_bytes=watch_settings.max_file_mb * MEBIBYTE,
        environ=project.environ,
    )


def build_git_tree(project: Project, which: Literal["index", "head"] | TreeId, *, index: Path | None = None) -> GitTree:
    limit = project.config.watch.max_file_mb * MEBIBYTE
    return GitTree(project.workspace, which, environ=project.environ, max_file_bytes=limit, index=index)
