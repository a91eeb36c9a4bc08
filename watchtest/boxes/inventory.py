"""List and remove everything that watchtest has created: on container engines, by its labels, and in the cache folder.

Each resource names its workspace and whether that still exists. Commands decide what to do with it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from docker.errors import APIError, NotFound

from watchtest.boxes.docker import labels
from watchtest.boxes.docker.engine_addresses import ENGINE_NAMES, Address, EngineChoice, addresses
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine, connect, find_engine, parse_time
from watchtest.boxes.local import box_folder
from watchtest.errors import BoxError, EngineError
from watchtest.workspace.machine import machine_id

ResourceKind = Literal["container", "image", "volume", "local box"]


@dataclass(frozen=True, slots=True)
class Resource:
    """A container, image, volume or local box, and its workspace. Unknown texts are "", an unknown size is None."""

    what: ResourceKind
    engine: str
    address: str
    """The URL of the engine."""
    id: str
    name: str
    workspace: str
    host: str
    created_at: float
    lane: str = ""
    state: str = ""
    image: str = ""
    size_bytes: int | None = None

    def is_orphan(self, this_host: str) -> bool:
        """Return whether its workspace was on this machine and is gone. An unreadable path counts as existing."""
        return bool(self.workspace) and self.host == this_host and not _may_exist(self.workspace)


def reachable_engines(environ: Mapping[str, str], choice: EngineChoice, say: Callable[[str], None]) -> list[Engine]:
    """Connect to the chosen engine, or with `auto` to all of them. Report those that should answer but do not."""
    if choice != "auto":
        return [find_engine(environ, choice)]
    found: dict[str, Engine] = {}
    tried: set[str] = set()
    for kind in ENGINE_NAMES:
        try:
            for address in addresses(environ, kind):
                if address.url not in tried:
                    tried.add(address.url)
                    _add(found, address, say)
        except EngineError as error:  # the user named an engine that does not exist
            say(f"skipped: {error.message}")
    return list(found.values())


def _add(found: dict[str, Engine], address: Address, say: Callable[[str], None]) -> None:
    """Connect to one more engine, unless another socket has led to it already."""
    try:
        engine = connect(address)
    except EngineError as error:
        say(f"skipped: {error.message}")
        return
    with explained_api(address.url):
        identity = engine.client.info().get("ID") or os.path.realpath(address.url.removeprefix("unix://"))
    if identity in found:
        engine.close()
    else:
        found[identity] = engine


def engine_resources(engine: Engine) -> list[Resource]:
    """List our resources on an engine, in an order in which they can be removed: containers first."""
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
    """Return whether the image has one of our names. An image that the user built on ours has only our labels."""
    return any("/watchtest/" in f"/{tag}" for tag in image.get("RepoTags") or ())  # podman adds a registry in front


def local_resources(folder: Path) -> list[Resource]:
    """List the local boxes in the cache folder."""
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
            workspace=box_folder.read_mark(box, box_folder.WORKSPACE),
            host=box_folder.read_mark(box, box_folder.HOST),
            created_at=box.stat().st_mtime,
            lane=box.name.rpartition("-")[2].removesuffix(box_folder.SECOND),
        )
        for box in boxes
    ]


def remove(resource: Resource, engines: Iterable[Engine]) -> None:
    """Remove one resource, unless it is already gone."""
    if resource.what == "local box":
        box_folder.remove_box(Path(resource.name))
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


def remove_boxes(workspace: str, environ: Mapping[str, str], choice: EngineChoice = "auto") -> int:
    """Remove all resources of a workspace from the engine and return the number of containers."""
    engine = find_engine(environ, choice)
    try:
        found = [one for one in engine_resources(engine) if (one.workspace, one.host) == (workspace, machine_id())]
        for resource in found:
            with contextlib.suppress(BoxError):  # in use by something that belongs to the user
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
    full = {**found, "Id": found["Name"], "Created": parse_time(str(found.get("CreatedAt", "")))}
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
        os.stat(path)  # noqa: PTH116  Path.exists hides why a path cannot be examined
    except (OSError, ValueError) as error:
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True
