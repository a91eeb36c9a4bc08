"""`watchtest doctor`: check engine, image, box, git, workspace and notifications.

Check everything watchtest depends on and suggest what to do about problems. Changes nothing. Exit code 4 if something
is broken.

    watchtest doctor
    watchtest doctor --engine podman
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.commands import add_engine, add_json, load_project, load_settings, print_json
from watchtest.core.model import BoxInfo, Lane
from watchtest.core.text import clean, names, uncleaned
from watchtest.errors import WatchtestError

if TYPE_CHECKING:
    from watchtest.boxes.docker.engine_check import Remark
    from watchtest.boxes.protocols import BoxProvider
    from watchtest.config import Project

GOOD, WARNING, BAD = "good", "warning", "bad"
LACKS = ("no sandbox", "not isolated", "no effect")
MARKS = {GOOD: "✔", WARNING: "!", BAD: "✘"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    what: str
    state: str
    text: str
    hint: str = ""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_engine(parser, opens_box=False)


def run(arguments: argparse.Namespace) -> int:
    findings = _findings(arguments)
    if arguments.json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{MARKS[finding.state]} {finding.what:<10} {finding.text}")
            if finding.hint:
                print(f"  {'':<10} → {finding.hint}")
    return 4 if any(finding.state == BAD for finding in findings) else 0


def _findings(arguments: argparse.Namespace) -> list[Finding]:
    found = [Finding("python", GOOD, f"{platform.python_version()} ({sys.executable})"), _git()]
    try:
        _, loaded = load_settings(arguments)
    except WatchtestError as error:
        return [*found, Finding("config", BAD, error.message, error.hint)]
    source = f"from {loaded.file}" if loaded.file else "no file; the defaults apply"
    found.append(Finding("config", GOOD, source))
    try:
        project = load_project(arguments)
    except WatchtestError as error:
        return [*found, Finding("folder", BAD, error.message, error.hint)]
    checks = {"trust": _trust, "workspace": _workspace, "box": _box, "history": _history, "notify": _notify}
    for what, check in checks.items():
        try:
            found += check(project)
        except WatchtestError as error:
            found.append(Finding(what, BAD, error.message, error.hint))
    return found


def _trust(project: Project) -> list[Finding]:
    """Report what the project asks of this machine and is not allowed."""
    from watchtest.commands.trust import requests_of
    from watchtest.wiring import trust_command
    from watchtest.workspace.consent import ConsentFile

    requests = requests_of(project)
    granted = ConsentFile(project.dirs.state, project.workspace).granted()
    missing = [one for one in requests if one.digest not in granted]
    if not missing:
        asked = f"all {len(requests)} requests are allowed" if requests else "the project asks for nothing"
        return [Finding("trust", GOOD, f"{asked} beyond its container")]
    hint = f"look at it, then `{trust_command(project)}`"
    texts = [f"not allowed: {clean(one.line)}" for one in missing]
    return [*(Finding("trust", WARNING, text) for text in texts[:-1]), Finding("trust", WARNING, texts[-1], hint)]


def _git() -> Finding:
    from watchtest.sources.git import Git, GitError

    try:
        version = Git(Path(os.sep), os.environ).run("--version")
    except GitError as error:
        hint = "install git; without it, watchtest reads the ignore files itself"
        return Finding("git", WARNING, error.message.removeprefix(f"{os.sep}: "), hint)
    return Finding("git", GOOD, version.decode("utf-8", "replace").strip())


def _workspace(project: Project) -> list[Finding]:
    from watchtest.boxes.protocols import choice_lines
    from watchtest.runners.registry import lacking_tools
    from watchtest.wiring import build_detector, build_worktree, project_recipe

    source = build_worktree(project)
    began = time.perf_counter()
    snapshot = source.snapshot()
    took_ms = (time.perf_counter() - began) * 1000
    text = f"{project.workspace}: {len(snapshot.entries)} paths, read in {took_ms:.0f} ms, tree {snapshot.id[:12]}"
    found = [Finding("workspace", GOOD, text)]
    found += [Finding("workspace", WARNING, note) for note in source.notes]
    origin = "from [[runners]]" if project.config.runners else "detected from the project's files"
    specs = build_detector(project, source).specs(snapshot)
    found.append(Finding("runners", GOOD, f"{', '.join(map(str, specs))} ({origin})"))
    recipe = project_recipe(project, source, snapshot)
    for spec in specs:
        if remark := lacking_tools(spec, recipe.toolchain):
            found.append(Finding("runners", WARNING, f"{spec}{remark}", "name an image with both in box.image"))
    found += [Finding("setup", GOOD, line) for line in choice_lines(recipe.choices)]
    found += _repository(project)
    found += [Finding("left out", WARNING, f"{path.path}: {path.reason}") for path in snapshot.excluded[:20]]
    return found


def _repository(project: Project) -> list[Finding]:
    """Check what makes the lanes of this repository differ or wait."""
    from watchtest.sources.git import Git, GitError
    from watchtest.sources.git_watch import blocker

    git = Git(project.workspace, project.environ)
    try:
        unmerged = git.unmerged(git.directory() / "index")
        conflict = f"the index has unmerged paths: {names(unmerged)}" if unmerged else ""
        reason = blocker(git.directory()) or conflict
        found = [Finding("git lanes", WARNING, f"waiting: {reason}")] if reason else []
        if git.setting("core.sparseCheckout") == "true":
            found.append(Finding("sparse", WARNING, "sparse checkout: the stage and commit lanes test the whole tree"))
        if git.setting("core.autocrlf") in ("true", "input"):
            text = "core.autocrlf is set: the save lane tests files as they are, the git lanes as git stores them"
            found.append(Finding("autocrlf", WARNING, text))
        if git.setting("extensions.objectFormat") == "sha256":
            text = "tree ids of the save lane are SHA-1, those of the git lanes are SHA-256"
            found.append(Finding("sha256", WARNING, text))
    except GitError:
        return []
    return found


def _box(project: Project) -> list[Finding]:
    from watchtest.wiring import choose_engine, provider_of

    notes: list[str] = []
    with closing(provider_of(project, Lane.SAVE, choose_engine(project, notes.append))) as provider:
        found = [Finding("engine", WARNING, note) for note in notes]
        # First, because it reports what is wrong if the engine does not answer.
        info = provider.inspect()
        if provider.engine == "local":
            lines = provider.describe()
            found += [Finding("local box", WARNING if line.startswith(LACKS) else GOOD, line) for line in lines]
        else:
            found += [*_engine(project, provider, info), _local_too(project)]
    if info is None:
        found.append(Finding("box", GOOD, "none yet; it will be created by the first run"))
    else:
        found.append(Finding("box", GOOD, f"{info.engine} {info.id[:12]} is {info.state}, image {info.image}"))
    return found


def _engine(project: Project, provider: BoxProvider, info: BoxInfo | None) -> list[Finding]:
    """Check the engine, the image for the box, and the limits that the engine enforces."""
    from watchtest.boxes.docker.container_limits import ConfiguredLimits
    from watchtest.boxes.docker.engine_check import examine, examine_container, has_image
    from watchtest.boxes.docker.engines import find_engine
    from watchtest.wiring import build_worktree, project_recipe

    box = project.config.box
    assert box.engine != "local"
    wanted = ConfiguredLimits(box.memory, box.cpus, box.pids)
    with closing(find_engine(project.environ, box.engine)) as engine:
        found = [_remark("engine", remark) for remark in examine(engine, wanted)]
        source = build_worktree(project)
        recipe = project_recipe(project, source, source.snapshot(), provider)
        image = provider.image_name(recipe)
        is_here = "is present" if has_image(engine, image) else "will be pulled or built when the box is created"
        found.append(Finding("image", GOOD, f"{image} ({recipe.because}) {is_here}"))
        if info is not None:
            found += [_remark("limits", remark) for remark in examine_container(engine, info.id, wanted)]
        return found


def _remark(what: str, remark: Remark) -> Finding:
    return Finding(what, WARNING if remark.is_warning else GOOD, remark.text, remark.hint)


def _local_too(project: Project) -> Finding:
    """Report what `--engine local` would use."""
    from watchtest.wiring import local_provider

    try:
        lines = local_provider(project, Lane.SAVE).describe()
    except WatchtestError as error:
        return Finding("local box", GOOD, f"would not work: {error.message}")
    return Finding("local box", GOOD, f"available with --engine local: {lines[1]}")


def _history(project: Project) -> list[Finding]:
    from watchtest.history.store.database_file import history_path

    path = history_path(project.dirs.state, project.workspace)
    return [Finding("history", GOOD, f"{path} ({'present' if path.exists() else 'not created yet'})")]


def _notify(project: Project) -> list[Finding]:
    import asyncio

    from watchtest.views.notify.notifier import describe_channels

    return [
        Finding("notify", GOOD if who else WARNING, who or f"no desktop notifications: {lack}")
        for who, lack in asyncio.run(describe_channels(project, uncleaned(sys.stdout)))
    ]
