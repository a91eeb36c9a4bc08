"""The faults among the steps: killed, stopped and removed parts. The watcher has to recover from each by itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time

from docker.errors import APIError

from chaos.steps import STEPS, some_edits, step
from chaos.world import NotNow, World


def signal_all(world: World, number: int, *words: str) -> int:
    """Send a signal to the processes of the boxes whose command contains one of these words; return how many."""
    sent = 0
    for pid, line in world.processes().items():
        if pid != world.watcher.process.pid and any(word in line for word in words):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                sent += 1
    if not sent:
        raise NotNow
    return sent


def only(world: World, kind: str) -> None:
    if world.project.kind != kind:
        raise NotNow


# -- the watcher -----------------------------------------------------------------------------------


@step(2)
def kill_the_watcher(world: World) -> str:
    world.watcher.kill9()
    words = some_edits(world)
    world.start()
    return words


@step(1)
def stop_the_watcher_politely(world: World) -> str:
    world.watcher.stop()
    words = some_edits(world)
    world.start()
    return words


@step(2)
def freeze_the_watcher(world: World) -> str:
    world.watcher.process.send_signal(signal.SIGSTOP)
    try:
        words = some_edits(world)
        time.sleep(world.random.choice((0, 0.2, 1.0)))
    finally:
        world.watcher.process.send_signal(signal.SIGCONT)
    return words


@step(1)
def overflow_the_watcher(world: World) -> str:
    """Make more changes while it is frozen than the kernel keeps events for."""
    world.watcher.process.send_signal(signal.SIGSTOP)
    try:
        files = [world.root / "docs" / f"flood-{number}" for number in range(2)]
        files[0].parent.mkdir(exist_ok=True)
        for file in files:
            file.touch()
        for _ in range(9000):
            for file in files:
                os.utime(file)
        words = some_edits(world)
    finally:
        world.watcher.process.send_signal(signal.SIGCONT)
    return words


# -- files -----------------------------------------------------------------------------------------


@step(1)
def delete_the_folder_of_watchtest(world: World) -> str:
    shutil.rmtree(world.root / ".watchtest", ignore_errors=True)
    return ""


@step(1)
def delete_a_file_of_watchtest(world: World) -> str:
    name = world.random.choice(("status.json", "heartbeat", "locations", ".gitignore"))
    (world.root / ".watchtest" / name).unlink(missing_ok=True)
    return name


@step(2)
def change_files_in_the_box(world: World) -> str:
    """Delete or change files behind the watcher's back; the next run must find them as they should be."""
    lane = world.any_lane()
    path = world.random.choice(("shop/prices.py", "tests/test_prices.py", "data/stock.txt", "conftest.py"))
    how = world.random.choice(("rm -f {}", "echo 'raise 1' >> {}", "chmod 700 {}", "ln -sf /etc/hostname {}"))
    if world.project.kind == "local":
        tree = world.box(lane) / "tree"
        os.system(f"cd '{tree}' && {how.format(path)} 2>/dev/null")
    else:
        world.container(lane).exec_run(["sh", "-c", f"cd /workspace && {how.format(path)}"])
    world.held.add(lane)
    return f"{lane}: {how.format(path)}"


# -- local boxes -----------------------------------------------------------------------------------


@step(3)
def kill_agents(world: World) -> str:
    only(world, "local")
    words = world.random.choice((("/home /",), (" -I -c ", "bwrap"), ("import zygote",)))
    sent = signal_all(world, signal.SIGKILL, *words)
    return f"{sent} processes"


@step(1)
def freeze_agents(world: World) -> str:
    only(world, "local")
    signal_all(world, signal.SIGSTOP, " -I -c ")
    time.sleep(world.random.choice((0.1, 0.5)))
    words = some_edits(world)
    with contextlib.suppress(NotNow):
        signal_all(world, signal.SIGCONT, " -I -c ")
    return words


@step(1)
def remove_a_local_box(world: World) -> str:
    only(world, "local")
    lane = world.any_lane()
    shutil.rmtree(world.box(lane), ignore_errors=True)
    world.held.add(lane)
    return lane


# -- containers ------------------------------------------------------------------------------------


@step(8)
def break_a_container(world: World) -> str:
    only(world, "docker")
    lane = world.any_lane()
    container = world.container(lane)
    how = world.random.choice(("kill", "stop", "remove", "pause", "agent"))
    match how:
        case "kill":
            container.kill()
        case "stop":
            container.stop(timeout=1)
        case "remove":
            container.remove(force=True, v=True)
        case "pause":
            container.pause()
            time.sleep(world.random.choice((0.1, 1.0)))
            some_edits(world)
            with contextlib.suppress(APIError):  # an impatient watcher has restarted it
                container.unpause()
        case _:
            for row in container.top(ps_args="-ww -eo pid,args")["Processes"]:
                if "/opt/watchtest /workspace" in row[-1]:
                    os.kill(int(row[0]), signal.SIGKILL)
    return f"{lane}: {how}"


@step(4)
def cut_the_channel(world: World) -> str:
    only(world, "docker")
    assert world.proxy is not None
    if world.random.random() < 0.5:
        world.proxy.cut()
        return "cut"
    with world.proxy.frozen():
        words = some_edits(world)
        time.sleep(world.random.choice((0.1, 1.0)))
    return f"frozen, {words}"


FAULTS = tuple(function for function in STEPS if function.__module__ == __name__)
