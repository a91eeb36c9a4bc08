"""The faults. Each strikes on entering; on leaving, it repairs what the outside world would repair.

The watcher has to recover from everything else, such as a stopped container or a dead agent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from support.faults.scene import Scene

Fault = Callable[[Scene], AbstractContextManager[None]]


@contextmanager
def stop(scene: Scene) -> Iterator[None]:
    scene.container.stop()
    yield


@contextmanager
def kill(scene: Scene) -> Iterator[None]:
    scene.container.kill()
    yield


@contextmanager
def remove(scene: Scene) -> Iterator[None]:
    scene.container.remove()
    yield


@contextmanager
def run_out_of_memory(scene: Scene) -> Iterator[None]:
    scene.container.run_out_of_memory()
    yield


@contextmanager
def pause(scene: Scene) -> Iterator[None]:
    scene.container.pause()
    yield


@contextmanager
def pause_briefly(scene: Scene) -> Iterator[None]:
    """Pause for too short a time to be distinguished from a busy machine."""
    scene.container.pause()
    yield
    scene.pause(0.1, 1.0)
    scene.container.unpause()


@contextmanager
def kill_agent(scene: Scene) -> Iterator[None]:
    scene.container.kill_agent()
    yield


@contextmanager
def kill_watcher(scene: Scene) -> Iterator[None]:
    scene.watcher.kill9()
    yield
    scene.watch()


@contextmanager
def restart_engine(scene: Scene) -> Iterator[None]:
    """Restart the engine. Half of the time new connections are refused meanwhile, half of the time they get no
    answer."""
    with scene.proxy.refusing() if scene.random.random() < 0.5 else nullcontext():
        scene.engine.stop()
        scene.pause(0.0, 1.0)
        yield
        scene.engine.start()


@contextmanager
def crash_engine(scene: Scene) -> Iterator[None]:
    scene.engine.crash()
    yield
    scene.engine.start()


@contextmanager
def fill_disk(scene: Scene) -> Iterator[None]:
    """Fill the disk for a while. A save during that time is reported as a problem; without a save nothing needs
    space."""
    scene.container.use_small_disk()
    scene.container.fill_disk()
    try:
        yield
        scene.pause(0.3, 1.5)
    finally:
        scene.container.free_disk()


@contextmanager
def freeze(scene: Scene) -> Iterator[None]:
    with scene.proxy.frozen():
        yield
        scene.wait_until_noticed()


@contextmanager
def freeze_briefly(scene: Scene) -> Iterator[None]:
    with scene.proxy.frozen():
        yield
        scene.pause(0.1, 1.5)


@contextmanager
def cut(scene: Scene) -> Iterator[None]:
    scene.proxy.cut()
    yield


@contextmanager
def refuse(scene: Scene) -> Iterator[None]:
    """Cut the connection and refuse new ones for a while."""
    with scene.proxy.refusing():
        scene.proxy.cut()
        yield
        scene.pause(0.2, 1.5)


# How often each fault is drawn. Slow ones, where silence must last before it counts as death, are drawn less often.
WEIGHTS: dict[Fault, int] = {
    kill_agent: 18,
    kill_watcher: 14,
    stop: 10,
    remove: 10,
    cut: 8,
    kill: 6,
    pause_briefly: 6,
    fill_disk: 6,
    freeze_briefly: 5,
    restart_engine: 5,
    refuse: 3,
    pause: 2,
    crash_engine: 3,
    freeze: 2,
    run_out_of_memory: 2,
}

NEED_A_WHOLE_BOX = (pause, freeze, fill_disk)
"""What is to be noticed within ten seconds must not be hidden by what was lost before."""


# -- moments ---------------------------------------------------------------------------------------


def at_rest(scene: Scene) -> None:
    """Wait until nothing is going on."""


def while_it_runs(scene: Scene) -> None:
    scene.save_something(slow_s=0.3)
    scene.wait_for_run()


def after_a_save(scene: Scene) -> None:
    """Strike anywhere between a save and its verdict."""
    scene.save_something()
    time.sleep(scene.random.uniform(0.0, 0.8))


MOMENTS: tuple[Callable[[Scene], None], ...] = (at_rest, while_it_runs, after_a_save)
