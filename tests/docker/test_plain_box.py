"""Boxes without Python, on a real engine: what the contract for all boxes does not cover.

tests/contract covers the rest: the exact tree, limits, output, the environment of a run.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from engine.images import BARE, PYTHON_313
from support.box_bench import Bench, Tree
from support.containers import Make, container_spec, docker_provider, recipe

from watchtest.boxes.docker.container_tools import DockerTools
from watchtest.boxes.docker.engines import find_engine
from watchtest.boxes.environment import Environment
from watchtest.boxes.inventory import remove_boxes
from watchtest.boxes.no_python.shell_session import ShellSession
from watchtest.boxes.protocols import REPORT, Command, JobLimits, JobResult, JobSpec, Recipe, StopSignal
from watchtest.errors import BoxError, BoxGone, ChannelLost, ServiceError

# Children of every kind: in a separate session, with an empty environment, orphaned, and all of that at once.
NASTY = """
(sleep 601 &)
setsid sleep 602 &
env -i sleep 603 &
(setsid env -i sleep 604 &)
setsid env -i sh -c 'trap "" INT TERM HUP; while :; do sleep 605; done' &
"""


def left_over(client: docker.DockerClient, bench: Bench) -> list[str]:
    """Return the commands in the box that do not belong to it, as the engine sees them."""
    assert bench.box.info is not None
    rows = client.containers.get(bench.box.info.id).top(ps_args="-eo pid,args")["Processes"]
    return [command for _, command in rows if "2147483647" not in command and "docker-init" not in command]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(docker_provider(container_spec(tmp_path)), "", BARE)
    try:
        yield bench
    finally:
        bench.close()
        remove_boxes(str(tmp_path), os.environ)


def run(bench: Bench, job: JobSpec, stop: asyncio.Queue[bool] | None = None, on_output: Any = None) -> JobResult:
    bench.rows.clear()
    return bench.do(bench.open().run(job, bench.rows.extend, on_output or (lambda _text: None), stop))


def sh(script: str, *, limits: JobLimits | None = None, **options: Any) -> JobSpec:
    return JobSpec(Command(("sh", "-c", script), **options), limits or JobLimits(30, 30, 0.3))


def test_a_command_is_green_or_red_by_its_exit_code(bench: Bench) -> None:
    bench.sync(
        Tree({"sub/check.sh": b'#!/bin/sh\ntest "$1" = "$(cat wanted)"\n', "sub/wanted": b"3"}, {"sub/check.sh": 0o755})
    )
    green = run(bench, JobSpec(Command(("./check.sh", "3"), folder="sub"), JobLimits(30, 30, 1)))
    red = run(bench, JobSpec(Command(("./check.sh", "4"), folder="sub"), JobLimits(30, 30, 1)))
    assert (green.exit_code, red.exit_code, green.reason, red.reason) == (0, 1, "", "")


def test_variables_and_folders_of_a_job_are_there(bench: Bench) -> None:
    bench.sync(Tree({"tools/hello": b'#!/bin/sh\necho "$GREETING from $PWD"\n'}, {"tools/hello": 0o755}))
    job = JobSpec(Command(("hello",)), JobLimits(30, 30, 1), {"GREETING": "good day"}, ("/workspace/tools",))
    assert run(bench, job).output == "good day from /workspace\n"


def test_rows_are_told_from_other_output(bench: Bench) -> None:
    script = """
        echo '{"Action":"run"}'; echo words; echo '{broken'
        echo '{"Action":"pass"}' ; echo aside >&2; printf '{"n":1}'
    """
    end = run(bench, sh(script, has_rows=True))
    assert bench.rows == [{"Action": "run"}, {"Action": "pass"}, {"n": 1}]
    assert sorted(end.output.split()) == ["aside", "words", "{broken"]


def test_a_report_comes_back_and_none_of_an_earlier_run(bench: Bench) -> None:
    written = run(bench, sh(f"printf '<xml/>' > {REPORT}; exit 1"))
    assert (written.report, written.exit_code) == (b"<xml/>", 1)
    assert run(bench, sh(f"true {REPORT}")).report is None


def test_a_polite_cancel_is_heard(bench: Bench) -> None:
    stops: asyncio.Queue[bool] = asyncio.Queue()
    script = "trap 'echo cleaned up; exit 3' INT; echo started; while :; do sleep 0.05; done"
    end = run(bench, sh(script), stops, lambda text: stops.put_nowait(False) if "started" in text else None)
    assert end.stopped == "cancelled"
    assert "cleaned up" in end.output


@pytest.mark.parametrize("is_kill", [True, False])
def test_nothing_of_a_stopped_run_is_left(bench: Bench, docker_client: docker.DockerClient, is_kill: bool) -> None:
    stops: asyncio.Queue[bool] = asyncio.Queue()
    script = f"{NASTY} trap '' INT TERM; echo started; while :; do sleep 606; done"
    end = run(bench, sh(script), stops, lambda text: stops.put_nowait(is_kill) if "started" in text else None)
    assert end.stopped == ("killed" if is_kill else "cancelled")
    assert left_over(docker_client, bench) == []
    assert bench.said("echo alive") == "alive\n"


def test_nothing_of_a_finished_run_is_left(bench: Bench, docker_client: docker.DockerClient) -> None:
    end = run(bench, sh(f"{NASTY} sleep 0.2; echo done"))
    assert (end.exit_code, end.output) == (0, "done\n")
    assert left_over(docker_client, bench) == []


@pytest.mark.thorough
def test_what_was_left_running_by_hand_is_not_of_the_run(bench: Bench, docker_client: docker.DockerClient) -> None:
    bench.open()
    assert bench.box.info is not None
    docker_client.containers.get(bench.box.info.id).exec_run(["sh", "-c", "(setsid sleep 777 &)"])
    run(bench, sh(f"{NASTY} true"))
    assert left_over(docker_client, bench) == ["sleep 777"]


def test_a_run_that_takes_too_long_is_ended_with_all_it_started(
    bench: Bench, docker_client: docker.DockerClient
) -> None:
    bench.open()
    began = time.monotonic()
    end = run(bench, sh(f"{NASTY} trap '' INT TERM; while :; do sleep 606; done", limits=JobLimits(1, 30, 0.3)))
    assert time.monotonic() - began < 1 + 5
    assert (end.stopped, end.reason) == ("timed_out", "the run took longer than 1 s")
    assert left_over(docker_client, bench) == []


@pytest.mark.thorough
def test_a_fork_of_two_hundred_children_is_ended(bench: Bench, docker_client: docker.DockerClient) -> None:
    script = "i=0; while [ $i -lt 200 ]; do setsid sleep 608 & i=$((i+1)); done; wait"
    bench.open()
    began = time.monotonic()
    end = run(bench, sh(script, limits=JobLimits(2, 30, 0.3)))
    assert time.monotonic() - began < 2 + 5
    assert end.stopped == "timed_out"
    assert left_over(docker_client, bench) == []


def test_a_run_that_kills_its_supervisor_is_no_green(bench: Bench, docker_client: docker.DockerClient) -> None:
    end = run(bench, sh("(setsid sleep 609 &); kill -9 $PPID; sleep 610"))
    assert end.exit_code is None
    assert "supervisor" in end.reason
    assert left_over(docker_client, bench) == []


def test_a_run_whose_host_is_gone_ends_by_itself(bench: Bench, docker_client: docker.DockerClient) -> None:
    session = bench.open()

    async def leave_in_the_middle() -> None:
        started = asyncio.Event()
        running = asyncio.create_task(
            session.run(sh(f"{NASTY} echo started; sleep 611"), lambda _rows: None, lambda _text: started.set())
        )
        await started.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    bench.do(leave_in_the_middle())
    deadline = time.monotonic() + 5
    while left_over(docker_client, bench) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_over(docker_client, bench) == []
    assert bench.said("echo alive") == "alive\n"


def test_a_box_that_is_removed_under_a_run_gives_no_verdict(bench: Bench, docker_client: docker.DockerClient) -> None:
    bench.sync(Tree({"a": b"1"}))
    assert bench.box.info is not None
    container = docker_client.containers.get(bench.box.info.id)

    def remove(text: str) -> None:
        if "started" in text:
            container.remove(force=True)

    with pytest.raises((BoxGone, ChannelLost)):
        run(bench, sh("echo started; sleep 600"), None, remove)
    bench.sync(Tree({"a": b"1"}))
    assert bench.said("cat a") == "1", "the next one is created from scratch"


@pytest.mark.parametrize("what", ["removed", "started again"])
@pytest.mark.thorough
def test_a_box_that_is_lost_while_idle_is_noticed(bench: Bench, docker_client: docker.DockerClient, what: str) -> None:
    reasons: list[str] = []
    bench.box.on_lost = reasons.append
    bench.open()
    assert bench.box.info is not None
    container = docker_client.containers.get(bench.box.info.id)
    container.remove(force=True) if what == "removed" else container.restart(timeout=0)
    deadline = time.monotonic() + 8
    while not reasons and time.monotonic() < deadline:
        bench.do(asyncio.sleep(0.1))
    assert len(reasons) == 1
    assert bench.said("echo alive") == "alive\n"


def test_a_second_watcher_ends_the_run_of_the_first_and_takes_the_box(bench: Bench) -> None:
    first = bench.open()
    other = Bench(bench.provider, "", BARE)
    try:
        other.open()
        with pytest.raises(ChannelLost, match="another watcher has taken"):
            bench.do(first.refresh())
        assert other.said("echo alive") == "alive\n"
    finally:
        other.close()


def test_odd_names_arrive_and_stay(bench: Bench) -> None:
    names = [
        "new\nline",
        "back\\slash",
        " space ",
        "-rf",
        "*",
        "'quote\"",
        "== end",
        "sub/-n",
        "$(touch x)",
        ".hidden",
        "..odd",
    ]
    tree = Tree({name: name.encode() for name in names} | {"li\nnk": b"-> -n"})
    bench.sync(tree)
    for name in names:
        end = run(bench, JobSpec(Command(("cat", f"./{name}")), JobLimits(30, 30, 1)))
        assert end.output == name
    bench.said("echo wrong > 'new\nline'")
    bench.sync(tree)
    assert bench.said("cat new*") == "new\nline"
    bench.sync(Tree({"a": b"1"}))
    assert bench.said("ls -A") == ".watchtest\na\n"


@pytest.mark.thorough
def test_a_folder_that_became_a_link_to_the_same_content_is_a_folder_again(bench: Bench) -> None:
    tree = Tree({"a/b/c": b"1", "d": b"2"})
    bench.sync(tree)
    bench.said("mv a /tmp/a; ln -s /tmp/a a")
    bench.sync(tree)
    assert bench.said("test ! -L a && cat a/b/c; cat /tmp/a/b/c") == "11"


def test_a_pipe_in_the_place_of_a_file_blocks_nothing(bench: Bench) -> None:
    tree = Tree({"a": b"1", "b": b"2"})
    bench.sync(tree)
    bench.said("rm a; mkfifo a")
    bench.sync(tree)
    assert bench.said("cat a") == "1"


def test_a_sync_that_was_interrupted_is_made_good_by_the_next_session(bench: Bench) -> None:
    bench.sync(Tree({"a": b"1", "b": b"2", "old/c": b"3"}))
    bench.said("rm /opt/watchtest/plain/manifest; echo half > a")  # as a crash halfway leaves it
    bench.do(bench.box.disconnect())
    bench.sync(Tree({"a": b"1", "b": b"2"}))
    assert bench.said("cat a b; ls") == "12a\nb\n"


def test_build_tools_see_that_a_file_has_changed(bench: Bench) -> None:
    bench.sync(Tree({"source": b"1"}))
    bench.said("sleep 0.01; touch made")
    bench.sync(Tree({"source": b"2"}))
    assert bench.sh("test source -nt made").exit_code == 0


def test_files_belong_to_the_user_of_the_box(tmp_path: Path, provider: Make) -> None:
    bench = Bench(provider(user="nobody", hardened=True), "", BARE)
    try:
        tree = Tree({"a/b": b"1", "private": b"2"}, {"private": 0o600})
        bench.sync(tree)
        assert (
            bench.said("cat a/b private; echo 3 > a/b; touch a/c; stat -c %U a a/b a/c") == "12nobody\nnobody\nnobody\n"
        )
        bench.sync(tree)
        assert bench.said("cat a/b") == "1"
    finally:
        bench.close()


@pytest.mark.thorough
def test_a_thousand_files_take_seconds_not_minutes(bench: Bench) -> None:
    tree = Tree({f"folder{number % 40}/file{number}": b"%d" % number for number in range(1000)})
    bench.open()
    began = time.monotonic()
    bench.sync(tree)
    first_s = time.monotonic() - began
    tree.content = {path: content and content + b"!" for path, content in tree.content.items()}
    bench.sync(tree)
    assert first_s < 5
    assert time.monotonic() - began < 10
    assert bench.said("cat folder1/file41") == "41!"


@pytest.mark.thorough
def test_an_agent_that_comes_later_knows_what_is_ours_and_so_does_a_plain_session_after_it(
    tmp_path: Path, provider: Make
) -> None:
    """This happens when setup installs a Python."""
    bench = Bench(provider(), "python3", PYTHON_313)

    async def plainly(tree: Tree) -> None:
        assert bench.box.info is not None
        tools = DockerTools(lambda: find_engine(os.environ, "docker"), bench.box.info.id, user="", name="box")
        session = ShellSession(tools, bench.provider.root, bench.provider.home)
        await session.open()
        await session.sync(tree.snapshot(), tree.read)
        await session.channel.close()

    try:
        bench.open()
        bench.do(bench.box.disconnect())
        bench.do(plainly(Tree({"a": b"1", "b": b"1"})))
        bench.sync(Tree({"b": b"2", "c": b"2"}))
        assert bench.said("ls; cat b c") == "b\nc\n22"
        bench.do(bench.box.disconnect())
        bench.do(plainly(Tree({"d": b"3"})))
        assert bench.said("ls") == "d\n"
    finally:
        bench.close()


# -- what stands around a run ----------------------------------------------------------------------


def prepare(bench: Bench, of: Recipe, notes: list[str]) -> Any:
    environment = Environment(bench.provider, timeout_s=60, grace_s=1, python="", env={})
    session = bench.open()
    standing = bench.do(environment.standing(session, of, is_new=False))
    return bench.do(environment.prepare(session, of, standing, notes.append, StopSignal()))


def test_setup_runs_once_without_a_virtualenv(bench: Bench) -> None:
    notes: list[str] = []
    first = prepare(bench, recipe(BARE, "echo made > /opt/made"), notes)
    assert (first.python, first.is_fresh) == ("", True)
    assert "setup: echo made > /opt/made" in notes
    assert not any("virtualenv" in note for note in notes)
    assert bench.said("cat /opt/made") == "made\n"
    bench.do(bench.box.disconnect())
    again = prepare(bench, recipe(BARE, "echo made > /opt/made"), notes)
    assert (again.python, again.is_fresh) == ("", False)
    assert bench.provider.is_prepared()


def test_a_setup_that_fails_says_so(bench: Bench) -> None:
    with pytest.raises(BoxError, match=r"setup failed: echo why; exit 4 \(exit code 4\)\nwhy"):
        prepare(bench, recipe(BARE, "echo why; exit 4"), [])


def test_what_needs_python_is_refused_with_what_to_do(bench: Bench) -> None:
    wants_pytest = Recipe(recipe(BARE).image, "", (), needs_pytest=True, key="k")
    with pytest.raises(BoxError, match=r"no Python 3\.8 or newer in the image") as caught:
        prepare(bench, wants_pytest, [])
    assert "box.image" in caught.value.hint
    with pytest.raises(ServiceError, match="services need Python"):
        bench.do(bench.open().apply_services({"services": []}))
