"""A command of the user in the box, beside a watcher or without one. Sees to it that the box is filled before.

With a watcher, the box is the watcher's: it is waited for until it has been set up once. Without one, the box is made,
brought to the code as it is now and set up here. A box that cannot be set up can still be visited, to see why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from watchtest import byhand
from watchtest.boxes.base import Manner, Place, StopWish
from watchtest.boxes.environment import Environment
from watchtest.core.model import Lane
from watchtest.errors import BoxError, ChannelLost, WatchtestError
from watchtest.lock import is_watched
from watchtest.parts import Setting, build_environment, build_pipeline, build_worktree, choose_place

POLL_S = 0.2
Say = Callable[[str], None]


def visit(setting: Setting, argv: list[str], manner: Manner, say: Say) -> int:
    """Run a command in the box of the save lane; its exit code."""
    place = choose_place(setting, Lane.SAVE, say)
    try:
        environment = ready(setting, place, say)
        code = place.execute(argv, environment.variables, environment.path_first, manner)
        if code == 0 and manner is not Manner.DETACHED:
            byhand.record(setting.workspace, argv)
        return code
    finally:
        place.close()


def ready(setting: Setting, place: Place, say: Say) -> Environment:
    """Make the box ready for a command, and give what commands in it need."""
    environment = build_environment(setting, place)
    try:
        if not is_watched(setting.workspace):
            _prepare(setting, place, say)
            return environment
    except ChannelLost as error:
        if not is_watched(setting.workspace):
            raise
        say(f"a watcher has taken the box over ({error.message})")
    except WatchtestError as error:
        if place.inspect() is None:
            raise
        say(f"the box is not as it should be: {error}")
        return environment
    _wait_for_the_watcher(setting, place, say)
    return environment


def _prepare(setting: Setting, place: Place, say: Say) -> None:
    pipeline = build_pipeline(setting, Lane.SAVE, place, build_worktree(setting))

    async def prepare() -> None:
        try:
            await pipeline.prepare(say, StopWish())
        finally:
            await pipeline.box.disconnect()

    asyncio.run(prepare())


def _wait_for_the_watcher(setting: Setting, place: Place, say: Say) -> None:
    deadline = time.monotonic() + setting.config.box.setup_timeout_s
    has_said = False
    while not place.is_prepared():
        if not is_watched(setting.workspace):
            raise BoxError("the watcher ended before the box was ready", hint="try again")
        if time.monotonic() > deadline:
            say("the watcher has not set up the box yet: going in as it is")
            return
        if not has_said:
            say("waiting for the watcher to set up the box")
            has_said = True
        time.sleep(POLL_S)
