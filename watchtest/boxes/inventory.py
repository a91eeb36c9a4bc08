"""Everything of ours that lies about: on container engines, by its labels, and in the cache folder. Lists and removes.

Whose it is, and whether that workspace is still there, is told; what to do about it is for a command to decide.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from docker.errors import APIError, NotFound

from watchtest.boxes.docker import labels
from watchtest.boxes.docker.engine_addresses import Address, EngineChoice, EngineKind, addresses
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine, connect, find_engine
from watchtest.boxes.local.box_folder import remove_box
from watchtest.errors import BoxError, EngineError
from watchtest.workspace.machine import machine_id

ResourceKind = Literal["container", "image", "volume", "local box"]


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing of ours, and whose it is. Unknown texts are "", an unknown size is None."""

    what: ResourceKind
    engine: str
    address: str
    """Of the engine."""
    id: str
    name: str
    workspace: str
    host: str
    lane: str
    state: str
    image: str
    created_at: float
    size_bytes: int | None

    def is_orphan(self, this_host: str) -> bool:
        """Its workspace was on this machine and is there no more. What cannot be looked at is not gone."""
        return bool(self.workspace) and self.host == this_host and not _may_exist(self.workspace)


def reachable_engines(environ: Mapping[str, str], wish: EngineChoice, say: Callable[[str], None]) -> list[Engine]:
    """Every engine that can be asked: of `auto`, all there are. One that should answer and does not is said."""
    if wish != "auto":
        return [find_engine(environ, wish)]
    kinds: tuple[EngineKind, ...] = get_args(EngineKind)
    found: dict[str, Engine] = {}
    tried: set[str] = set()
    for kind in kinds:
        try:
            for address in addresses(environ, kind):
                if address.url not in tried:
                    tried.add(address.url)
                    _add(found, address, say)
        except EngineError as error:  # what the user named does not exist
            say(f"not looked at: {error.message}")
    return list(found.values())


def _add(found: dict[str, Engine], address: Address, say: Callable[[str], None]) -> None:
    """Connect to one more engine. Two sockets may lead to the same."""
    try:
        engine = connect(address)
    except EngineError as error:
        say(f"not looked at: {error.message}")
        return
    with explained_api(address.url):
        identity = engine.client.info().get("ID") or os.path.realpath(address.url.removeprefix("unix://"))
    if identity in found:
        engine.close()
    else:
        found[identity] = engine


def engine_resources(engine: Engine) -> list[Resource]:
    """Containers first: what is removed in this order can be removed."""
    ours = {"label": [labels.WORKSPACE]}
    with explained_api("the engine"):
        boxes = [
            found for found in engine.client.containers(all=True, filters=ours) if found["Labels"].get(labels.LANE)
        ]
        containers = [_container(engine, found) for found in boxes]
        images = [_image(engine, found) for found in engine.client.images(filters=ours) if _is_ours(found)]
        volumes = [_volume(engine, found) for found in engine.client.volumes(filters=ours).get("Volumes") or ()]
    return [*containers, *images, *volumes]


def _is_ours(image: Mapping[str, Any]) -> bool:
    """What the user built on one of our images has its labels, but a name of its own."""
    return any("/watchtest/" in f"/{tag}" for tag in image.get("RepoTags") or ())  # podman puts a registry before it


def local_resources(folder: Path) -> list[Resource]:
    """The boxes of the cache folder, each with a note of its workspace."""
    try:
        boxes = sorted(box for box in (folder / "boxes").iterdir() if box.is_dir())
    except FileNotFoundError:
        return []
    return [
        Resource(
            what="local box",
            engine="local",
            address="",
            id=box.name,
            name=str(box),
            workspace=_line(box / "workspace"),
            host=_line(box / "host"),
            lane=box.name.rpartition("-")[2],
            state="",
            image="",
            created_at=box.stat().st_mtime,
            size_bytes=None,
        )
        for box in boxes
    ]


def remove(resource: Resource, engines: Iterable[Engine]) -> None:
    """Remove one thing. That somebody was quicker is fine."""
    if resource.what == "local box":
        remove_box(Path(resource.name))
        return
    engine = next(engine for engine in engines if engine.address.url == resource.address)
    with explained_api(resource.name):
        try:
            if resource.what == "container":
                engine.client.remove_container(resource.id, force=True, v=True)
            elif resource.what == "image":
                engine.client.remove_image(resource.name)
            else:
                engine.client.remove_volume(resource.id, force=True)
        except NotFound:
            return
        except APIError as error:
            if error.status_code != 409:
                raise
            raise BoxError(f"{resource.name} is in use: {error.explanation}", hint="it stays") from error


def remove_boxes(workspace: str, environ: Mapping[str, str], wish: EngineChoice = "auto") -> int:
    """Remove all that a workspace has on the engine; how many containers there were."""
    engine = find_engine(environ, wish)
    try:
        found = [one for one in engine_resources(engine) if (one.workspace, one.host) == (workspace, machine_id())]
        for resource in found:
            with contextlib.suppress(BoxError):  # in use by something of the user's own
                remove(resource, [engine])
    finally:
        engine.close()
    return sum(one.what == "container" for one in found)


def _container(engine: Engine, found: Mapping[str, Any]) -> Resource:
    name = next(iter(found.get("Names") or ()), found["Id"]).lstrip("/")
    return _labelled(engine, "container", found, name=name, state=str(found.get("State", "")))


def _image(engine: Engine, found: Mapping[str, Any]) -> Resource:
    name = next(iter(found.get("RepoTags") or ()), "") or str(found["Id"])
    role = str((found.get("Labels") or {}).get(labels.ROLE, ""))
    return _labelled(engine, "image", found, name=name, state=role, size=int(found.get("Size") or 0))


def _volume(engine: Engine, found: Mapping[str, Any]) -> Resource:
    full = {**found, "Id": found["Name"], "Created": _epoch(str(found.get("CreatedAt", "")))}
    return _labelled(engine, "volume", full, name=str(found["Name"]), state="")


def _labelled(
    engine: Engine, what: ResourceKind, found: Mapping[str, Any], *, name: str, state: str, size: int | None = None
) -> Resource:
    marks: Mapping[str, str] = found.get("Labels") or {}
    return Resource(
        what=what,
        engine=engine.kind,
        address=engine.address.url,
        id=str(found["Id"]),
        name=name,
        workspace=marks.get(labels.WORKSPACE, ""),
        host=marks.get(labels.HOST, ""),
        lane=marks.get(labels.LANE, "") if what == "container" else "",
        state=state,
        image=marks.get(labels.IMAGE, "") if what == "container" else "",
        created_at=float(found.get("Created") or 0),
        size_bytes=size,
    )


def _may_exist(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116  a path of any bytes, and the reason it cannot be looked at
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def _line(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes()).strip("\n")
    except OSError:
        return ""


def _epoch(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return 0.0
