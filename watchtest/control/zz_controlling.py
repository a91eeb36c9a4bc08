"""The control API of a watcher: its desk, its server and the words of the status file, put together."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from watchtest import __version__
from watchtest.control.address import socket_places
from watchtest.control.event_messages import Words
from watchtest.control.gateway import Desk, Explain
from watchtest.control.run_reports import timestamp
from watchtest.control.server import ControlServer, PortWish
from watchtest.control.zz_control_token import token_file
from watchtest.control.zz_pastruns import PastRuns
from watchtest.core.text import cut
from watchtest.history.store.zz_history_path import history_path
from watchtest.loop import Loop, View
from watchtest.views.dashboard.watcher_screen import Screens, StateScene
from watchtest.views.status.status_document import activity, box_document, head, problem_document, result_document
from watchtest.views.status.status_writer import StatusFile
from watchtest.wiring import Setting

WORDS = Words(head=head, box=box_document, problem=problem_document, result=result_document, text=cut)


async def enter_control(
    stack: AsyncExitStack,
    setting: Setting,
    loop: Loop,
    views: list[View],
    status: StatusFile,
    say: Callable[[str], None],
    explain: Explain,
    scene: StateScene,
) -> None:
    """What `watchtest run`, `cancel`, `pause` and `why` speak with, and every other program."""
    past = PastRuns(history_path(setting.folders.state, setting.workspace), setting.workspace)
    desk = Desk(lambda: loop.state, loop.post, past, explain, WORDS)
    screens = Screens(scene, lambda: loop.state)
    views += [View(desk.show), View(screens.show)]
    listen = setting.config.api.listen
    server = ControlServer(
        desk,
        socket_places(setting.workspace, setting.folders.runtime),
        status=lambda: status.document(loop.state),
        about={"version": __version__, "pid": os.getpid(), "workspace": str(setting.workspace)},
        started_at=timestamp(status.started_at),
        activity=activity,
        schemas=schemas,
        screens=screens,
        say=say,
        port=PortWish(listen, token_file(setting.folders.state, setting.workspace)) if listen else None,
    )
    await stack.enter_async_context(server)


def schemas() -> dict[str, dict[str, Any]]:
    """Of the documents that the API takes and gives, by name."""
    from watchtest.config import json_schema
    from watchtest.views.status.status_schema import status_schema

    return {"status": status_schema(), "config": json_schema()}
