"""Commands in a container, with an engine that answers on a socket of ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

import docker
import pytest

from watchtest.boxes.docker.container_exec import ExecConnection

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
CREATED = b'HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 10\r\n\r\n{"Id":"e"}'


@contextmanager
def engine(folder: Path, *pieces: bytes) -> Iterator[docker.APIClient]:
    """Provide a client of an engine whose commands send these pieces, headers included, and end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            for piece in pieces if self.path.endswith("/start") else (CREATED,):
                self.wfile.write(piece)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingUnixStreamServer):
        daemon_threads = True

    with Server(str(folder / "engine"), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with closing(docker.APIClient(f"unix://{folder}/engine", version="1.41", timeout=30)) as client:
            yield client
        server.shutdown()


@pytest.mark.parametrize("cut", [0, 3, 8, 10], ids=lambda cut: f"{cut} bytes with the headers")
def test_output_that_arrives_with_the_headers_is_not_lost(tmp_path: Path, cut: int) -> None:
    output = b"\x01\0\0\0\0\0\0\x02on\x02\0\0\0\0\0\0\x01!"
    with engine(tmp_path, UPGRADED + output[:cut], output[cut:]) as client:
        connection = ExecConnection(client, "c", ["true"], user="")
        with closing(connection):
            pieces = []
            while found := connection.read():
                pieces += found
    assert pieces == [(1, b"on"), (2, b"!")]
