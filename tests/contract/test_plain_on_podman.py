"""A box without Python on podman: archives and commands, where the engines differ."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.images import BARE
from support.box_bench import Bench, Tree, expected, found_in
from support.containers import container_spec, docker_provider, podman_environ

from watchtest.boxes.inventory import remove_boxes
from watchtest.boxes.protocols import REPORT, Command, JobLimits, JobSpec

pytestmark = pytest.mark.podman


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    environ = podman_environ()
    bench = Bench(docker_provider(container_spec(tmp_path), environ), "", BARE)
    try:
        yield bench
    finally:
        bench.close()
        remove_boxes(str(tmp_path), environ)


def test_the_tree_is_exact_before_and_after_a_run_that_writes_into_it(bench: Bench) -> None:
    tree = Tree({"a/b": b"1", "run": b"2", "link": b"-> ../../a/b", "hollow": None, "gone/x": b"3"}, {"run": 0o755})
    bench.sync(tree)
    bench.said("echo wrong > a/b; rm -r hollow link; chmod 600 run")
    del tree.content["gone/x"]
    bench.sync(tree)
    assert found_in(bench) == expected(tree)


def test_a_command_tells_its_rows_report_and_end_and_leaves_nothing(bench: Bench) -> None:
    script = f"""echo '{{"n":1}}'; echo words >&2; printf report > {REPORT}; setsid env -i sleep 600 & exit 3"""
    job = JobSpec(Command(("sh", "-c", script), has_rows=True), JobLimits(30, 30, 1))
    end = bench.do(bench.open().run(job, bench.rows.extend, lambda _text: None))
    assert (end.exit_code, bench.rows, end.output, end.report) == (3, [{"n": 1}], "words\n", b"report")
    assert bench.said("grep -l '[s]leep.600' /proc/[0-9]*/cmdline || echo none") == "none\n"


def test_a_run_is_stopped(bench: Bench) -> None:
    stops: asyncio.Queue[bool] = asyncio.Queue()
    job = JobSpec(
        Command(("sh", "-c", "trap '' INT TERM; echo on; while :; do sleep 600; done")), JobLimits(30, 30, 0.2)
    )
    end = bench.do(bench.open().run(job, bench.rows.extend, lambda _text: stops.put_nowait(False), stops))
    assert end.stopped == "cancelled"
    assert bench.said("echo alive") == "alive\n"
