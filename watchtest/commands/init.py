"""`watchtest init`: a `watchtest.toml` to start from, filled with what was found. Never overwrites one."""

from __future__ import annotations

import argparse
import json

from watchtest.errors import WorkspaceError

NAME = "watchtest.toml"
TEMPLATE = """\
# The settings of watchtest for this project. Every key and its default: `watchtest config show`.

[triggers]
save = "affected"          # what a save runs: off, affected, failed or all

[box]
engine = "auto"            # a container where there is an engine, else the local box
image = {image}
setup = {setup}
"""


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("init", help=f"write a {NAME} to start from")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.boxes.environment import plan
    from watchtest.commands.outside import setting_of
    from watchtest.parts import build_worktree, chosen_image

    setting = setting_of(arguments)
    source = build_worktree(setting)
    setup = plan("auto", source.snapshot(), source.read)
    commands = setup.commands or ("pip install pytest",)
    image = chosen_image(setting.config.box.image)
    content = TEMPLATE.format(image=json.dumps(image), setup=json.dumps(list(commands)))
    file = setting.workspace / NAME
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(content)
    except FileExistsError as error:
        raise WorkspaceError(f"{file} is there already", hint="edit it, or move it away first") from error
    except OSError as error:
        raise WorkspaceError(f"{file} cannot be written: {error.strerror}") from error
    print(f"wrote {file}")
    print(f"  image  {image}")
    for command in commands:
        print(f"  setup  {command}")
    print("Next: watchtest")
    return 0
