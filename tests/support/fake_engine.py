"""A fake engine on a socket that gives prepared answers, and a fake `ssh` that reaches it without a network."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

DOCKER = {"Version": "99.1", "ApiVersion": "1.41", "Components": [{"Name": "Engine", "Version": "99.1"}]}
PODMAN = {"Version": "5.0", "ApiVersion": "1.41", "Components": [{"Name": "Podman Engine", "Version": "5.0"}]}

SSH = """#!{python}
# The first connection makes its control socket and lasts as long as its input; the others lead to the engine.
import os, pathlib, socket, sys, threading
if "{complaint}":
    sys.exit("{complaint}")
if "-M" in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index("-S") + 1]).touch()
    while os.read(0, 4096):
        pass
    sys.exit()
near, far = socket.socket(fileno=0), socket.socket(socket.AF_UNIX)
far.connect("{engine}")
def carry(source, target):
    while piece := source.recv(65536):
        target.sendall(piece)
    target.shutdown(socket.SHUT_WR)
threading.Thread(target=carry, args=(far, near)).start()
carry(near, far)
"""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    answers: Mapping[str, Any]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/v1.41")
        body = json.dumps(self.server.answers.get(path, {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def fake_engine(socket: Path, version: Mapping[str, Any] = DOCKER, **answers: Any) -> Iterator[str]:
    """Serve a fake engine and yield its address. `answers` are keyed by the last part of a path: info={...}."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    with _Server(str(socket), _Handler) as server:
        server.answers = {"/version": version, **{f"/{name}": answer for name, answer in answers.items()}}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"unix://{socket}"
        finally:
            server.shutdown()
            thread.join(timeout=10)


def fake_ssh(folder: Path, engine: Path, complaint: str = "") -> Path:
    """Return a folder for PATH that contains a fake `ssh`."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ssh"
    program.write_text(SSH.format(python=sys.executable, engine=engine, complaint=complaint))
    program.chmod(0o755)
    return folder
