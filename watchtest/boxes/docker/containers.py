"""The containers of a workspace: found by their labels, adopted, started again, or made anew, whatever became of them.

May be killed at any moment: what carries content is removed only after its content is in another container.
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
LOST = ("removing", "dead")
"""A removal that failed half-way, as after a crash of the engine, may leave a container like this for ever."""


class Containers:
    """The one of a lane, and its brothers. `restarts` counts how often it was started again."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._spec = spec
        self.restarts = 0

    # -- finding -----------------------------------------------------------------------------------

    def all(self, client: docker.APIClient) -> list[ContainerSummary]:
        """Of every lane, the youngest first."""
        wanted = {"label": [f"{labels.WORKSPACE}={self._spec.owner.workspace}"]}
        host = self._spec.owner.host
        found = [one for one in client.containers(all=True, filters=wanted) if _is_box(one["Labels"], host)]
        return sorted(found, key=lambda one: -int(one["Created"]))

    def find(self, client: docker.APIClient) -> ContainerSummary | None:
        """Ours, whatever its state. Of several (a watcher was killed between two steps) the youngest."""
        return _living(self._of_lane(client))

    def need(self, client: docker.APIClient) -> ContainerSummary:
        found = self.find(client)
        if found is None:
            raise BoxGone("there is no box yet, or it was removed", hint="the next run makes it; or `watchtest reset`")
        return found

    def _of_lane(self, client: docker.APIClient) -> list[ContainerSummary]:
        return [one for one in self.all(client) if one["Labels"][labels.LANE] == self._spec.lane]

    def remove_all(self, client: docker.APIClient) -> int:
        """Of every lane; how many there were."""
        found = self.all(client)
        for one in found:
            with _unless_lost(one):
                remove_container(client, one["Id"])
        return len(found)

    # -- making sure -------------------------------------------------------------------------------

    def ensure(self, client: docker.APIClient, recipe: Recipe, note: Note) -> tuple[str, tuple[str, ...]]:
        """A running one; its id, and in words how it was had."""
        ours = self._of_lane(client)
        found = _living(ours)
        for other in ours:
            # Of a watcher that was killed between two steps, or lost: they must not be in the way.
            if other is not found:
                with _unless_lost(other):
                    remove_container(client, other["Id"])
        images = Images(client, self._spec.owner)
        if found is None:
            return self._create(client, images, recipe, note), ("created",)
        identity = str(found["Id"])
        reason = self._why_anew(images, found, recipe)
        if reason:
            note(f"{reason}: making the box anew")
            images.origin(recipe.image, note)  # an image that cannot be had must not cost the old box
            remove_container(client, identity)
            return self._create(client, images, recipe, note), (f"created anew: {reason}",)
        if found["Labels"].get(labels.SPEC) != self._spec.digest:
            note("the box's limits have changed: its content goes on in a new container")
            made = self._carry_over(client, self.origin_of(images, found, recipe), found, note)
            return made, ("made anew with its content: its limits have changed",)
        match found["State"]:
            case "running":
                self._name(client, found)
                return identity, ("adopted",)
            case _:
                how = f"started again, was {_how_it_ended(client, found)}"
                self.revive(client, found)
                return identity, (how,)

    def origin_of(self, images: Images, found: ContainerSummary, recipe: Recipe) -> BoxOrigin:
        """What a container stands for: a snapshot that was taken of it is its own origin."""
        known = images.known_origin(recipe.image)
        if known is not None and known.taken_from == found["Id"]:
            return known
        return BoxOrigin(str(found["Labels"][labels.IMAGE]), str(found["Labels"][labels.BASE]))

    def revive(self, client: docker.APIClient, container: ContainerSummary) -> None:
        if container["State"] == "paused":
            client.unpause(container["Id"])
            return
        if container["State"] in ("created", "configured"):
            # A watcher was killed between making and filling it.
            create_folders(client, self._spec, container["Labels"].get(labels.IMAGE, "the image"), container["Id"])
        start_container(client, self._spec, container["Id"])
        self.restarts += 1

    def environment_key(self, recipe: Recipe) -> str:
        """Of what setup made: the same commands for another user or interpreter make something else."""
        return f"{recipe.key} {self._spec.frame} {self._spec.python}"

    def _why_anew(self, images: Images, found: ContainerSummary, recipe: Recipe) -> str:
        """Why its content is of no use any more, if so."""
        marks, name = found["Labels"], self._spec.owner.name_of(recipe.image)
        if marks.get(labels.IMAGE) != name:
            return f"its image is {name} now"
        origin = images.known_origin(recipe.image)
        if origin is not None and origin.id != marks.get(labels.BASE) and origin.taken_from != found["Id"]:
            return "a snapshot was taken of another box" if origin.taken_from else "its image has changed"
        if str(marks.get(labels.SPEC, "")).partition(".")[0] != self._spec.frame:
            return "its user or its folder has changed"
        return ""

    # -- making ------------------------------------------------------------------------------------

    def _create(self, client: docker.APIClient, images: Images, recipe: Recipe, note: Note) -> str:
        origin = images.origin(recipe.image, note)
        kept = images.environment(origin, self.environment_key(recipe))
        if kept is not None:
            note("making the box from the environment that was kept")
        elif origin.taken_from:
            note(f"making the box from the snapshot of {origin.image}")
        else:
            note(f"making the box from {origin.image} ({recipe.because})")
        try:
            made = create_container(client, self._spec, origin, kept or origin.id, self._spec.name, note)
        except APIError as error:
            if error.status_code != 409:
                raise
            if self.find(client) is not None:
                raise BoxGone("another watchtest has just made the box", hint=BY_ITSELF) from error
            if not any(self._has_name(one) for one in self.all(client)):
                raise  # somebody else's
            # One of ours that the engine cannot get rid of, or not yet, has the name.
            made = create_container(client, self._spec, origin, kept or origin.id, self._other_name(), note)
        try:
            start_container(client, self._spec, made)
        except Exception:
            remove_container(client, made)  # there is nothing in it yet
            raise
        return made

    def _carry_over(self, client: docker.APIClient, origin: BoxOrigin, found: ContainerSummary, note: Note) -> str:
        """Two containers for a moment: killed here, the next watcher finds the younger, which has it all."""
        carried = Images(client, self._spec.owner).carry(str(found["Id"]))
        made = create_container(client, self._spec, origin, carried, self._other_name(), note)
        remove_container(client, found["Id"])  # before the other starts: it may have its ports
        start_container(client, self._spec, made)
        self._name(client, {"Id": made, "Names": ()})
        return made

    def _other_name(self) -> str:
        return f"{self._spec.name}-{secrets.token_hex(3)}"

    def _has_name(self, found: ContainerSummary) -> bool:
        return f"/{self._spec.name}" in found["Names"]

    def _name(self, client: docker.APIClient, found: ContainerSummary) -> None:
        """For people; we go by labels."""
        if not self._has_name(found):
            with contextlib.suppress(APIError):
                client.rename(found["Id"], self._spec.name)


def _is_box(marks: Mapping[str, str], host: str) -> bool:
    return marks.get(labels.HOST) == host and bool(marks.get(labels.LANE))


def _living(found: list[ContainerSummary]) -> ContainerSummary | None:
    return next((one for one in found if one["State"] not in LOST), None)


@contextlib.contextmanager
def _unless_lost(found: ContainerSummary) -> Iterator[None]:
    """What the engine itself cannot get rid of is tried again whenever the box is opened; nobody waits for it."""
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
