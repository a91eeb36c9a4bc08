"""Tests that run in the box, against the service that watchtest keeps running there."""

import importlib.metadata
from pathlib import Path

import grpc
import kv_pb2
import kv_pb2_grpc
import pytest

PORT = 5328


@pytest.fixture
def store():
    with grpc.insecure_channel(f"127.0.0.1:{PORT}") as channel:
        grpc.channel_ready_future(channel).result(timeout=10)
        yield kv_pb2_grpc.StoreStub(channel)


def test_the_packages_are_installed():
    assert importlib.metadata.version("grpcio") == "1.73.0"
    assert importlib.metadata.version("grpcio-tools") == "1.73.0"


def test_a_real_process_listens():
    """By the kernel's own tables: a listening socket on the port, held by a process that runs server.py."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{PORT:04X}") and row[3] == "0A"}
    assert sockets
    commands = []
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(handle.readlink()) in sockets:
                commands.append((handle.parents[1] / "cmdline").read_bytes())
        except OSError:
            continue  # ended while we looked
    assert any(b"server.py" in command for command in commands)


def test_a_handshake(store):
    assert store.Hello(kv_pb2.Greeting(text="test")).text == "welcome, test"


def test_values_can_be_set_and_got(store):
    store.Set(kv_pb2.Pair(key="colour", value="blue"))
    assert store.Get(kv_pb2.Key(key="colour")).value == "blue"
