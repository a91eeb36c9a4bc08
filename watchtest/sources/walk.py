"""The listing of the working tree, folder by folder, and how it is brought up to date.

Goes down level by level, so that one question to git is enough for all the new names of a level, and no folder that is
left out is ever entered.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from watchtest.core.model import Entry, Kind
from watchtest.errors import WorkspaceError
from watchtest.sources.entry import VANISHED, Seen, examine, read_file, signature_of, unreadable
from watchtest.sources.git_ignore import IGNORE_FILE
from watchtest.sources.ignore import ALWAYS_OUT, Answer, Ignore
from watchtest.sources.secret_files import REASON
from watchtest.sources.tree_id import EMPTY_TREE, FOLDER_MODE, folder_id, git_mode, name_bytes

UNREAD = Seen((0, 0, 0, 0, 0), None, REASON, is_racy=False)
EMPTY_FOLDER = Entry(Kind.FOLDER, 0o755, 0, "")


@dataclass(slots=True, eq=False)
class Folder:
    """What is known of one folder. Its path ends in a slash, but for the root's, which is empty."""

    path: str
    inode: int
    parent: Folder | None
    is_passage: bool
    """Left out itself: it is no entry of its own when nothing below it is in."""
    stamp: tuple[int, ...] = ()
    seen: dict[str, Seen] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    is_racy: bool = False

    is_settled: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    tree: str = EMPTY_TREE
    is_empty: bool = True

    def all(self) -> list[Folder]:
        """This folder and all below it, each after the one it lies in."""
        folders = [self]
        for folder in folders:
            folders.extend(folder.folders.values())
        return folders

    def nearest(self, path: str) -> Folder:
        """The innermost known folder that holds this path, or would."""
        folder, end = self, 0
        while (end := path.find("/", end) + 1) and (below := folder.folders.get(path[:end])) is not None:
            folder = below
        return folder

    def unsettle(self) -> None:
        folder: Folder | None = self
        while folder is not None and folder.is_settled:
            folder.is_settled = False
            folder = folder.parent

    def settle(self) -> None:
        """Entries and git's id, once those of the folders in it are known."""
        if self.is_settled:
            return
        start = len(self.path)
        self.entries = {path: seen.entry for path, seen in self.seen.items() if seen.entry is not None}
        self.left_out = {path: seen.reason for path, seen in self.seen.items() if seen.entry is None}
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
        self.is_settled = True


@dataclass(frozen=True, slots=True)
class Listing:
    """The children of a folder that are not always left out, keyed as `Ignore` wants them: a folder ends in a slash."""

    stamp: tuple[int, ...]
    children: Mapping[str, os.DirEntry[str]]
    is_news: bool
    """What decides about the paths below it is not what it was."""


@dataclass(frozen=True, slots=True)
class Walk:
    root: str
    ignore: Ignore
    max_file_bytes: int

    def scan(self, todo: Mapping[str, Folder], is_deep: bool) -> dict[str, Folder]:
        """Lists these folders (deep: and all below them) again; gives back those that changed meanwhile."""
        level = {path: (folder, is_deep) for path, folder in todo.items()}
        scanned: dict[str, Folder] = {}
        moved: dict[str, Folder] = {}
        while level:
            listings = []
            for folder, goes_down in level.values():
                scanned[folder.path] = folder
                listing = self._list_known(folder, moved)
                if listing is not None:
                    listings.append((folder, listing, goes_down or listing.is_news))
            self.ignore.decide(path for _, listing, _ in listings for path in listing.children)
            level = {}
            for folder, listing, goes_down in listings:
                for below in self._take_in(folder, listing, goes_down):
                    if goes_down or scanned.get(below.path) is not below:
                        level[below.path] = (below, goes_down)
        for folder in scanned.values():
            if folder.stamp and self._stamp(folder.path) != folder.stamp and self._is_known(folder):
                moved[folder.path] = folder
        return moved

    def folders(self) -> tuple[str, ...]:
        """Every folder that would be entered, without what is in them."""
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
            level = [path for path in children if self.ignore.answer(path) is not Answer.OUT]
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
            parent.unsettle()
            if listing:
                parent.unreadable[folder.path[:-1]] = listing
                # Nothing tells when it becomes readable, so its parent is listed the next time, too.
                parent.is_racy = True
            else:
                moved[parent.path] = parent
        folder.stamp = ()
        return None

    def _list(self, path: str) -> Listing | str | None:
        """The listing; a reason why there can be none; or None when the folder has vanished."""
        try:
            stamp = self._stamp(path)
            with os.scandir(self._place(path)) as found:
                names = {child.name: child for child in found}
            if not stamp or self._stamp(path)[:1] != stamp[:1]:
                return None
            is_news = self.ignore.enter(path, self._ignore_file(names), ".git" in names)
        except OSError as error:
            return None if error.errno in VANISHED else unreadable(error)
        children = {
            f"{path}{name}/" if child.is_dir(follow_symlinks=False) else f"{path}{name}": child
            for name, child in names.items()
            if name not in ALWAYS_OUT
        }
        return Listing(stamp, children, is_news)

    def _ignore_file(self, names: Mapping[str, os.DirEntry[str]]) -> bytes | None:
        child = names.get(IGNORE_FILE)
        try:
            return None if child is None else read_file(child.path)
        except OSError:
            return None  # a link, a folder or unreadable: git does not heed it either

    def _take_in(self, folder: Folder, listing: Listing, goes_down: bool) -> list[Folder]:
        """Brings the folder to what the listing says; gives back the folders in it that have to be listed as well."""
        seen: dict[str, Seen] = {}
        folders: dict[str, Folder] = {}
        below: list[Folder] = []
        for path, child in listing.children.items():
            answer = self.ignore.answer(path)
            if answer is Answer.OUT:
                continue
            if path.endswith("/"):
                is_passage = answer is Answer.PASSAGE
                known = folder.folders.get(path)
                if known is None or known.inode != child.inode() or known.is_passage != is_passage:
                    known = Folder(path, child.inode(), folder, is_passage)
                    below.append(known)
                elif goes_down:
                    below.append(known)
                folders[path] = known
            elif answer is Answer.SECRET:
                seen[path] = UNREAD
            elif (what := self._examine(folder, path, child)) is not None:
                seen[path] = what
        if seen != folder.seen or folders != folder.folders or folder.unreadable:
            folder.unsettle()
        folder.seen, folder.folders, folder.unreadable = seen, folders, {}
        folder.is_racy = any(what.is_racy for what in seen.values())
        folder.stamp = listing.stamp
        return below

    def _examine(self, folder: Folder, path: str, child: os.DirEntry[str]) -> Seen | None:
        try:
            status = child.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno in VANISHED:
                return None
            return Seen((0, 0, 0, 0, 0), None, unreadable(error), is_racy=True)
        known = folder.seen.get(path)
        if known is not None and not known.is_racy and known.signature == signature_of(status):
            return known
        return examine(child.path, status, self.max_file_bytes)

    def _no_workspace(self, reason: str | None) -> WorkspaceError:
        return WorkspaceError(
            f"{self.root}: the workspace {reason or 'is gone'}",
            hint="Start watchtest again where the folder is and can be read.",
        )

    def _is_known(self, folder: Folder) -> bool:
        return folder.parent is None or folder.parent.folders.get(folder.path) is folder

    def _stamp(self, path: str) -> tuple[int, ...]:
        """Tells when a folder gained or lost a name, or is another one; nothing when it is no folder."""
        try:
            # The root itself may be given as a link.
            status = os.stat(self._place(path)) if not path else os.lstat(self._place(path))  # noqa: PTH116
        except OSError:
            return ()
        if not stat.S_ISDIR(status.st_mode):
            return ()
        return (status.st_ino, status.st_mtime_ns, status.st_ctime_ns)

    def _place(self, path: str) -> str:
        return f"{self.root}/{path[:-1]}" if path else self.root
