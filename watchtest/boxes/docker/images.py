"""The images of one workspace on an engine: pull or build the image of its boxes, and save boxes as images.

The *origin* of a box is the user's snapshot of the image, if there is one, or else the image itself. An *environment*
is an origin after setup. It is found by its key, so a lost box comes back without a second installation.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag
from docker.utils.build import PatternMatcher

from watchtest.boxes.docker import labels
from watchtest.boxes.protocols import BuiltImage, ContentReader, ImageSource, NamedImage, Note
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.errors import ImageError

IGNORE_FILE = ".dockerignore"
OUTSIDE = ".watchtest.Dockerfile"
"""The name in the archive of a Dockerfile that is outside its context."""


def write_context(source: BuiltImage, archive: IO[bytes]) -> str:
    """Write the build context of an image, rewind the archive and return the path of the Dockerfile in it."""
    if source.snapshot is None or source.read is None:
        raise ImageError(f"{source.dockerfile}: there is no snapshot to build from")
    prefix = f"{source.context}/" if source.context else ""
    inside = {path[len(prefix) :]: path for path in source.snapshot.entries if path.startswith(prefix)}
    is_inside = source.dockerfile.startswith(prefix)
    dockerfile = source.dockerfile[len(prefix) :] if is_inside else OUTSIDE
    ignored = _matcher(inside, source.snapshot, source.read)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, path in sorted(inside.items()):
            # The Dockerfile itself is needed even if it is ignored.
            if name == dockerfile or ignored is None or not ignored.matches(name):
                _add(tar, name, source.snapshot.entries[path], path, source.read)
        if not is_inside:
            _add(tar, OUTSIDE, source.snapshot.entries[source.dockerfile], source.dockerfile, source.read)
    archive.seek(0)
    return dockerfile


def _matcher(inside: dict[str, str], snapshot: Snapshot, read: ContentReader) -> PatternMatcher | None:
    path = inside.get(IGNORE_FILE)
    if path is None:
        return None
    lines = read(path, snapshot.entries[path]).decode("utf-8", "replace").splitlines()
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return PatternMatcher(patterns)


def _add(tar: tarfile.TarFile, name: str, entry: Entry, path: str, read: ContentReader) -> None:
    member = tarfile.TarInfo(name)
    member.mode = entry.mode
    match entry.kind:
        case EntryKind.FOLDER:
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
        case EntryKind.SYMLINK:
            member.type, member.linkname = tarfile.SYMTYPE, read(path, entry).decode("utf-8", "surrogateescape")
            tar.addfile(member)
        case EntryKind.FILE:
            content = read(path, entry)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


ENVIRONMENT, SNAPSHOT, BUILT, CARRIED = "environment", "snapshot", "built", "carried"
KEPT_IMAGES = 3
"""Per kind and workspace: users go back to older branches, but rarely far."""
COMMIT_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class ImageOwner:
    """The workspace that images belong to; `repository` is their name on the engine."""

    workspace: str
    host: str
    repository: str

    @property
    def labels(self) -> dict[str, str]:
        return {labels.WORKSPACE: self.workspace, labels.HOST: self.host}

    def name_of(self, source: ImageSource) -> str:
        match source:
            case NamedImage(name):
                return name
            case BuiltImage(key=key):
                return f"{self.repository}:built-{key[:16]}"


@dataclass(frozen=True, slots=True)
class BoxOrigin:
    """The image that a box starts from. `image` is its configured name; `id` changes with its content."""

    image: str
    id: str
    taken_from: str = ""
    """Of a snapshot: the container it was taken from, which need not be recreated."""


class Images:
    """The images of one workspace on one engine."""

    def __init__(self, client: docker.APIClient, owner: ImageOwner) -> None:
        self._client = client
        self._owner = owner

    # -- origins -----------------------------------------------------------------------------------

    def origin(self, source: ImageSource, note: Note) -> BoxOrigin:
        """Return the origin of a box of this image; pull or build the image if it is missing."""
        name = self._owner.name_of(source)
        found = self._inspect(name)
        if found is None:
            match source:
                case NamedImage():
                    self._pull(name, note)
                case BuiltImage():
                    self._build(source, name, note)
            found = self._inspect(name)
        if found is None:
            raise _no_image(name, "the engine reported success, but the image is missing")
        return self._origin(name, str(found["Id"]))

    def local_origin(self, source: ImageSource) -> BoxOrigin | None:
        """Return the origin of a box of this image, or None if the engine does not have the image."""
        name = self._owner.name_of(source)
        found = self._inspect(name)
        return None if found is None else self._origin(name, str(found["Id"]))

    def local_names(self) -> frozenset[str]:
        """Return the names of all images of the engine; official ones without their registry, which podman adds."""
        names = [name for image in self._client.images() for name in image.get("RepoTags") or ()]
        return frozenset(name.removeprefix("docker.io/library/").removeprefix("docker.io/") for name in names)

    def _origin(self, name: str, base: str) -> BoxOrigin:
        snapshot = self._newest(**{labels.ROLE: SNAPSHOT, labels.BASE: base})
        if snapshot is None:
            return BoxOrigin(name, base)
        return BoxOrigin(name, str(snapshot["Id"]), str(snapshot["Labels"].get(labels.TAKEN_FROM, "")))

    def _inspect(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.inspect_image(name)
        except ImageNotFound:
            return None
        return found

    def _pull(self, image: str, note: Note) -> None:
        note(f"pulling {image}")
        progress = PullProgress(image, note)
        repository, tag = parse_repository_tag(image)
        try:
            # Without a tag, the engine would pull all of them.
            answer = self._client.pull(repository, tag=tag or "latest", stream=True, decode=True)
            reason = _follow(answer, progress)
        except (APIError, DockerException) as error:
            raise _no_image(image, str(getattr(error, "explanation", None) or error)) from error
        if reason:
            raise _no_image(image, reason)

    def _build(self, source: BuiltImage, name: str, note: Note) -> None:
        note(f"building the image from {source.dockerfile}")
        progress = BuildProgress(source.dockerfile, note)
        with tempfile.TemporaryFile() as context:
            dockerfile = write_context(source, context)
            try:
                answer = self._client.build(
                    fileobj=context,
                    custom_context=True,
                    dockerfile=dockerfile,
                    tag=name,
                    buildargs=dict(source.arguments),
                    target=source.target or None,
                    rm=True,
                    forcerm=True,
                    decode=True,
                    labels={**self._owner.labels, labels.ROLE: BUILT, labels.RECIPE: source.key},
                )
                reason = _follow(answer, progress)
            except APIError as error:
                raise _no_build(source.dockerfile, str(error.explanation or error), progress.tail) from error
        if reason:
            raise _no_build(source.dockerfile, reason, progress.tail)

    # -- saved boxes -------------------------------------------------------------------------------

    def environment(self, origin: BoxOrigin, key: str) -> str | None:
        """Return the id of the image of this origin after this setup, if it was saved."""
        marks = {labels.ROLE: ENVIRONMENT, labels.RECIPE: environment_key(origin, key), labels.CLEAN: "yes"}
        found = self._newest(**marks)
        return None if found is None else str(found["Id"])

    def save_environment(self, container: str, origin: BoxOrigin, key: str) -> None:
        full = environment_key(origin, key)
        marks = {
            labels.ROLE: ENVIRONMENT,
            labels.RECIPE: full,
            labels.BASE: origin.id,
            labels.CLEAN: "yes",
        }
        self._commit(container, f"env-{full}", marks)
        self._prune()

    def take_snapshot(self, container: str, origin: str) -> str:
        """Save the container as the origin of all future boxes, and delete earlier snapshots of this image."""
        marks_of_origin = ((self._inspect(origin) or {}).get("Config") or {}).get("Labels") or {}
        is_snapshot = marks_of_origin.get(labels.ROLE) == SNAPSHOT
        base = str(marks_of_origin[labels.BASE]) if is_snapshot else origin  # an image is its own base
        marks = {labels.ROLE: SNAPSHOT, labels.BASE: base, labels.TAKEN_FROM: container, labels.RECIPE: ""}
        earlier = self._all(**{labels.ROLE: SNAPSHOT, labels.BASE: base})
        taken = self._commit(container, f"snapshot-{base.rpartition(':')[2][:16]}", marks)
        for image in earlier:
            self._remove(str(image["Id"]))
        return taken

    def carry(self, container: str) -> str:
        """Save the container's content as an image, for a container with other settings."""
        return self._commit(container, f"carried-{container[:12]}", {labels.ROLE: CARRIED, labels.RECIPE: ""})

    def remove_all(self) -> int:
        """Delete all saved images of this workspace and return their number."""
        return sum(self._remove(str(image["Id"])) for image in self._all())

    def _commit(self, container: str, tag: str, marks: Mapping[str, str]) -> str:
        # The values need no quoting: they are hex digits and plain words. The image inherits the container's labels.
        # Clear the lane, which marks a box: a container that the user creates from this image is not one.
        changes = [f'LABEL {name}="{value}"' for name, value in {**marks, labels.LANE: ""}.items()]
        usual = self._client.timeout
        self._client.timeout = COMMIT_LIMIT_S
        try:
            # Do not pause: services keep running, and if we died here, the box would stay frozen.
            answer = self._client.commit(
                container, repository=self._owner.repository, tag=tag, pause=False, changes=changes
            )
        finally:
            self._client.timeout = usual
        return str(answer["Id"])

    def _prune(self) -> None:
        """Delete the oldest environments, and carried-over images that no container uses."""
        old: list[dict[str, Any]] = []
        for role in (ENVIRONMENT, BUILT):
            newest_first = sorted(self._all(**{labels.ROLE: role}), key=lambda image: -int(image["Created"]))
            old += newest_first[KEPT_IMAGES:]
        for image in [*old, *self._all(**{labels.ROLE: CARRIED})]:
            self._remove(str(image["Id"]))

    def _remove(self, image: str) -> bool:
        try:
            self._client.remove_image(image)
        except APIError:
            return False  # still in use by a container or an image: the next prune tries again
        return True

    def _all(self, **labelled: str) -> list[dict[str, Any]]:
        filters = {**self._owner.labels, **labelled}
        found: list[dict[str, Any]] = self._client.images(
            filters={"label": [f"{name}={value}" for name, value in filters.items()]}
        )
        return found

    def _newest(self, **labelled: str) -> dict[str, Any] | None:
        return max(self._all(**labelled), key=lambda image: int(image["Created"]), default=None)


def _follow(answer: Iterable[Mapping[str, Any]], progress: PullProgress | BuildProgress) -> str:
    """Show the progress to the end, which also frees the connection. Return the error it contains, or ""."""
    reason = ""
    for line in answer:
        if "error" in line:
            reason = str(line["error"])
        progress.feed(line)
    return reason


def environment_key(origin: BoxOrigin, key: str) -> str:
    return hashlib.sha256(f"{origin.id} {key}".encode()).hexdigest()[:16]


def _no_image(image: str, reason: str) -> ImageError:
    return ImageError(
        f"cannot pull the image {image}: {' '.join(reason.split())[:300]}",
        hint=f"check the name (box.image), log in to its registry, or load it: `docker pull {image}`, `docker load`",
    )


def _no_build(dockerfile: str, reason: str, tail: list[str]) -> ImageError:
    output = "".join(f"\n{line}" for line in tail)
    return ImageError(
        f"{dockerfile} does not build: {' '.join(reason.split())[:300]}{output}",
        hint="fix it and save, or set box.image to an existing image",
    )


# -- progress --------------------------------------------------------------------------------------

BAR_WIDTH = 20
STEP = 0.1
"""Show a line for every tenth…"""
LONGEST_SILENCE_S = 5.0
"""…and after this time without a line: a slow pull must not look dead."""
MEGABYTE = 1e6
BUILD_STEP = re.compile(r"step (\d+)/([1-9]\d*)(?![^ :])", re.IGNORECASE)
"""Docker's "Step 2/7 : RUN …" and podman's "STEP 2/7: RUN …"."""


class PullProgress:
    """Adds up the layers of a pull. Layers appear over time, so the bar may go back."""

    def __init__(self, what: str, note: Note, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._note = note
        self._clock = clock
        self._layers: dict[str, tuple[float, float]] = {}
        self._shown = -1.0
        self._shown_at = clock()

    def feed(self, line: Mapping[str, Any]) -> None:
        layer, detail = str(line.get("id", "")), line.get("progressDetail")
        status = str(line.get("status", ""))
        if status in ("Pull complete", "Already exists") and layer in self._layers:
            total = self._layers[layer][1]
            self._layers[layer] = (total, total)
        elif status == "Downloading" and isinstance(detail, Mapping) and detail.get("total"):
            self._layers[layer] = (float(detail.get("current") or 0), float(detail["total"]))
        self._show()

    def _show(self) -> None:
        total = sum(size for _, size in self._layers.values())
        if not total:
            return
        share = sum(done for done, _ in self._layers.values()) / total
        now = self._clock()
        if share - self._shown >= STEP or share >= 1 > self._shown or now - self._shown_at > LONGEST_SILENCE_S:
            self._shown, self._shown_at = share, now
            self._note(f"pulling {self._what} {bar(share)} {share:4.0%} of {total / MEGABYTE:.0f} MB")


class BuildProgress:
    """Shows the numbered steps of a build and keeps the end of its output."""

    def __init__(self, what: str, note: Note) -> None:
        self._what = what
        self._note = note
        self.tail: list[str] = []

    def feed(self, line: Mapping[str, Any]) -> None:
        text = str(line.get("stream", line.get("status", ""))).strip()
        if not text:
            return
        self.tail = [*self.tail, *text.splitlines()][-8:]
        if step := BUILD_STEP.match(text):
            share = (int(step[1]) - 1) / int(step[2])
            self._note(f"building {self._what} {bar(share)} {text.splitlines()[0][:120]}")


def bar(share: float) -> str:
    full = round(max(0.0, min(share, 1.0)) * BAR_WIDTH)
    return "━" * full + "─" * (BAR_WIDTH - full)
