"""The containers of a workspace: find them by their labels, and adopt, restart or recreate them.

watchtest may be killed at any moment, so a container is removed only after its content is in another one.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import docker
from docker.errors import APIError

from watchtest.boxes.docker import labels
from watchtest.boxes.docker.container_spec import (
    ContainerSpec,
    create_container,
    create_folders,
    remove_container,
    start_container,
)
from watchtest.boxes.docker.images import BoxOrigin, Images
from watchtest.boxes.protocols import Note, Recipe
from watchtest.errors import BY_ITSELF, BoxGone

ContainerSummary = Mapping[str, Any]
"""A container as the engine lists it."""
LOST = ("removing", "dead")
"""States that a failed removal leaves behind for ever, for example after a crash of the engine."""


class Containers:
    """The container of one lane, and those of the workspace's other lanes. `restarts` counts its restarts."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._spec = spec
        self.restarts = 0
        self._has_tidied = False

    # -- finding -----------------------------------------------------------------------------------

    def all(self, client: docker.APIClient) -> list[ContainerSummary]:
        """Return the containers of every lane, the newest first."""
        wanted = [f"{name}={value}" for name, value in self._spec.owner.labels.items()]
        found = client.containers(all=True, filters={"label": wanted})
        boxes = [one for one in found if one["Labels"].get(labels.LANE)]
        return sorted(boxes, key=lambda one: -int(one["Created"]))

    def find(self, client: docker.APIClient) -> ContainerSummary | None:
        """Return the container of our lane in any state; the newest, if a killed watcher has left several."""
        return _living(self._of_lane(client))

    def require(self, client: docker.APIClient) -> ContainerSummary:
        found = self.find(client)
        if found is None:
            raise BoxGone("there is no box", hint="the next run creates it; so does `watchtest reset`")
        return found

    def _of_lane(self, client: docker.APIClient) -> list[ContainerSummary]:
        return [one for one in self.all(client) if one["Labels"][labels.LANE] == self._spec.lane]

    def remove_all(self, client: docker.APIClient) -> int:
        """Remove the containers of every lane and return their number."""
        return _remove(client, self.all(client))

    def remove_own(self, client: docker.APIClient) -> None:
        """Remove the container of our lane."""
        _remove(client, self._of_lane(client))

    # -- ensuring ----------------------------------------------------------------------------------

    def ensure(self, client: docker.APIClient, recipe: Recipe, note: Note) -> tuple[str, str, bool]:
        """Make sure that the container runs. Return its id, what was done, and whether its content is new."""
        ours = self._of_lane(client)
        found = _living(ours)
        # A killed watcher or a failed removal left the others behind.
        _remove(client, [other for other in ours if other is not found])
        if not self._has_tidied:
            builder = builder_lane(self._spec.lane)
            _remove(client, [one for one in self.all(client) if one["Labels"][labels.LANE] == builder])
            self._has_tidied = True
        images = Images(client, self._spec.owner)
        if found is None:
            return self._create(client, images, recipe, note), "created", True
        container = str(found["Id"])
        reason = self._why_recreate(images, found, recipe)
        if reason:
            note(f"{reason}: recreating the box")
            images.origin(recipe.image, note)  # get the new image before giving up the old box
            remove_container(client, container)
            return self._create(client, images, recipe, note), f"recreated: {reason}", True
        if found["Labels"].get(labels.SPEC) != self._spec.digest:
            note("the box's limits have changed: moving its content to a new container")
            moved = self._carry_over(client, self.origin_of(images, found, recipe), found, note)
            return moved, "recreated with its content: its limits have changed", False
        if found["State"] == "running":
            self._name(client, found)
            return container, "adopted", False
        how = f"restarted, was {_how_it_ended(client, found)}"
        self.restart(client, found)
        return container, how, False

    def origin_of(self, images: Images, found: ContainerSummary, recipe: Recipe) -> BoxOrigin:
        """Return the origin of a container: the snapshot that was taken of it, or else the image it came from."""
        known = images.local_origin(recipe.image)
        if known is not None and known.taken_from == found["Id"]:
            return known
        return BoxOrigin(str(found["Labels"][labels.IMAGE]), str(found["Labels"][labels.BASE]))

    def restart(self, client: docker.APIClient, container: ContainerSummary) -> None:
        if container["State"] == "paused":
            client.unpause(container["Id"])
            return
        if container["State"] in ("created", "configured"):
            # A watcher was killed before it had created the folders.
            create_folders(client, self._spec, container["Labels"].get(labels.IMAGE, "the image"), container["Id"])
        start_container(client, self._spec, container["Id"])
        self.restarts += 1

    def environment_key(self, recipe: Recipe) -> str:
        """Return the key of the environment: the result of setup also depends on the user and the interpreter."""
        return f"{recipe.key} {self._spec.layout_digest} {self._spec.python}"

    def _why_recreate(self, images: Images, found: ContainerSummary, recipe: Recipe) -> str:
        """Return why the content of the container is obsolete, or ""."""
        marks, name = found["Labels"], self._spec.owner.name_of(recipe.image)
        if marks.get(labels.IMAGE) != name:
            return f"its image is now {name}"
        origin = images.local_origin(recipe.image)
        if origin is not None and origin.id != marks.get(labels.BASE) and origin.taken_from != found["Id"]:
            return "a snapshot was taken of another box" if origin.taken_from else "its image has changed"
        if str(marks.get(labels.SPEC, "")).partition(".")[0] != self._spec.layout_digest:
            return "its user or its folder has changed"
        return ""

    # -- creating ----------------------------------------------------------------------------------

    def _create(self, client: docker.APIClient, images: Images, recipe: Recipe, note: Note) -> str:
        origin = images.origin(recipe.image, note)
        saved = images.environment(origin, self.environment_key(recipe))
        if saved is not None:
            note("creating the box from the saved environment")
        elif origin.taken_from:
            note(f"creating the box from the snapshot of {origin.image}")
        else:
            note(f"creating the box from {origin.image} ({recipe.because})")
        try:
            created = create_container(client, self._spec, origin, saved or origin.id, self._spec.name, note)
        except APIError as error:
            if error.status_code != 409:
                raise
            if self.find(client) is not None:
                raise BoxGone("another watchtest has just created the box", hint=BY_ITSELF) from error
            if not any(self._has_name(one) for one in self.all(client)):
                raise  # the container with this name is not ours
            # The name belongs to one of our containers that the engine cannot remove, or not yet.
            created = create_container(client, self._spec, origin, saved or origin.id, self._other_name(), note)
        try:
            start_container(client, self._spec, created)
        except Exception:
            remove_container(client, created)  # it is still empty
            raise
        return created

    def _carry_over(self, client: docker.APIClient, origin: BoxOrigin, found: ContainerSummary, note: Note) -> str:
        """Move the content to a new container.

        For a moment there are two. If we are killed then, the next watcher finds the newer one, which has everything.
        """
        carried = Images(client, self._spec.owner).carry(str(found["Id"]))
        created = create_container(client, self._spec, origin, carried, self._other_name(), note)
        remove_container(client, found["Id"])  # before the start of the new one, which may need its ports
        start_container(client, self._spec, created)
        self._name(client, {"Id": created, "Names": ()})
        return created

    def _other_name(self) -> str:
        return f"{self._spec.name}-{secrets.token_hex(3)}"

    def _has_name(self, found: ContainerSummary) -> bool:
        return f"/{self._spec.name}" in found["Names"]

    def _name(self, client: docker.APIClient, found: ContainerSummary) -> None:
        """Give the container its usual name, for the user; we go by labels."""
        if not self._has_name(found):
            with contextlib.suppress(APIError):
                client.rename(found["Id"], self._spec.name)


def builder_lane(lane: str) -> str:
    """Return the lane of the containers in which the environments of a lane are built."""
    return f"{lane}-build"


def _remove(client: docker.APIClient, found: list[ContainerSummary]) -> int:
    for one in found:
        with _unless_lost(one):
            remove_container(client, one["Id"])
    return len(found)


def _living(found: list[ContainerSummary]) -> ContainerSummary | None:
    return next((one for one in found if one["State"] not in LOST), None)


@contextlib.contextmanager
def _unless_lost(found: ContainerSummary) -> Iterator[None]:
    """Ignore errors about a container that the engine cannot remove; it is tried again whenever the box is opened."""
    try:
        yield
    except APIError:
        if found["State"] not in LOST:
            raise


def _how_it_ended(client: docker.APIClient, found: ContainerSummary) -> str:
    state = str(found["State"])
    ended = client.inspect_container(found["Id"])["State"]
    if ended.get("OOMKilled"):
        return f"{state}: out of memory"
    code = ended.get("ExitCode")
    return f"{state} ({code})" if state == "exited" and code else state
