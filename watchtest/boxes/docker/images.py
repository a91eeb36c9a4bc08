"""The images of one workspace on an engine: the one its boxes are made from, and those kept of boxes that were set up.

A box grows from its *origin*: the snapshot that the user took of this image, or else the image itself. An environment
is what setup made of an origin; it is found again by its key, so a lost box is back without a second installation.

The files that a Dockerfile may copy from, as the archive an engine takes: those of the snapshot, exactly.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils.build import PatternMatcher

from watchtest.boxes.docker import labels
from watchtest.boxes.docker.pull_progress import BuildProgress, PullProgress
from watchtest.boxes.protocols import BuiltImage, ContentReader, ImageSource, NamedImage, Note
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.errors import ImageError

IGNORE_FILE = ".dockerignore"
OUTSIDE = ".watchtest.Dockerfile"
"""Where a Dockerfile that lies outside of its context is put in the archive."""


def write_context(wish: BuiltImage, archive: IO[bytes]) -> str:
    """Write the archive, rewind it, and tell where the Dockerfile is in it."""
    if wish.snapshot is None or wish.read is None:
        raise ImageError(f"{wish.dockerfile}: there is no snapshot to build from")
    prefix = f"{wish.context}/" if wish.context else ""
    inside = {path[len(prefix) :]: path for path in wish.snapshot.entries if path.startswith(prefix)}
    is_inside = wish.dockerfile.startswith(prefix)
    dockerfile = wish.dockerfile[len(prefix) :] if is_inside else OUTSIDE
    ignored = _matcher(inside, wish.snapshot, wish.read)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, path in sorted(inside.items()):
            # The Dockerfile itself is always needed, whatever is ignored.
            if name == dockerfile or ignored is None or not ignored.matches(name):
                _add(tar, name, wish.snapshot.entries[path], path, wish.read)
        if not is_inside:
            _add(tar, OUTSIDE, wish.snapshot.entries[wish.dockerfile], wish.dockerfile, wish.read)
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
"""So many of a kind a workspace: going back to an older branch is common, going back to an old year is not."""
COMMIT_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class ImageOwner:
    """Whose images these are; `repository` is the name they are kept under."""

    workspace: str
    host: str
    repository: str

    @property
    def labels(self) -> dict[str, str]:
        return {labels.WORKSPACE: self.workspace, labels.HOST: self.host}

    def name_of(self, wish: ImageSource) -> str:
        match wish:
            case NamedImage(name):
                return name
            case BuiltImage(key=key):
                return f"{self.repository}:built-{key[:16]}"


@dataclass(frozen=True, slots=True)
class BoxOrigin:
    """What a box grows from. `image` is what the user named; `id` changes with its content."""

    image: str
    id: str
    taken_from: str = ""
    """Of a snapshot: the container it was taken from, which needs not be made anew for it."""


class Images:
    def __init__(self, client: docker.APIClient, owner: ImageOwner) -> None:
        self._client = client
        self._owner = owner

    # -- origins -----------------------------------------------------------------------------------

    def origin(self, wish: ImageSource, note: Note) -> BoxOrigin:
        """What a box of this image is to grow from; pulled or built if it is not here."""
        name, found = self._need(wish, note)
        return self._origin(name, str(found["Id"]))

    def known_origin(self, wish: ImageSource) -> BoxOrigin | None:
        """The same without pulling or building anything."""
        name = self._owner.name_of(wish)
        found = self._inspect(name)
        return None if found is None else self._origin(name, str(found["Id"]))

    def _origin(self, name: str, base: str) -> BoxOrigin:
        snapshot = self._newest(**{labels.ROLE: SNAPSHOT, labels.BASE: base})
        if snapshot is None:
            return BoxOrigin(name, base)
        return BoxOrigin(name, str(snapshot["Id"]), str(snapshot["Labels"].get(labels.TAKEN_FROM, "")))

    def _need(self, wish: ImageSource, note: Note) -> tuple[str, Mapping[str, Any]]:
        name = self._owner.name_of(wish)
        found = self._inspect(name)
        if found is None:
            match wish:
                case NamedImage():
                    self._pull(name, note)
                case BuiltImage():
                    self._build(wish, name, note)
            found = self._inspect(name)
        if found is None:
            raise _no_image(name, "the engine says it came, but it is not there")
        return name, found

    def _inspect(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._client.inspect_image(name)
        except ImageNotFound:
            return None
        return found

    def _pull(self, image: str, note: Note) -> None:
        note(f"pulling {image}")
        progress = PullProgress(image, note)
        repository, tag = _split_name(image)
        try:
            reason = _follow(self._client.pull(repository, tag=tag, stream=True, decode=True), progress)
        except (APIError, DockerException) as error:
            raise _no_image(image, str(getattr(error, "explanation", None) or error)) from error
        if reason:
            raise _no_image(image, reason)

    def _build(self, wish: BuiltImage, name: str, note: Note) -> None:
        note(f"building the image from {wish.dockerfile}")
        progress = BuildProgress(wish.dockerfile, note)
        with tempfile.TemporaryFile() as context:
            dockerfile = write_context(wish, context)
            try:
                answer = self._client.build(
                    fileobj=context,
                    custom_context=True,
                    dockerfile=dockerfile,
                    tag=name,
                    buildargs=dict(wish.arguments),
                    target=wish.target or None,
                    rm=True,
                    forcerm=True,
                    decode=True,
                    labels={**self._owner.labels, labels.ROLE: BUILT, labels.RECIPE: wish.key},
                )
                reason = _follow(answer, progress)
            except APIError as error:
                raise _no_build(wish.dockerfile, str(error.explanation or error), progress.tail) from error
        if reason:
            raise _no_build(wish.dockerfile, reason, progress.tail)

    # -- what is kept ------------------------------------------------------------------------------

    def environment(self, origin: BoxOrigin, key: str) -> str | None:
        """The image in which this setup was done on this origin, by id."""
        found = self._newest(**{labels.ROLE: ENVIRONMENT, labels.RECIPE: environment_key(origin, key)})
        return None if found is None else str(found["Id"])

    def keep_environment(self, container: str, origin: BoxOrigin, key: str, *, is_clean: bool) -> str:
        full = environment_key(origin, key)
        marks = {
            labels.ROLE: ENVIRONMENT,
            labels.RECIPE: full,
            labels.BASE: origin.id,
            labels.CLEAN: "yes" if is_clean else "no",
        }
        kept = self._commit(container, f"env-{full}", marks)
        self._tidy()
        return kept

    def take_snapshot(self, container: str, origin: str) -> str:
        """Keep the container as the origin of all boxes to come. Earlier snapshots of this image are let go."""
        base = self._base_of(origin)
        marks = {labels.ROLE: SNAPSHOT, labels.BASE: base, labels.TAKEN_FROM: container, labels.RECIPE: ""}
        earlier = self._all(**{labels.ROLE: SNAPSHOT, labels.BASE: base})
        taken = self._commit(container, f"snapshot-{base.rpartition(':')[2][:16]}", marks)
        for image in earlier:
            self._remove(str(image["Id"]))
        return taken

    def _base_of(self, origin: str) -> str:
        """The image itself, where the origin is a snapshot of it."""
        found = self._inspect(origin)
        marks = ((found or {}).get("Config") or {}).get("Labels") or {}
        return str(marks[labels.BASE]) if marks.get(labels.ROLE) == SNAPSHOT else origin

    def carry(self, container: str) -> str:
        """The container's content as an image, for a container with other settings to go on from."""
        return self._commit(container, f"carried-{container[:12]}", {labels.ROLE: CARRIED, labels.RECIPE: ""})

    def forget(self) -> int:
        """Let go of everything that was kept for this workspace; how many images."""
        return sum(self._remove(str(image["Id"])) for image in self._all())

    def forget_unclean(self) -> None:
        """Of the environments, those that hold more than their setup: what grew in a box over time."""
        for image in self._all(**{labels.ROLE: ENVIRONMENT, labels.CLEAN: "no"}):
            self._remove(str(image["Id"]))

    def _commit(self, container: str, tag: str, marks: Mapping[str, str]) -> str:
        # The values are ours: hex digits and plain words. What the container is labelled with goes along by itself,
        # but for its lane: by that a box is known, and whatever somebody makes from this image is none.
        changes = [f'LABEL {name}="{value}"' for name, value in {**marks, labels.LANE: ""}.items()]
        usual = self._client.timeout
        self._client.timeout = COMMIT_LIMIT_S
        try:
            # Not paused: services go on, and a client that dies here would leave the box frozen.
            answer = self._client.commit(
                container, repository=self._owner.repository, tag=tag, pause=False, changes=changes
            )
        finally:
            self._client.timeout = usual
        return str(answer["Id"])

    def _tidy(self) -> None:
        """The oldest environments, and what was carried over into a container that is there no more."""
        old: list[dict[str, Any]] = []
        for role in (ENVIRONMENT, BUILT):
            youngest_first = sorted(self._all(**{labels.ROLE: role}), key=lambda image: -int(image["Created"]))
            old += youngest_first[KEPT_IMAGES:]
        for image in [*old, *self._all(**{labels.ROLE: CARRIED})]:
            self._remove(str(image["Id"]))

    def _remove(self, image: str) -> bool:
        try:
            self._client.remove_image(image, force=False, noprune=False)
        except APIError:
            return False  # a container, or another image, still stands on it: gone with the next tidying
        return True

    def _all(self, **wanted: str) -> list[dict[str, Any]]:
        filters = {**self._owner.labels, **wanted}
        found: list[dict[str, Any]] = self._client.images(
            filters={"label": [f"{name}={value}" for name, value in filters.items()]}
        )
        return found

    def _newest(self, **wanted: str) -> dict[str, Any] | None:
        return max(self._all(**wanted), key=lambda image: int(image["Created"]), default=None)


def _follow(answer: Iterable[Mapping[str, Any]], progress: PullProgress | BuildProgress) -> str:
    """Show the answer to its very end, which also frees its connection; the error it told of, if any."""
    reason = ""
    for line in answer:
        if "error" in line:
            reason = str(line["error"])
        progress.feed(line)
    return reason


def environment_key(origin: BoxOrigin, key: str) -> str:
    return hashlib.sha256(f"{origin.id} {key}".encode()).hexdigest()[:16]


def _split_name(image: str) -> tuple[str, str]:
    """Repository and tag (or digest) as the engine wants them: never all tags of a repository."""
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    repository, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        return image, "latest"
    return repository, tag


def _no_image(image: str, reason: str) -> ImageError:
    return ImageError(
        f"the image {image} is not here and cannot be pulled: {' '.join(reason.split())[:300]}",
        hint=f"check the name (box.image), log in to its registry, or load it: `docker pull {image}`, `docker load`",
    )


def _no_build(dockerfile: str, reason: str, tail: list[str]) -> ImageError:
    said = "".join(f"\n{line}" for line in tail)
    return ImageError(
        f"{dockerfile} does not build: {' '.join(reason.split())[:300]}{said}",
        hint="fix it and save, or set box.image to an image that is there",
    )
