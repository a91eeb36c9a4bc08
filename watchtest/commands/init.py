"""`watchtest init`: write a watchtest.toml, git hooks or a user service.

Write a watchtest.toml with what was found in the project. Never overwrites a file that it did not write itself.

    watchtest init
    watchtest init --hooks
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from watchtest.boxes.protocols import ImageSource, NamedImage
from watchtest.commands import load_project
from watchtest.errors import WorkspaceError

NAME = "watchtest.toml"
TEMPLATE = """\
# The settings of watchtest for this project. `watchtest config show` prints every key and its value.

[triggers]
save = "affected"          # tests to run after a save: off, affected, failed or all

[box]
engine = "auto"            # a container if there is an engine, otherwise the local box
image = {given_image:<19}# or the name of an image; found here: {image}
setup = {given_setup:<19}# or a list of shell commands; found here:
{setup}
"""

MARK = "# written by `watchtest init --hooks`"
HOOKS = {
    "pre-commit": "exec watchtest gate --staged\n",
    "pre-push": """\
while read -r _ commit _ _; do
    case "$commit" in *[!0]*) watchtest gate --commit "$commit" </dev/null || exit 1 ;; esac
done
""",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    text = "write git hooks (pre-commit, pre-push) that call the gate, instead"
    what.add_argument("--hooks", action="store_true", help=text)
    text = "write a systemd user unit or a launchd plist, instead"
    what.add_argument("--service", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    if arguments.service:
        return _write_service(arguments)
    return _write_hooks(arguments) if arguments.hooks else _write_config(arguments)


def _write_service(arguments: argparse.Namespace) -> int:
    import os
    import sys

    from watchtest.client.service_unit import WatcherService, launchd_plist, systemd_unit, write
    from watchtest.wiring import workspace_key

    workspace = load_project(arguments).workspace  # wrong settings must fail here, not when the service starts
    config = ["--config", str(arguments.config.absolute())] if arguments.config is not None else []
    argv = (sys.executable, "-P", "-m", "watchtest", "-C", str(workspace), *config, "watch", "--silent")
    service = WatcherService(workspace_key(workspace), workspace, argv, os.environ.get("PATH", os.defpath))
    if sys.platform == "darwin":
        wanted = launchd_plist(service, Path.home())
    elif sys.platform == "win32":
        raise WorkspaceError("init --service: this system has no user services", hint="use `watchtest start`")
    else:
        home = os.environ.get("XDG_CONFIG_HOME") or ""
        wanted = systemd_unit(service, Path(home) if home.startswith("/") else Path.home() / ".config")
    write(wanted)
    print(f"wrote {wanted.file}")
    print(
        "The service gets the PATH of this shell, but no other variable; put what the watcher needs into its settings."
    )
    print("Next:")
    for step in wanted.next_steps:
        print(f"  {step}")
    return 0


def _write_hooks(arguments: argparse.Namespace) -> int:
    import os

    from watchtest.sources.git import Git
    from watchtest.workspace.folder import find_workspace

    folder = find_workspace(arguments.workspace or Path.cwd())
    hooks = Git(folder, os.environ).hooks()
    for name, body in HOOKS.items():
        print(_write_hook(hooks / name, body))
    return 0


def _write_hook(file: Path, body: str) -> str:
    """Write or update a hook, and return what was done. A hook that is not ours is left alone."""
    content = f"#!/bin/sh\n{MARK}\n{body}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and MARK not in file.read_text(encoding="utf-8", errors="replace"):
            line = body.strip().replace("exec ", "")
            return f"{file} exists and was left as it is; to call the gate, add to it:\n{_indented(line)}"
        file.write_text(content, encoding="utf-8")
        file.chmod(0o755)
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be written: {error.strerror}") from error
    return f"wrote {file}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _write_config(arguments: argparse.Namespace) -> int:
    from watchtest.boxes.recipe.recipe import recipe_of
    from watchtest.wiring import build_detector, build_worktree, recipe_input

    project = load_project(arguments)
    source = build_worktree(project)
    snapshot = source.snapshot()
    recipe = recipe_of(recipe_input(project, source), snapshot, source.read)
    image = _line(f"{_image_text(recipe.image)} ({recipe.because})")
    commands = [_line(command) for command in recipe.commands]
    if recipe.needs_pytest:
        commands.append("pip install pytest   (if it is still missing)")
    box = project.config.box
    content = TEMPLATE.format(
        given_image=json.dumps(box.image) + " ",
        given_setup=json.dumps(box.setup) + " ",
        image=image,
        setup="\n".join(f"#   {command}" for command in commands) or "#   nothing",
    )
    file = project.workspace / NAME
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(content)
    except FileExistsError as error:
        raise WorkspaceError(f"{file} already exists", hint="edit it, or move it away first") from error
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be written: {error.strerror}") from error
    print(f"wrote {file}")
    print(f"  image  {image}")
    for command in commands:
        print(f"  setup  {command}")
    for runner in build_detector(project, source).specs(snapshot):
        print(f"  tests  {_line(str(runner))}")
    for left_out in snapshot.excluded:
        print(f"  left out  {_line(f'{left_out.path}: {left_out.reason}')}")
    print("Next: watchtest")
    return 0


def _image_text(image: ImageSource) -> str:
    return image.name if isinstance(image, NamedImage) else f"built from {image.dockerfile}"


def _line(text: str) -> str:
    """Return text of the project on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
