"""Files of a container that has no agent yet, by the engine's archive calls: small ones, before anything runs in it."""

from __future__ import annotations

import io
import tarfile
import time
from dataclasses import dataclass
from pathlib import PurePosixPath

import docker
from docker.errors import NotFound

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Archives:
    client: docker.APIClient
    container: str

    def has(self, path: str) -> bool:
        # By HEAD, which docker-py does not offer: fetching what lies there takes five to ten times as long.
        url = self.client._url("/containers/{0}/archive", self.container)
        answer = self.client.head(url, params={"path": path}, timeout=self.client.timeout)
        if answer.status_code == NOT_FOUND:
            return False
        self.client._raise_for_status(answer)
        return True

    def read(self, path: str) -> bytes:
        """The content of a file; b"" if there is none."""
        try:
            stream, _ = self.client.get_archive(self.container, path)
        except NotFound:
            return b""
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            member = tar.extractfile(tar.getmembers()[0])
            return member.read() if member is not None else b""

    def write(self, path: str, content: bytes) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
            end = tar.offset
        self._put(archive, end)

    def make_folders(self, folders: tuple[str, ...], uid: int, gid: int) -> None:
        """Each owned by that user; parents that are missing belong to root, those that are there stay as they are."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for folder in folders:
                for parent in [*list(PurePosixPath(folder).parents)[-2::-1], PurePosixPath(folder)]:
                    member = tarfile.TarInfo(str(parent).lstrip("/"))
                    member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
                    is_wanted = str(parent) in folders
                    if is_wanted:
                        member.uid, member.gid = uid, gid
                    if is_wanted or not self.has(str(parent)):
                        tar.addfile(member)
            end = tar.offset
        self._put(archive, end)

    def _put(self, archive: io.BytesIO, end: int) -> None:
        """Without the padding that Python adds: podman has stopped reading by then, and calls that a failure."""
        self.client.put_archive(self.container, "/", archive.getvalue()[: end + 2 * tarfile.BLOCKSIZE])
