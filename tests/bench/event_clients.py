"""What clients of /events cost a run: the same runs without any client, and with 200 clients, one of them stuck.

    python tests/bench/event_clients.py [--clients 200] [--tests 500] [--rounds 10] [--engine local|docker]

Starts a real watcher on a generated project; the clients share a process of their own. Runs alternate between the two
cases; the watcher itself measures each from start to end. Prints the medians and their ratio, which must not exceed
LIMIT. A client that misses a result, or gets one twice, is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from watched import make_repository, next_verdict, watching

from watchtest.client.watcher import ControlClient, WatcherUnreachable
from watchtest.control.address import socket_paths

LIMIT = 1.3
START_LIMIT_S = 300.0
RUN_LIMIT_S = 120.0


def listen(path: str, count: int, tests: int) -> None:
    """Run the clients, in the other process: the first never reads, all others count the results of each run."""
    import selectors

    chosen = selectors.DefaultSelector()
    stuck = connected(path)
    found = {connected(path): [b"", 0] for _ in range(count - 1)}
    for client in found:
        client.setblocking(False)
        chosen.register(client, selectors.EVENT_READ)
    print("ready", flush=True)
    wanted, told = tests, 0
    while chosen.get_map():
        for key, _ in chosen.select():
            client: Any = key.fileobj
            content = client.recv(1 << 16)
            if not content:
                chosen.unregister(client)
                continue
            rest = found[client]
            whole = rest[0] + content
            rest[1] += whole.count(b"event: result\n") - rest[0].count(b"event: result\n")
            rest[0] = whole[-20:]
        if all(number >= wanted for _, number in found.values()):
            extra = [number for _, number in found.values() if number != wanted]
            told += 1
            print("twice" if extra else f"heard {told}", flush=True)
            wanted += tests
    stuck.close()


def connected(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


def worked_s(pid: int) -> float:
    """Return the processor time that the watcher has used so far. Only Linux provides it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_of(client: ControlClient) -> float:
    """Return how many seconds one run of all tests took, by the watcher's own clock."""
    run = client.post("/runs", {"policy": "all"})["id"]
    deadline = time.monotonic() + RUN_LIMIT_S
    while not (report := client.get(f"/runs/{run}"))["ended"]:
        if time.monotonic() > deadline:
            raise SystemExit(f"not ended within {RUN_LIMIT_S:g} s: {report}")
        time.sleep(0.05)
    if report["state"] != "passed":
        raise SystemExit(f"not green: {report}")
    began, ended = (datetime.fromisoformat(report[key]) for key in ("queued_at", "ended_at"))
    return (ended - began).total_seconds()


def measure(root: Path, runtime: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    client = ControlClient(socket_paths(root.resolve(), [runtime]))
    deadline = time.monotonic() + 10
    while True:
        try:
            client.get("/health")
            break
        except WatcherUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    pid = client.get("/info")["pid"]
    alone, among, work = list[float](), list[float](), [0.0, 0.0]
    run_of(client)
    for _ in range(arguments.rounds):
        began = worked_s(pid)
        alone.append(run_of(client))
        work[0] += worked_s(pid) - began
        path = client.get("/info")["socket"]
        command = [sys.executable, __file__, "--listen", path, str(arguments.clients), str(arguments.tests)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as clients:
            assert clients.stdout is not None
            if clients.stdout.readline() != "ready\n":
                raise SystemExit("the clients could not listen")
            began = worked_s(pid)
            among.append(run_of(client))
            work[1] += worked_s(pid) - began
            heard = clients.stdout.readline()
            clients.terminate()
            if heard != "heard 1\n":
                raise SystemExit(f"a client did not get each result once: {heard!r}")
    return {
        "alone_s": round(statistics.median(alone), 4),
        "among_s": round(statistics.median(among), 4),
        "ratio": round(statistics.median(among) / statistics.median(alone), 3),
        "watcher_alone_s": round(work[0] / arguments.rounds, 3),
        "watcher_among_s": round(work[1] / arguments.rounds, 3),
    }


def main() -> int:
    if sys.argv[1:2] == ["--listen"]:
        listen(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--tests", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--image", default="auto")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wt-") as folder:
        root, runtime = Path(folder, "project"), Path(folder, "run")
        root.mkdir()
        lines = [f"def test_{number}():\n    assert sum(range(2000)) > {number}\n" for number in range(arguments.tests)]
        (root / "test_many.py").write_text("\n\n".join(lines))
        make_repository(root)
        environ = {"WATCHTEST_RUNTIME_DIR": str(runtime), "WATCHTEST_SELECTION_MODE": "all"}
        with watching(root, arguments.engine, arguments.image, environ):
            next_verdict(root, None, START_LIMIT_S)
            found = measure(root, runtime, arguments)
    about = {"clients": arguments.clients, "tests": arguments.tests, "rounds": arguments.rounds}
    print(json.dumps({**about, **found, "limit": LIMIT, "cores": os.cpu_count()}))
    return 0 if found["ratio"] <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
