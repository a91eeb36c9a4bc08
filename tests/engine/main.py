"""The commands `up`, `down` and `status`, which print what they do line by line."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from engine import daemon, images, podman
from engine.command import EngineScriptError
from engine.wire import Engine

LOCK_TIMEOUT_S = 600.0
BUILD_PROGRAMS = {"debootstrap": "debootstrap", str(images.KEYRING): "debian-archive-keyring"}


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    cache = cache_folder(os.environ)
    # dockerd, iptables and debootstrap lie in folders that an ordinary PATH may leave out.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    root = options.root.resolve() if options.root else None
    place = daemon.Place(root or cache, root)
    beside = None if root else podman_place(os.environ)
    engine = Engine(place.host) if root else Engine.from_environment(os.environ)
    signal.signal(signal.SIGTERM, _told_to_end)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if options.command == "status":
            return status(engine, place, beside)
        with _lock(cache):
            return up(engine, place, beside, cache) if options.command == "up" else down(place, beside)
    except (EngineScriptError, OSError) as error:
        print(f"tests/engine {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def up(engine: Engine, place: daemon.Place, beside: podman.PodmanPlace | None, cache: Path) -> int:
    began = time.monotonic()
    if (absence := engine.absence()) is None:
        _say(f"found engine {engine.version()} at {engine.host}")
    elif engine.host != place.host:
        raise EngineScriptError(f"{absence}; DOCKER_HOST names it, so none is started in its place")
    else:
        for line in daemon.stop(place):
            _say(f"cleared away: {line}")
        daemon.install({**daemon.PROGRAMS, **BUILD_PROGRAMS, **(podman.PROGRAMS if beside else {})}, _say)
        # Where the system starts services automatically, installing the package has just started one.
        if engine.absence() is None:
            _say(f"found engine {engine.version()} at {engine.host}: its package started it, so it stays the system's")
        else:
            daemon.start(place, _say)
    _provide_images(engine, cache)
    if beside:
        _up_beside(beside, cache)
    _say(f"ready in {time.monotonic() - began:.1f} s")
    return 0


def _up_beside(place: podman.PodmanPlace, cache: Path) -> None:
    """Start podman too, for the tests of podman boxes. It is optional: without it those tests skip."""
    engine = Engine(place.host)
    if engine.absence() is None:
        _say(f"found podman {engine.version()} at {engine.host}")
    elif os.geteuid() != 0:
        _say("no podman is started: that needs root; tests on podman will be skipped")
        return
    else:
        daemon.stop(place)
        daemon.install(podman.PROGRAMS, _say)
        daemon.start(place, _say)
    _provide_images(engine, cache)


def down(place: daemon.Place, beside: podman.PodmanPlace | None) -> int:
    lines = daemon.stop(place)
    if beside and daemon.started(beside):
        try:
            beside.end_containers()
        finally:
            lines += daemon.stop(beside)
    lines = lines or ["nothing to stop: no engine was started from here"]
    for line in lines:
        _say(line)
    return 0


def status(engine: Engine, place: daemon.Place, beside: podman.PodmanPlace | None) -> int:
    """Return 0 if the tests can use the engine as it is. Podman is reported but optional."""
    lacks = images.lack(engine)
    _say(lacks or f"engine {engine.version()} at {engine.host} has every test image")
    if beside:
        _say(images.lack(Engine(beside.host)) or f"podman at {beside.host} has every test image")
    for own in [*daemon.started(place), *(daemon.started(beside) if beside else ())]:
        _say(f"started from here: {own.name} (process {own.pid}), {'running' if own.is_alive() else 'ended'}")
    return 1 if lacks else 0


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "watchtest-test-images"


def podman_place(environment: Mapping[str, str]) -> podman.PodmanPlace:
    """Return the podman of the tests; its socket has the same path whether or not it was started from here."""
    return podman.PodmanPlace(cache_folder(environment) / "podman")


def _provide_images(engine: Engine, cache: Path) -> None:
    recipes = images.missing(engine)
    if not recipes:
        _say("every test image is there")
        return
    if unbuilt := images.unbuilt(recipes, cache):
        if os.geteuid() != 0:
            tags = ", ".join(recipe.tag for recipe in unbuilt)
            raise EngineScriptError(f"{tags} must be built, which needs root; run `up` once as root, or tag your own")
        daemon.install(BUILD_PROGRAMS, _say)
    images.provide(engine, recipes, cache, _say)


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """Allow one command at a time: two would install, build and start at once. The system frees the lock if we die."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with (cache / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EngineScriptError(
                        f"another `tests/engine` has held {file.name} for {LOCK_TIMEOUT_S:.0f} s"
                    ) from None
                time.sleep(0.2)
        yield


def _told_to_end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python tests/engine", description="A real container engine for the tests.")
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument(
        "--root", type=Path, help="an engine apart from any other: its data, socket and log lie in this folder"
    )
    return parser
