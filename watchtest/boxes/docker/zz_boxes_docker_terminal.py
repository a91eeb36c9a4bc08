"""A command in a container on a terminal of its own, shown on ours: keys go in as they are typed, the size follows."""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import docker
from docker.errors import APIError

from watchtest.boxes.docker.container_exec import running
from watchtest.boxes.terminal import following_size, raw


def run_on_terminal(
    client: docker.APIClient, container: str, argv: list[str], env: Mapping[str, str], user: str, workdir: str
) -> int:
    """Until the command ends; its exit code. Our own terminal is as before, however it ended."""
    env = {"TERM": os.environ.get("TERM", "xterm"), **env}
    with (
        running(client, container, argv, env, user=user, workdir=workdir, is_terminal=True) as command,
        raw(sys.stdin.fileno()),
        following_size(lambda: _pass_size(client, command.id)),
    ):
        _pass_both_ways(command.socket)
        return command.ended()


def _pass_both_ways(connection: Any) -> None:
    keyboard = sys.stdin.fileno()
    sources = [connection, keyboard]
    while True:
        ready, _, _ = select.select(sources, [], [])  # until the command ends, which the engine tells
        if connection in ready:
            piece = connection.recv(64 * 1024)
            if not piece:
                return
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        if keyboard in ready:
            typed = os.read(keyboard, 64 * 1024)
            if not typed:
                sources = [connection]
            connection.sendall(typed or b"\x04")  # no more input: what Ctrl-D says


def _pass_size(client: docker.APIClient, identity: str) -> None:
    size = shutil.get_terminal_size()
    try:
        client.exec_resize(identity, height=size.lines, width=size.columns)
    except (APIError, OSError):
        return  # it has just ended
