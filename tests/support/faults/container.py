"""Inspects and breaks a project's container from outside the box, without any code of watchtest."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException

from support.watcher_process import Project, wait_for

ZYGOTE = "from watchtest_agent.warm import zygote"
KEEP_ALIVE = "sleep 2147483647"
AGENT = ("-I -c", "/opt/watchtest /workspace")
BALLAST = "/workspace/ballast"

# Replaces the tree with a copy of it on a small disk, and empties the original. Use only while nothing runs.
SMALL_DISK = """
grep -q ' /workspace ' /proc/self/mounts && exit 0
mount -t tmpfs -o size=8m,mode=755 none /mnt && cp -a /workspace/. /mnt/ || exit 1
find /workspace -mindepth 1 -delete && mount --move /mnt /workspace
"""
# Uses more memory than there is, in several processes, so that none is the largest one that the kernel would choose.
HOGS = """
import os
os.fork(), os.fork()
hog = [bytearray(1 << 20) for _ in range(1000)]
"""


class NothingToBreak(Exception):
    """The target is already broken, so the fault had no effect."""


class Container:
    """The container of the save lane. Every answer describes the present; nothing is cached."""

    def __init__(self, project: Project) -> None:
        self._project = project

    # -- looking -----------------------------------------------------------------------------------

    def trouble(self) -> str:
        """Return why this is not one running container with one agent and nothing else in it; "" if it is."""
        try:
            with self._client() as client:
                found = self._all(client)
                if len(found) != 1:
                    return f"{len(found)} containers"
                if found[0].status != "running":
                    return f"the container is {found[0].status}"
                lines = list(self._processes(found[0]).values())
        except (DockerException, OSError) as error:
            return f"the engine says: {error}"
        agents = [line for line in lines if is_agent(line)]
        # The zygote of warm runs belongs to a living agent and ends with it.
        own = [line for line in lines if is_agent(line) or KEEP_ALIVE in line or (agents and ZYGOTE in line)]
        strays = [line for line in lines if line not in own]
        if strays:
            return f"stray processes: {strays}"
        return "" if len(agents) == 1 else f"{len(agents)} agents"

    # -- breaking: raises NothingToBreak unless it runs ---------------------------------------------

    def kill(self) -> None:
        with self._running() as container:
            container.kill()

    def stop(self) -> None:
        with self._running() as container:
            container.stop(timeout=5)

    def remove(self) -> None:
        with self._running() as container:
            container.remove(force=True, v=True)

    def pause(self) -> None:
        with self._running() as container:
            container.pause()

    def unpause(self) -> None:
        """Unpause the container if it is still paused."""
        with self._client() as client:
            for container in self._all(client):
                try:
                    container.unpause()
                except APIError as error:
                    if "is not paused" not in str(error):
                        raise

    def kill_agent(self) -> None:
        with self._running() as container:
            agents = [pid for pid, line in self._processes(container).items() if is_agent(line)]
            if not agents:
                raise NothingToBreak("no agent")
            for pid in agents:
                os.kill(pid, signal.SIGKILL)

    def run_out_of_memory(self) -> None:
        """Make the kernel kill the container's first process, and with it all others. Needs a limit (`box.memory`)."""
        with self._running() as container:
            before = container.attrs["State"]["StartedAt"]
            # Make it the kernel's first choice.
            Path(f"/proc/{container.attrs['State']['Pid']}/oom_score_adj").write_text("1000")
            container.exec_run(["python3", "-c", HOGS], detach=True)

            def is_over() -> bool:
                container.reload()
                state = container.attrs["State"]
                return state["Status"] != "running" or state["StartedAt"] != before

            wait_for("the container ends for want of memory", is_over, limit_s=10)

    def use_small_disk(self) -> None:
        self._as_root(SMALL_DISK)

    def fill_disk(self) -> None:
        self._as_root(f"dd if=/dev/zero of={BALLAST} bs=4k 2>/dev/null; test -s {BALLAST}")

    def free_disk(self) -> None:
        self._as_root(f"rm -f {BALLAST}")

    def _as_root(self, script: str) -> None:
        """Run a command as root of the host, in the container's mount namespace."""
        with self._running() as container:
            enter = ["nsenter", "--target", str(container.attrs["State"]["Pid"]), "--mount", "sh", "-c", script]
            done = subprocess.run(enter, capture_output=True, text=True, timeout=20, check=False)
            assert done.returncode == 0, done.stderr

    # -- the engine --------------------------------------------------------------------------------

    @contextmanager
    def _client(self) -> Iterator[Any]:
        with closing(docker.from_env(environment=self._project.environ)) as client:
            yield client

    def _all(self, client: Any) -> list[Any]:
        labels = [f"watchtest.workspace={self._project.root}", "watchtest.lane=save"]
        found: list[Any] = client.containers.list(all=True, filters={"label": labels})
        # A crashed engine may leave a container behind that nothing can remove.
        return [container for container in found if container.status not in ("removing", "dead")]

    @contextmanager
    def _running(self) -> Iterator[Any]:
        with self._client() as client:
            found = self._all(client)
            if len(found) != 1 or found[0].status != "running":
                raise NothingToBreak(f"containers: {[container.status for container in found]}")
            try:
                yield found[0]
            except (APIError, ProcessLookupError, FileNotFoundError) as error:
                # An earlier fault ended it between the check and the kill.
                raise NothingToBreak(str(error)) from error

    def _processes(self, container: Any) -> dict[int, str]:
        """Return the processes by their ids on the host."""
        rows = container.top(ps_args="-ww -eo pid,args")["Processes"]
        return {int(row[0]): str(row[-1]) for row in rows}


def is_agent(line: str) -> bool:
    return all(part in line for part in AGENT)
