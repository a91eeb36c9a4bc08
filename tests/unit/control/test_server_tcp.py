"""The control API on a loopback port: only with the token, only under its own host name, only if configured."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.control_server import Bench, bench, short_folder

from watchtest.config import load
from watchtest.control.address import ensure_token, read_token, token_file
from watchtest.control.guard import AccessRules, loopback_access
from watchtest.core.events import SourceChanged
from watchtest.core.model import Lane, Outcome, Policy
from watchtest.errors import ConfigError, ControlError

ANY_PORT = "127.0.0.1:0"


async def send(
    port: int,
    *headers: str,
    token: str = "",
    host: str = "",
    method: str = "GET",
    path: str = "/health",
    body: bytes = b"",
    address: str = "127.0.0.1",
) -> tuple[int, dict[str, Any], str]:
    reader, writer = await asyncio.open_connection(address, port)
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host or f'127.0.0.1:{port}'}",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *([f"Authorization: Bearer {token}"] if token else []),
        *headers,
    ]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(content), head.decode()


def on_a_port(story: Callable[[Bench, int, str], Awaitable[None]], listen: str = ANY_PORT) -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF, listen=listen) as watcher:
                url = (await watcher.get("/info"))["url"]
                await story(watcher, int(url.rpartition(":")[2]), read_token(folder / "token"))
            assert watcher.says == []

    asyncio.run(whole())


def test_with_the_token_every_route_answers_as_on_the_socket() -> None:
    async def story(watcher: Bench, port: int, token: str) -> None:
        info = await watcher.get("/info")
        assert info["url"] == f"http://127.0.0.1:{port}"
        assert read_token(Path(info["token_file"])) == token
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
            status, answer, _ = await send(port, token=token, host=host)
            assert (status, answer["status"]) == (200, "ok")
        status, answer, _ = await send(port, f"Origin: http://localhost:{port}", token=token)
        assert status == 200
        status, run, _ = await send(port, token=token, method="POST", path="/runs", body=b"{}")
        assert status == 202
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        assert (await watcher.end_of(run["id"]))["state"] == "passed"

    on_a_port(story)


def test_six_will_do_as_well_as_four() -> None:
    async def story(watcher: Bench, port: int, token: str) -> None:
        assert (await watcher.get("/info"))["url"] == f"http://[::1]:{port}"
        status, _, _ = await send(port, token=token, address="::1", host=f"[::1]:{port}")
        assert status == 200

    on_a_port(story, "[::1]:0")


def test_without_the_token_nothing_is_told() -> None:
    async def story(watcher: Bench, port: int, token: str) -> None:
        right = f"Authorization: Bearer {token}"
        for headers in (
            [],
            ["Authorization: Bearer wrong"],
            [f"Authorization: Basic {token}"],
            [f"Authorization: {token}"],
            [f"{right}x"],
            [right, right],
            ["Authorization: Bearer \xe9"],
            [f"X-Token: {token}"],
            [f"Cookie: token={token}"],
        ):
            for path, method in (("/health", "GET"), ("/runs", "POST"), ("/nothing", "GET")):
                status, answer, head = await send(port, *headers, method=method, path=path)
                assert (status, answer["code"]) == (401, "no_token"), headers
                assert "www-authenticate: Bearer" in head
                assert token not in json.dumps(answer)
        assert watcher.runs.started == []

    on_a_port(story)


def test_a_foreign_host_or_origin_is_refused_even_with_the_token() -> None:
    async def story(watcher: Bench, port: int, token: str) -> None:
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.2:{port}"):
            status, answer, _ = await send(port, token=token, host=host)
            assert (status, answer["code"]) == (403, "foreign_host"), host
        for origin in ("https://evil.example", "null", "http://localhost", f"https://127.0.0.1:{port}", ""):
            status, answer, _ = await send(port, f"Origin: {origin}", token=token, method="POST", path="/runs")
            assert (status, answer["code"]) == (403, "foreign_origin"), origin
        assert watcher.runs.started == []

    on_a_port(story)


def test_an_origin_is_refused_on_the_socket_too() -> None:
    async def story(watcher: Bench, port: int, _token: str) -> None:
        for origin in (b"https://evil.example", f"http://127.0.0.1:{port}".encode()):
            request = b"POST /runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: " + origin + b"\r\n\r\n"
            answer = await watcher.raw(request)
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert b'"foreign_origin"' in answer
        assert watcher.runs.started == []

    on_a_port(story)


def test_ten_megabytes_are_refused_here_too() -> None:
    async def story(_watcher: Bench, port: int, token: str) -> None:
        body = b" " * 10_000_000
        for path in ("/runs", "/config/validate"):
            status, answer, _ = await send(port, token=token, method="POST", path=path, body=body)
            assert (status, answer["code"]) == (413, "too_large")

    on_a_port(story)


def test_a_port_that_is_taken_is_said_once_and_the_watcher_goes_on() -> None:
    async def whole() -> None:
        with short_folder() as folder, socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            async with bench(folder, listen=listen) as watcher:
                await watcher.until("it says so", lambda: bool(watcher.says))
                assert f'no control port: api.listen = "{listen}": Address already in use' in watcher.says[0]
                assert (await watcher.get("/info"))["url"] is None
                watcher.loop.post(SourceChanged(Lane.SAVE, 1.0, frozenset({"code.py"})))
                await watcher.until("the watcher goes on", lambda: len(watcher.runs.started) == 1)
                watcher.runs.outcomes.put_nowait(Outcome.PASSED)
            assert len(watcher.says) == 1

    asyncio.run(whole())


def test_a_token_that_cannot_be_kept_is_said_and_the_socket_serves_on() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            (folder / "token").mkdir()
            async with bench(folder, listen=ANY_PORT) as watcher:
                await watcher.until("it says so", lambda: bool(watcher.says))
                assert "the token cannot be written to" in watcher.says[0]
                assert (await watcher.get("/health"))["status"] == "ok"

    asyncio.run(whole())


# -- access rules and tokens by themselves ---------------------------------------------------------


def test_the_socket_accepts_any_request_without_an_origin() -> None:
    assert AccessRules().refusal([(b"host", b"anything")]) is None
    refusal = AccessRules().refusal([(b"origin", b"http://localhost")])
    assert refusal is not None
    assert refusal.status == 403


def test_no_host_and_two_hosts_are_foreign() -> None:
    access = loopback_access(7357, "secret")
    right = (b"host", b"localhost:7357")
    for headers in ([], [right, right]):
        refusal = access.refusal([*headers, (b"authorization", b"Bearer secret")])
        assert refusal is not None
        assert refusal.code == "foreign_host"
    assert access.refusal([right, (b"authorization", b"bearer secret")]) is None


def test_a_token_is_made_once_and_for_the_user_alone(tmp_path: Path) -> None:
    file = token_file(tmp_path / "state", Path("/work"))
    token = ensure_token(file)
    assert len(token) >= 40
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert ensure_token(file) == read_token(file) == token
    assert token_file(tmp_path / "state", Path("/other")) != file
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("spoil", ["readable", "short", "link", "empty", "binary"])
def test_a_token_that_others_may_know_is_replaced(tmp_path: Path, spoil: str) -> None:
    file = tmp_path / "token"
    token = ensure_token(file)
    match spoil:
        case "readable":
            file.chmod(0o644)
        case "short":
            file.write_text("abc\n")
        case "empty":
            file.write_text("")
        case "binary":
            file.write_bytes(os.urandom(2000))
        case _:
            file.rename(tmp_path / "elsewhere")
            file.symlink_to(tmp_path / "elsewhere")
    assert read_token(file) == ""
    fresh = ensure_token(file)
    assert fresh != token
    assert not file.is_symlink()
    assert read_token(file) == fresh


def test_a_token_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ControlError, match="cannot be written to"):
        ensure_token(tmp_path / "file" / "token")


# -- the setting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", ["", "127.0.0.1:7357", "localhost:1", "[::1]:65535", "127.0.0.1:0"])
def test_the_loopback_may_be_named(tmp_path: Path, listen: str) -> None:
    assert _configured(tmp_path, listen) == listen


@pytest.mark.parametrize(
    "listen",
    [
        "0.0.0.0:7357",
        ":7357",
        "7357",
        "127.0.0.1",
        "127.0.0.1:65536",
        "127.0.0.1:99999",
        "127.0.0.1:007",
        "192.168.1.5:80",
        "::1:80",
        "[::]:80",
        "localhost.evil.example:80",
        "127.0.0.1:80\n",
        "example.com:80",
    ],
)
def test_anything_but_the_loopback_is_an_error_that_says_what_to_write(tmp_path: Path, listen: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _configured(tmp_path, listen)
    assert str(refused.value) == (
        f"watchtest.toml: api.listen = {json.dumps(listen)}: must be a loopback address, like "
        '"127.0.0.1:7357" or "[::1]:7357"; port 0 means any free port, "" means none'
    )


def _configured(folder: Path, listen: str) -> str:
    (folder / "watchtest.toml").write_text(f"[api]\nlisten = {json.dumps(listen)}\n")
    return load(folder, explicit=None, environ={}, user_folder=None, flags={}).config.api.listen
