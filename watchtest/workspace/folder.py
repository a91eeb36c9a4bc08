"""Find the root of a workspace, and reach the files in its `.watchtest` folder.

Whoever made the repository may have put anything into that folder, so its files are opened only here: relative to a
handle of the folder, without following a link, and only if they are regular files.

Every command imports this module, so it imports neither git nor, at the top, pathlib.
"""

from __future__ import annotations

import errno
import os
import stat

from watchtest.errors import WorkspaceError

TYPE_CHECKING = False  # importing typing and pathlib would take longer than all of `watchtest status --line`
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    AnyPath = str | os.PathLike[str]

FOLDER = ".watchtest"
"""watchtest's folder in a workspace: ignored by git, never watched, never synced."""
READ_LIMIT = 64 * 1024 * 1024
"""No file of ours is larger, in bytes."""
LINK = "is a link, or not a regular file"
NOT_OURS = "remove it (nothing outside of it is lost), or move it away; watchtest creates a folder of its own"
HAS_HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether files can be opened relative to a folder. Without it (on Windows), each path is checked just before its use:
links of a repository are refused all the same, but not those that a program creates in that moment."""


def find_workspace(start: Path | None = None) -> Path:
    """Return the git top level around `start` (default: the current folder); outside of git, the folder itself."""
    from pathlib import Path

    return Path(workspace_root(start or "."))


def workspace_root(start: str | Path) -> str:
    """Do the same as `find_workspace`, but without importing pathlib."""
    try:
        folder = os.path.realpath(start, strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        text = f"{start}: no such folder ({getattr(error, 'strerror', None) or error})"
        raise WorkspaceError(text, hint="change to a folder that exists, or name one with -C FOLDER") from error
    if not os.path.isdir(folder):
        raise WorkspaceError(f"{start}: not a folder", hint="name the folder of your project with -C FOLDER")
    home = os.path.expanduser("~")
    candidate = folder
    while True:
        if candidate == home and folder != home:
            return folder  # a home folder in git, for its dot-files, is not the project of everything below it
        if os.path.lexists(os.path.join(candidate, ".git")):
            return candidate
        above = os.path.dirname(candidate)
        if above == candidate:
            return folder
        candidate = above


class OwnFolder:
    """The `.watchtest` folder of a workspace. Every call opens the folder anew, because it may have been replaced.

    All methods raise WorkspaceError if the folder is a link or not a folder, and OSError for everything else.
    """

    __slots__ = ("path",)

    def __init__(self, path: AnyPath) -> None:
        self.path = os.fspath(path)

    def check(self) -> None:
        """Raise WorkspaceError if something that is not a folder has our name."""
        try:
            with _FolderHandle(self.path):
                pass
        except FileNotFoundError:
            pass

    def make(self) -> bool:
        """Create the folder with a .gitignore for itself. Return whether it was missing or emptied.

        Parents are not created: a deleted workspace must not come back as an empty folder.
        """
        try:
            os.mkdir(self.path)
        except FileExistsError:
            pass
        if _is_regular(self.stat(".gitignore")):
            return False
        try:
            descriptor = self.create(".gitignore")
        except FileExistsError:
            return False  # another process was faster
        with open(descriptor, "wb") as file:
            file.write(b"*\n")
        return True

    def open(self, name: str, flags: int) -> int:
        """Return a descriptor of a regular file; never wait for the other end of a pipe."""
        with _FolderHandle(self.path) as handle:
            if not HAS_HANDLES and os.path.islink(self._path(name)):
                raise OSError(errno.EINVAL, LINK, self._path(name))
            return open_regular(handle.at(name), flags | getattr(os, "O_NOFOLLOW", 0), dir_fd=handle.descriptor)

    def create(self, name: str) -> int:
        """Return a descriptor for writing to a new file. What had this name before is removed, and never written to."""
        with _FolderHandle(self.path) as handle:
            handle.remove(name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            return open_regular(handle.at(name), flags, dir_fd=handle.descriptor)

    def append(self, name: str) -> int:
        """Return a descriptor for appending to a file of ours; a link, or a file with a second name, is replaced."""
        try:
            descriptor = self.open(name, os.O_WRONLY | os.O_APPEND)
        except PermissionError:
            raise
        except OSError:
            return self.create(name)
        if os.fstat(descriptor).st_nlink == 1:
            return descriptor
        os.close(descriptor)
        return self.create(name)

    def read(self, name: str, limit: int = READ_LIMIT) -> bytes:
        with open(self.open(name, os.O_RDONLY), "rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"is larger than {limit} bytes", self._path(name))
        return content

    def replace(self, name: str, content: bytes) -> None:
        """Write a file so that readers see either the complete old one or the complete new one."""
        with _FolderHandle(self.path) as handle:
            _replace(handle, name, content, 0o666)

    def touch(self, name: str, at: float) -> None:
        """Set the time of a file, which is created if it is missing."""
        descriptor = self.append(name)
        try:
            os.utime(descriptor if os.utime in os.supports_fd else self._path(name), (at, at))
        finally:
            os.close(descriptor)

    def stat(self, name: str) -> os.stat_result | None:
        """Return the status of a file or link, or None if there is none that we may see."""
        try:
            with _FolderHandle(self.path) as handle:
                return os.stat(handle.at(name), dir_fd=handle.descriptor, follow_symlinks=False)
        except OSError:
            return None

    def is_open_at(self, descriptor: int, name: str) -> bool:
        """Return whether an open file is the one with this name: it may have been removed, rotated or replaced."""
        status = self.stat(name)
        return status is not None and os.path.samestat(status, os.fstat(descriptor))

    def rename(self, name: str, new_name: str) -> None:
        with _FolderHandle(self.path) as handle:
            at = handle.descriptor
            os.replace(handle.at(name), handle.at(new_name), src_dir_fd=at, dst_dir_fd=at)

    def remove(self, name: str) -> None:
        """Remove a file or link, if it is there and can be removed."""
        try:
            with _FolderHandle(self.path) as handle:
                handle.remove(name)
        except OSError:
            pass

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name)


def open_regular(path: str, flags: int, *, mode: int = 0o666, dir_fd: int | None = None) -> int:
    """Open like `os.open` (it can be an opener of `open`), but only a regular file, and without ever waiting."""
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags, mode, dir_fd=dir_fd)
    except OSError as error:
        is_link = error.errno == errno.ELOOP and flags & getattr(os, "O_NOFOLLOW", 0)
        if is_link or error.errno == errno.ENXIO:  # a socket, or a pipe that nothing reads
            raise OSError(errno.EINVAL, LINK, path) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EISDIR, "is a folder", path) if stat.S_ISDIR(mode) else OSError(errno.EINVAL, LINK, path)


def replace_file(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `path` so that readers see either the complete old file or the complete new one.

    This is for folders of the user; links on the way to the file are followed, but a link at its place is replaced.
    """
    with _FolderHandle(path.parent, may_be_link=True) as handle:
        _replace(handle, path.name, content, mode)


class _FolderHandle:
    """A folder that is open while entered; `at(name)` and `descriptor` are what the functions of `os` take."""

    __slots__ = ("_may_be_link", "_path", "descriptor")

    def __init__(self, path: AnyPath, *, may_be_link: bool = False) -> None:
        self._path = os.fspath(path)
        self._may_be_link = may_be_link
        self.descriptor: int | None = None

    def __enter__(self) -> Self:
        status = os.stat(self._path, follow_symlinks=self._may_be_link)
        try:
            if HAS_HANDLES:
                no_follow = 0 if self._may_be_link else os.O_NOFOLLOW
                self.descriptor = os.open(self._path, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | no_follow)
                return self
            is_folder = stat.S_ISDIR(status.st_mode)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            is_folder = False
        if not is_folder:
            what = "is a link" if stat.S_ISLNK(status.st_mode) else "is not a folder"
            raise WorkspaceError(f"{self._path} {what}, so watchtest does not use it", hint=NOT_OURS)
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)

    def at(self, name: str) -> str:
        return name if self.descriptor is not None else os.path.join(self._path, name)

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.at(name), dir_fd=self.descriptor)
        except FileNotFoundError:
            pass


def _replace(handle: _FolderHandle, name: str, content: bytes, mode: int) -> None:
    temporary = f".{name}.new"
    # There is only one writer, so an existing file is left over; and O_EXCL never writes through a link.
    handle.remove(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    descriptor = open_regular(handle.at(temporary), flags, mode=mode, dir_fd=handle.descriptor)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        at = handle.descriptor
        os.replace(handle.at(temporary), handle.at(name), src_dir_fd=at, dst_dir_fd=at)
    finally:
        handle.remove(temporary)


def _is_regular(status: os.stat_result | None) -> bool:
    return status is not None and stat.S_ISREG(status.st_mode)
