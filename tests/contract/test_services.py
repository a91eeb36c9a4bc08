"""What holds for services in every kind of box: they outlive runs, follow their files, and never restart endlessly."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.box_bench import NASTY, Bench, Tree, left_over
from support.containers import container_spec, docker_provider
from support.ports import free_port

from watchtest.agent.services.restart_backoff import RestartBackoff
from watchtest.agent.services.service_manager_link import REVIVE_AFTER_S
from watchtest.boxes.docker.container_limits import ConfiguredLimits
from watchtest.boxes.inventory import remove_boxes
from watchtest.boxes.protocols import Command, JobLimits, JobSpec, StopSignal
from watchtest.boxes.service_restart import ReadyCheck, ServiceDefinition
from watchtest.boxes.services import ProcessEnvironment, Services
from watchtest.core.model import ServiceInfo, StopReason
from watchtest.errors import ChannelLost, ServiceError
from watchtest.sources.globs import specification

pytestmark = pytest.mark.python_in_the_box  # the agent keeps them running
QUICK = RestartBackoff(backoff_s=0.05, longest_backoff_s=0.2, settled_s=60.0)
AROUND = ProcessEnvironment({"GREETING": "hello"}, ())

SERVER = """
import os, socket, sys
birth = os.urandom(8).hex()
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
print("serving", flush=True)
while True:
    client, _ = server.accept()
    try:
        if client.recv(10) == b"crash":
            print("asked to crash", flush=True)
            os._exit(3)
        client.sendall(("%d %s %s" % (os.getpid(), birth, os.environ["GREETING"])).encode())
    except OSError:
        pass  # only looked in
    client.close()
"""
ASK = """
import socket, sys
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
client.sendall(sys.argv[2].encode())
print(client.recv(100).decode())
"""
CRASHER = "import sys\nopen('../starts', 'a').write('x')\nprint('no luck', flush=True)\nsys.exit(3)\n"


def matcher(globs: Sequence[str]) -> Callable[[str], bool]:
    return specification(globs, "restart_on").match_file


@dataclass
class Bed:
    """A box with services, as one watcher sees it."""

    bench: Bench
    tree: Tree
    port: int
    notes: list[str] = field(default_factory=list)
    """What was said since the last order."""
    all_notes: list[str] = field(default_factory=list)
    seen: list[tuple[ServiceInfo, ...]] = field(default_factory=list)
    services: Services | None = None

    def kv(self, **changes: Any) -> ServiceDefinition:
        argv = (self.bench.python, "server.py", str(self.port))
        return replace(ServiceDefinition("kv", argv, ReadyCheck("tcp", self.port), grace_s=0.5), **changes)

    def watcher(self, *definitions: ServiceDefinition, timing: RestartBackoff = QUICK) -> None:
        """Return a new watcher with these settings."""
        is_tied = not self.bench.provider.keeps_processes
        self.services = Services(definitions, matcher, is_tied=is_tied, timing=timing)
        self.services.on_change = self.seen.append
        self.notes.clear()

    def ensure(self, *, is_forced: bool = False, stop_signal: StopSignal | None = None) -> None:
        assert self.services is not None
        self.notes.clear()

        def note(text: str) -> None:
            self.notes.append(text)
            self.all_notes.append(text)

        self.bench.sync(self.tree)
        session = self.bench.open()
        action = self.services.ensure(
            session, self.tree.snapshot(), AROUND, note, stop_signal or StopSignal(), is_forced=is_forced
        )
        self.bench.do(action)

    def ask(self, word: str = "pid") -> str:
        return self.bench.said(f"{self.bench.python} -c '{ASK}' {self.port} {word}").strip()

    def pid(self) -> str:
        return self.ask().split()[0]

    def birth(self) -> str:
        """Differs for every start of the server; a pid may recur in another namespace."""
        _, birth, greeting = self.ask().split()
        assert greeting == "hello"
        return birth

    def wait_for(self, state: str, limit_s: float = 10.0, *, restarts: int | None = None) -> ServiceInfo:
        """Wait until the first service is reported in this state without a request."""
        deadline = time.monotonic() + limit_s
        while True:
            info = self.seen[-1][0] if self.seen and self.seen[-1] else None
            if info and info.state == state and restarts in (None, info.restarts):
                return info
            assert time.monotonic() < deadline, self.seen
            self.bench.do(asyncio.sleep(0.02))

    def manager(self) -> str:
        return self.bench.said(f"cut -d' ' -f1 '{self.bench.provider.home}/steward.lock'").strip()

    def starts(self) -> int:
        return len(self.bench.said("cat ../starts 2>/dev/null || true"))


@pytest.fixture
def bed(bench: Bench) -> Bed:
    return Bed(bench, Tree({"server.py": SERVER.encode()}), free_port())


# -- staying ---------------------------------------------------------------------------------------


def test_a_service_answers_when_it_is_said_to_be_ready_and_outlives_runs(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    assert [infos[0].state for infos in bed.seen if infos][-1] == "ready"
    first = bed.birth()
    bed.ensure()
    assert bed.notes == []
    job = JobSpec(Command(("/bin/sh", "-c", "echo started; sleep 60")), JobLimits(60, 60, 0.2))
    for is_kill in (False, True):
        stops: asyncio.Queue[bool] = asyncio.Queue()
        stop = lambda _text, stops=stops, is_kill=is_kill: stops.put_nowait(is_kill)  # noqa: E731
        bed.bench.do(bed.bench.open().run(job, lambda _rows: None, stop, stops))
        assert bed.birth() == first


def test_what_a_service_says_is_in_its_log(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    log = bed.bench.said(f"cat '{bed.bench.provider.home}/logs/kv.log'")
    assert "serving" in log.splitlines()


def test_without_its_agent_a_service_of_a_container_lives_on_and_a_local_one_ends(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    bed.bench.do(bed.bench.box.disconnect())
    if not bed.bench.provider.keeps_processes:
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", bed.port), 2)
    bed.watcher(bed.kv())
    bed.ensure()
    if bed.bench.provider.keeps_processes:
        assert bed.birth() == first
        assert bed.notes == ["service kv: still running, adopted"]
    else:
        assert bed.birth() != first
        assert bed.notes[0].startswith("service kv: started again")


def test_an_agent_that_is_killed_takes_only_local_services_with_it(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    script = "kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat); sleep 60"  # the agent: the supervisor's parent
    with pytest.raises(ChannelLost):
        bed.bench.sh(script)
    bed.ensure()
    assert (bed.birth() == first) is bed.bench.provider.keeps_processes
    assert left_over(bed.bench, f"server.py\0{bed.port}") == 1


def test_the_next_agent_finds_the_manager_although_the_agent_it_came_from_is_removed(bed: Bed) -> None:
    """The code for restarts and every kind of check must be in memory by then."""
    bed.watcher(bed.kv())
    bed.ensure()
    bed.bench.do(bed.bench.box.disconnect())
    web = ServiceDefinition(
        "web", (bed.bench.python, "-m", "http.server", str(free_port()), "--bind", "127.0.0.1"), grace_s=0.5
    )
    web = replace(web, ready=ReadyCheck("http", f"http://127.0.0.1:{web.argv[3]}/"))
    bed.watcher(bed.kv(env={"A": "b"}), web)
    bed.ensure()
    assert {info.state for info in bed.seen[-1]} == {"ready"}


# -- following -------------------------------------------------------------------------------------


def test_a_service_restarts_exactly_when_its_files_or_its_definition_change(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    bed.tree.content |= {"notes.md": b"1", "test_server.py": b"1"}
    bed.ensure()
    assert (bed.birth(), bed.notes) == (first, [])
    bed.tree.content["server.py"] = SERVER.encode() + b"# edited\n"
    bed.ensure()
    second = bed.birth()
    assert second != first
    assert "service kv: restarted (server.py changed)" in bed.notes
    bed.watcher(bed.kv(env={"A": "b"}))
    bed.ensure()
    assert bed.birth() not in (first, second)
    assert bed.notes[0].startswith("service kv: restarted")
    bed.watcher(bed.kv(env={"A": "b"}, restart_limit=7))
    third = bed.birth()
    bed.ensure()
    assert bed.birth() == third


def test_globs_say_which_files_restart_a_service(bed: Bed) -> None:
    bed.watcher(bed.kv(restart_on=("data/*.json",)))
    bed.ensure()
    first = bed.birth()
    bed.tree.content["server.py"] = SERVER.encode() + b"# edited\n"
    bed.ensure()
    assert bed.birth() == first
    bed.tree.content["data/a.json"] = b"{}"
    bed.ensure()
    assert bed.birth() != first


def test_what_is_no_longer_in_the_settings_is_ended_with_all_it_started(bed: Bed) -> None:
    bed.tree.content["nasty.py"] = NASTY.encode()
    nasty = ServiceDefinition("nasty", (bed.bench.python, "nasty.py", "mark-of-the-service", "stay"), grace_s=0.3)
    bed.watcher(nasty)
    bed.ensure()
    deadline = time.monotonic() + 10
    while left_over(bed.bench, "mark-of-the-service") < 24 and time.monotonic() < deadline:
        time.sleep(0.05)
    bed.watcher()
    bed.ensure()
    assert "service nasty: ended, because it is no longer configured" in bed.notes
    bed.bench.do(asyncio.sleep(1.0))
    assert left_over(bed.bench, "mark-of-the-service") == 0
    bed.bench.do(bed.bench.box.disconnect())
    assert bed.bench.open().has_services is False


# -- failing ---------------------------------------------------------------------------------------


def test_a_service_that_always_crashes_stops_at_its_limit_and_says_why(bed: Bed) -> None:
    bed.tree.content["crash.py"] = CRASHER.encode()
    crasher = ServiceDefinition("kv", (bed.bench.python, "crash.py"), ReadyCheck("tcp", bed.port), restart_limit=3)
    bed.watcher(crasher)
    with pytest.raises(ServiceError) as caught:
        bed.ensure()
    first, *tail = caught.value.message.splitlines()
    assert first == "service kv failed: exited with code 3 before it was ready (3 restarts)"
    assert tail == ["no luck"]
    assert "watchtest logs kv" in caught.value.hint
    assert (caught.value.code, caught.value.is_transient) == ("service", False)
    assert bed.starts() == 4
    with pytest.raises(ServiceError):
        bed.ensure()
    time.sleep(1.0)  # many times the longest pause between two starts
    assert bed.starts() == 4
    with pytest.raises(ServiceError):
        bed.ensure(is_forced=True)
    assert bed.starts() == 8
    bed.tree.content["crash.py"] = SERVER.encode()
    bed.watcher(replace(crasher, argv=(bed.bench.python, "crash.py", str(bed.port))))
    bed.ensure()
    assert bed.birth()


def test_a_service_that_crashes_between_runs_is_started_again_and_told(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    bed.ask("crash")
    bed.wait_for("ready", restarts=1)
    assert bed.birth() != first
    reasons = {info.reason for infos in bed.seen for info in infos if info.state == "backoff"}
    assert len(reasons) == 1
    assert reasons.pop().startswith("exited with code 3 after it was ready for ")


def test_failures_long_ago_are_forgiven(bed: Bed) -> None:
    bed.watcher(bed.kv(restart_limit=1), timing=RestartBackoff(0.05, 0.2, settled_s=0.0))
    bed.ensure()
    for _ in range(3):
        bed.seen.clear()
        bed.ask("crash")
        bed.wait_for("ready")


def test_a_service_that_fails_for_good_is_reported_without_a_request(bed: Bed) -> None:
    bed.watcher(bed.kv(restart_limit=0))
    bed.ensure()
    bed.ask("crash")
    info = bed.wait_for("failed")
    assert info.reason.startswith("exited with code 3 after it was ready")


def test_one_that_does_not_become_ready_in_time_says_so(bed: Bed) -> None:
    lazy = ServiceDefinition("kv", ("sleep", "600"), ReadyCheck("tcp", bed.port), 0.5, restart_limit=1, grace_s=0.2)
    bed.watcher(lazy)
    with pytest.raises(ServiceError, match=r"not ready within 0.5 s: nothing answers on port \d+ \(.*refused\)"):
        bed.ensure()


def test_a_port_served_by_another_process_does_not_count_as_ready(bed: Bed) -> None:
    other = replace(bed.kv(restart_limit=0), name="other", argv=("sleep", "600"))
    bed.watcher(bed.kv(ready=ReadyCheck("command", f"{bed.bench.python} -c '{ASK}' {bed.port} pid")))
    bed.ensure()
    bed.watcher(bed.kv(ready=ReadyCheck("command", f"{bed.bench.python} -c '{ASK}' {bed.port} pid")), other)
    with pytest.raises(ServiceError, match=f"service other failed: port {bed.port} is in use by another process"):
        bed.ensure()


def test_an_answer_above_400_is_not_ready(bed: Bed) -> None:
    argv = (bed.bench.python, "-m", "http.server", str(bed.port), "--bind", "127.0.0.1")
    url = f"http://127.0.0.1:{bed.port}/health"
    web = ServiceDefinition("web", argv, ReadyCheck("http", url), 1.5, restart_limit=0, grace_s=0.2)
    bed.watcher(web)
    with pytest.raises(ServiceError, match=f"not ready within 1.5 s: {url} answers 404"):
        bed.ensure()
    bed.tree.content["health"] = b"fine"
    bed.watcher(replace(web, ready_timeout_s=20.0))
    bed.ensure()
    assert bed.seen[-1][0].state == "ready"


def test_a_command_says_when_a_service_is_ready(bed: Bed) -> None:
    script = "rm -f ../flag; sleep 0.4; touch ../flag; exec sleep 600"
    flag = "test -f ../flag || { echo no flag yet; exit 1; }"
    one = ServiceDefinition("slow", ("/bin/sh", "-c", script), ReadyCheck("command", flag), grace_s=0.2)
    bed.watcher(one)
    bed.ensure()
    assert bed.bench.said("ls ../flag")
    bed.watcher(
        replace(one, ready=ReadyCheck("command", "echo not today; exit 7"), ready_timeout_s=0.5, restart_limit=0)
    )
    with pytest.raises(ServiceError, match="the ready command exited with code 7: not today"):
        bed.ensure()


def test_a_stop_ends_the_waiting(bed: Bed) -> None:
    bed.watcher(ServiceDefinition("kv", ("sleep", "600"), ReadyCheck("tcp", bed.port), grace_s=0.2))
    stop_signal = StopSignal()
    stop_signal.set(StopReason.CANCELLED)
    began = time.monotonic()
    bed.ensure(stop_signal=stop_signal)
    assert time.monotonic() - began < 8


# -- kills -----------------------------------------------------------------------------------------


def test_after_the_death_of_the_manager_all_services_restart_and_nothing_is_left(bed: Bed) -> None:
    bed.watcher(bed.kv(), replace(bed.kv(), name="idle", argv=("sleep", f"604.{bed.port}"), ready=None))
    bed.ensure()
    first = bed.birth()
    bed.bench.sh(f"kill -9 {bed.manager()}")
    bed.ensure()
    assert bed.birth() != first
    assert "service kv: started again (it was no longer running)" in bed.all_notes
    assert left_over(bed.bench, f"604.{bed.port}") == 1


def test_a_manager_that_dies_with_an_order_in_its_hands_is_not_waited_for(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    manager = bed.manager()
    session = bed.bench.open()
    # The order would continue one that was stopped only once.
    stop = f"timeout 0.5 sh -c 'while kill -STOP {manager}; do :; done'"
    script = f"kill -STOP {manager}; echo stopped; {stop}; kill -KILL {manager}"
    job = JobSpec(Command(("/bin/sh", "-c", script)), JobLimits(30, 30, 0.2))

    async def order_while_it_stands_still() -> None:
        assert bed.services is not None
        stopped = asyncio.Event()
        running = asyncio.create_task(session.run(job, lambda _rows: None, lambda _text: stopped.set()))
        await stopped.wait()
        await bed.services.ensure(session, bed.tree.snapshot(), AROUND, bed.notes.append, StopSignal())
        await running

    began = time.monotonic()
    bed.bench.do(order_while_it_stands_still())
    assert time.monotonic() - began < 15
    bed.ensure()  # it may have found a moment to answer the first order before it died
    assert bed.birth() != first


def test_a_stopped_manager_is_continued_by_the_next_order(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    bed.bench.sh(f"kill -STOP {bed.manager()}")
    began = time.monotonic()
    bed.ensure()
    assert time.monotonic() - began < 15
    assert bed.birth() == first


def test_a_manager_that_is_killed_between_runs_is_replaced_at_once(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    bed.bench.do(asyncio.sleep(REVIVE_AFTER_S))
    bed.bench.sh(f"kill -9 {bed.manager()}")
    bed.seen.clear()
    bed.wait_for("ready")
    assert bed.birth() != first
    assert bed.notes[-1] == "service kv: started again (it was no longer running)"


def test_orphans_of_a_manager_and_its_supervisors_that_were_killed_together_are_ended(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    # Stop them all first, so that none of them sees another die.
    bed.bench.said(
        f"manager={bed.manager()}; supervisor=$(cut -d' ' -f4 /proc/{bed.pid()}/stat); "
        "kill -STOP $manager $supervisor; kill -KILL $manager $supervisor"
    )
    assert bed.birth() == first
    bed.ensure()
    assert bed.birth() != first


def test_a_service_whose_supervisor_is_killed_is_ended_and_started_again(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    bed.bench.said(f"kill -9 $(cut -d' ' -f4 /proc/{bed.pid()}/stat)")
    info = bed.wait_for("ready", restarts=1)
    assert bed.birth() != first
    assert info.restarts == 1
    assert any("lost its supervisor" in info.reason for infos in bed.seen for info in infos)


def test_a_manager_of_another_version_is_replaced_and_that_is_said(bed: Bed) -> None:
    bed.watcher(bed.kv())
    bed.ensure()
    first = bed.birth()
    bed.bench.do(bed.bench.box.disconnect())
    place = bed.bench.provider
    plain_open = place.open

    def open_newer(agent: bytes, *rest: Any) -> Any:
        buffer = io.BytesIO(agent)
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr("watchtest_agent/newer.py", "")
        return plain_open(buffer.getvalue(), *rest)

    place.open = open_newer  # type: ignore[method-assign]
    bed.ensure()
    assert bed.birth() != first
    assert bed.notes[0].startswith("service kv: started again")


@pytest.mark.docker
def test_a_service_that_eats_all_memory_is_said_to_have_done_so(tmp_path: Path) -> None:
    bench = Bench(docker_provider(replace(container_spec(tmp_path), limits=ConfiguredLimits("60m"))), "python3")
    eater = b"import time\ntime.sleep(0.6)\neaten = []\nwhile True:\n    eaten.append(bytearray(1_000_000))\n"
    try:
        bed = Bed(bench, Tree({"eat.py": eater}), 0)
        bed.watcher(ServiceDefinition("eater", ("python3", "eat.py"), restart_limit=0))
        bed.ensure()
        assert bed.wait_for("failed").reason.startswith("was killed by the kernel: out of memory after it was ready")
        assert bench.said("echo alive") == "alive\n"
    finally:
        bench.close()
        remove_boxes(str(tmp_path), os.environ)
