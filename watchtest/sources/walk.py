"""Lists the working tree folder by folder, and keeps the listing up to date.

It descends level by level: one call of git decides about all the new names of a level, and no folder that is left out
is ever entered.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from watchtest.core.model import Entry, EntryKind
from watchtest.errors import WorkspaceError
from watchtest.sources.entry import VANISHED, PathState, examine, read_file, read_link, signature_of, unreadable
from watchtest.sources.git_ignore import IGNORE_FILE
from watchtest.sources.ignore import ALWAYS_IGNORED, IgnoreDecision, PathFilter
from watchtest.sources.secret_files import REASON
from watchtest.sources.tree_id import EMPTY_TREE, FOLDER_MODE, folder_id, git_mode, name_bytes

SECRET_FILE = PathState((0, 0, 0, 0, 0), None, REASON, is_racy=False)
ABSOLUTE_LINK = "is an absolute link into the workspace, which leads nowhere in the box; make it relative"
EMPTY_FOLDER = Entry(EntryKind.FOLDER, 0o755, 0, "")


@dataclass(slots=True, eq=False)
class Folder:
    """What is known about one folder. Its path ends in a slash; that of the root is empty."""

    path: str
    inode: int
    parent: Folder | None
    is_passage: bool
    """It is left out itself, so it is no entry of its own if nothing below it is in."""
    stamp: tuple[int, ...] = ()
    files: dict[str, PathState] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    is_racy: bool = False

    is_summarized: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    tree: str = EMPTY_TREE
    is_empty: bool = True

    def all(self) -> list[Folder]:
        """Return this folder and all below it, parents first."""
        folders = [self]
        for folder in folders:
            folders.extend(folder.folders.values())
        return folders

    def nearest(self, path: str) -> Folder:
        """Return the innermost known folder that contains this path, or would contain it."""
        folder, end = self, 0
        while (end := path.find("/", end) + 1) and (below := folder.folders.get(path[:end])) is not None:
            folder = below
        return folder

    def invalidate(self) -> None:
        folder: Folder | None = self
        while folder is not None and folder.is_summarized:
            folder.is_summarized = False
            folder = folder.parent

    def summarize(self) -> None:
        """Compute the entries and git's id of this folder. Its subfolders must be summarized before."""
        if self.is_summarized:
            return
        start = len(self.path)
        self.entries = {path: state.entry for path, state in self.files.items() if state.entry is not None}
        self.left_out = {path: state.reason for path, state in self.files.items() if state.reason}
        self.left_out |= self.unreadable
        items = [(name_bytes(path[start:]), git_mode(entry), entry.digest) for path, entry in self.entries.items()]
        for path, folder in self.folders.items():
            if folder.tree != EMPTY_TREE:
                items.append((name_bytes(path[start:-1]), FOLDER_MODE, folder.tree))
        self.tree = folder_id(items)
        self.is_empty = not self.entries and all(
            folder.is_empty and folder.is_passage for folder in self.folders.values()
        )
        if self.is_empty and self.path and not self.is_passage:
            self.entries[self.path[:-1]] = EMPTY_FOLDER
        self.is_summarized = True


@dataclass(frozen=True, slots=True)
class Listing:
    """The children of a folder by path, where the path of a folder ends in a slash, without those never listed."""

    stamp: tuple[int, ...]
    children: Mapping[str, os.DirEntry[str]]
    has_new_rules: bool
    """The ignore rules for the paths below it have changed."""


@dataclass(frozen=True, slots=True)
class TreeWalk:
    """Lists the folders of one workspace."""

    root: str
    ignore: PathFilter
    max_file_bytes: int

    def scan(self, todo: Mapping[str, Folder], is_deep: bool) -> dict[str, Folder]:
        """List these folders again, with `is_deep` all below them, too. Returns those that changed in the meantime."""
        level = {path: (folder, is_deep) for path, folder in todo.items()}
        scanned: dict[str, Folder] = {}
        moved: dict[str, Folder] = {}
        while level:
            listings = []
            for folder, goes_down in level.values():
                scanned[folder.path] = folder
                listing = self._list_known(folder, moved)
                if listing is not None:
                    listings.append((folder, listing, goes_down or listing.has_new_rules))
            self.ignore.decide(path for _, listing, _ in listings for path in listing.children)
            level = {}
            for folder, listing, goes_down in listings:
                for below in self._update(folder, listing, goes_down):
                    if goes_down or scanned.get(below.path) is not below:
                        level[below.path] = (below, goes_down)
        for folder in scanned.values():
            if folder.stamp and self._stamp(folder.path) != folder.stamp and self._is_known(folder):
                moved[folder.path] = folder
        return moved

    def folders(self) -> tuple[str, ...]:
        """Return every folder that is not left out."""
        found: list[str] = []
        level = [""]
        while level:
            children: list[str] = []
            for path in level:
                listing = self._list(path)
                if isinstance(listing, Listing):
                    found.append(path[:-1])
                    children.extend(child for child in listing.children if child.endswith("/"))
                elif not path:
                    raise self._no_workspace(listing)
            self.ignore.decide(children)
            level = [path for path in children if self.ignore.decision(path) is not IgnoreDecision.OUT]
        return tuple(found)

    def _list_known(self, folder: Folder, moved: dict[str, Folder]) -> Listing | None:
        listing = self._list(folder.path)
        if isinstance(listing, Listing):
            return listing
        if folder.parent is None:
            raise self._no_workspace(listing)
        parent = folder.parent
        if parent.folders.get(folder.path) is folder:
            del parent.folders[folder.path]
            parent.invalidate()
            if listing:
                parent.unreadable[folder.path[:-1]] = listing
                # There is no event when it becomes readable, so list its parent again the next time.
                parent.is_racy = True
            else:
                moved[parent.path] = parent
        folder.stamp = ()
        return None

    def _list(self, path: str) -> Listing | str | None:
        """Return the listing, or the reason why it cannot be read, or None if the folder has vanished."""
        try:
            stamp = self._stamp(path)
            with os.scandir(self._absolute(path)) as found:
                names = {child.name: child for child in found}
            if not stamp or self._stamp(path)[:1] != stamp[:1]:
                return None
            has_new_rules = self.ignore.enter(path, self._ignore_file(names), ".git" in names)
        except OSError as error:
            return None if error.errno in VANISHED else unreadable(error)
        children = {
            f"{path}{name}/" if child.is_dir(follow_symlinks=False) else f"{path}{name}": child
            for name, child in names.items()
            if name not in ALWAYS_IGNORED
        }
        return Listing(stamp, children, has_new_rules)

    def _ignore_file(self, names: Mapping[str, os.DirEntry[str]]) -> bytes | None:
        child = names.get(IGNORE_FILE)
        try:
            return None if child is None else read_file(child.path)
        except OSError:
            return None  # a link, a folder or unreadable: git ignores it, too

    def _update(self, folder: Folder, listing: Listing, goes_down: bool) -> list[Folder]:
        """Update the folder from the listing. Returns the subfolders that have to be listed as well."""
        files: dict[str, PathState] = {}
        folders: dict[str, Folder] = {}
        below: list[Folder] = []
        for path, child in listing.children.items():
            decision = self.ignore.decision(path)
            if decision is IgnoreDecision.OUT:
                continue
            if path.endswith("/"):
                is_passage = decision is IgnoreDecision.PASSAGE
                known = folder.folders.get(path)
                if known is None or known.inode != child.inode() or known.is_passage != is_passage:
                    known = Folder(path, child.inode(), folder, is_passage)
                    below.append(known)
                elif goes_down:
                    below.append(known)
                folders[path] = known
            elif decision is IgnoreDecision.SECRET:
                files[path] = SECRET_FILE
            elif (state := self._examine(folder, path, child)) is not None:
                files[path] = state
        if files != folder.files or folders != folder.folders or folder.unreadable:
            folder.invalidate()
        folder.files, folder.folders, folder.unreadable = files, folders, {}
        folder.is_racy = any(state.is_racy for state in files.values())
        folder.stamp = listing.stamp
        return below

    def _examine(self, folder: Folder, path: str, child: os.DirEntry[str]) -> PathState | None:
        try:
            status = child.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno in VANISHED:
                return None
            return PathState((0, 0, 0, 0, 0), None, unreadable(error), is_racy=True)
        known = folder.files.get(path)
        if known is not None and not known.is_racy and known.signature == signature_of(status):
            return known
        state = examine(child.path, status, self.max_file_bytes)
        if state is not None and stat.S_ISLNK(status.st_mode) and self._is_absolute(child.path):
            return state._replace(reason=ABSOLUTE_LINK)
        return state

    def _is_absolute(self, link: str) -> bool:
        try:
            return os.fsdecode(read_link(link)).startswith(f"{self.root}/")
        except OSError:
            return False  # gone: its folder is listed again

    def _no_workspace(self, reason: str | None) -> WorkspaceError:
        return WorkspaceError(
            f"{self.root}: the workspace {reason or 'is gone'}",
            hint="Start watchtest again in a folder that exists and can be read.",
        )

    def _is_known(self, folder: Folder) -> bool:
        return folder.parent is None or folder.parent.folders.get(folder.path) is folder

    def _stamp(self, path: str) -> tuple[int, ...]:
        """Return a value that changes with the names in a folder or its inode; empty if it is not a folder."""
        try:
            # The root itself may be a link.
            status = os.lstat(self._absolute(path)) if path else os.stat(self.root)  # noqa: PTH116
        except OSError:
            return ()
        if not stat.S_ISDIR(status.st_mode):
            return ()
        return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

    def _absolute(self, path: str) -> str:
        return f"{self.root}/{path[:-1]}" if path else self.root
