"""Selects the tests of one lane: learns what its runs recorded, and finds the tests that a change can affect.

It has no box: the fingerprints of files come from a function in the input. It is called from the event loop; long
computations run in a thread, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from watchtest.agent.rows import REPOSITORY
from watchtest.core import impact_rules
from watchtest.core.model import All, Entry, EntryKind, Only, Result, Selection, Snapshot, difference
from watchtest.core.recorded import SESSION, ChangedPath, FileFingerprint
from watchtest.core.text import join_reasons, names
from watchtest.core.verdict import file_of
from watchtest.selection.explanation import explain
from watchtest.selection.import_graph import ImportGraph, ModuleNames
from watchtest.selection.linked_paths import LinkedPaths, follow_links
from watchtest.selection.map_file import SavedMap, save
from watchtest.selection.recorded_rows import RecordingRows
from watchtest.selection.test_map import TestMap

log = logging.getLogger(__name__)

JOURNAL_LENGTH = 200
REASONS_KEPT = 50
FILES_LIMIT = 20_000
"""With more Python files than this, no fingerprints are taken, so that every change affects the whole file."""
SPARE_FINGERPRINTS = 50
"""This many unused fingerprints are kept, so that they are not searched for at every save."""

Fetch = Callable[[Collection[str]], Awaitable[Mapping[str, FileFingerprint]]]
"""Returns the fingerprints of these paths, as they are in the box now."""
Pattern = tuple[str, Callable[[str], bool], str]


@dataclass(frozen=True, slots=True)
class SelectionInput:
    """What a selection is made of: the tree to test, and what is known about an earlier one."""

    snapshot: Snapshot
    environment: str
    base: Snapshot | None
    """The last tree on which every test was judged in this box; None if there is none."""
    known_tests: frozenset[str]
    """Every test that has a result."""
    must_run: frozenset[str]
    """Tests that run in any case: they are red, or their last result is not about `base`."""
    fetch: Fetch
    links: Mapping[str, str] = field(default_factory=dict)
    """The target of each symlink in the snapshot."""


@dataclass(slots=True)
class _UnsettledRun:
    """The recordings of a run. They are complete only if its tree becomes the base of the next selection."""

    snapshot: Snapshot
    environment: str
    recordings: RecordingRows


@dataclass(slots=True)
class Selector:
    mode: str = "affected"
    """`affected`, `conservative` or `all`."""
    patterns: tuple[Pattern, ...] = ()
    test_map: TestMap = field(default_factory=TestMap)
    whole_files: set[str] = field(default_factory=set)
    """Files whose tests depend on one another, so that they run together."""
    report_miss: Callable[[Mapping[str, object]], str] = lambda _document: "the log"
    """Writes what is needed to reproduce a wrong selection, and returns where."""
    journal: list[Mapping[str, object]] = field(default_factory=list)
    """The selections since the last run of all tests."""
    impacts: tuple[impact_rules.Impact, ...] = ()
    """The reasons for the last selection."""
    last: Selection | None = None
    _environment: str = ""
    _base: Snapshot | None = None
    """The tree that the test map describes."""
    _fingerprints: dict[str, FileFingerprint] = field(default_factory=dict)
    """By the digest of a file's content."""
    _fingerprints_needed: int = 0
    """How many fingerprints were in use when unused ones were last removed."""
    _unsettled: list[_UnsettledRun] = field(default_factory=list)
    _fetch_task: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the test map is used."""
    _edges: dict[str, tuple[FileFingerprint, set[str]]] = field(default_factory=dict)
    _names: tuple[frozenset[str], int, ModuleNames] | None = None
    _links: Mapping[str, str] = field(default_factory=dict)
    """The target of each symlink in the last snapshot."""

    @property
    def is_recording(self) -> bool:
        return self.mode != "all"

    # -- learning ----------------------------------------------------------------------------------

    def begin(self, inputs: SelectionInput) -> None:
        """Fetch missing fingerprints while the tests run."""
        missing = self._missing(inputs.snapshot)
        if self.is_recording and missing and (self._fetch_task is None or self._fetch_task.done()):
            self._fetch_task = asyncio.create_task(self._fetch_missing(inputs, missing), name="fingerprints")

    async def _fetch_missing(self, inputs: SelectionInput, paths: list[str]) -> None:
        try:
            self._store(inputs.snapshot, await inputs.fetch(paths))
        except Exception as error:  # noqa: BLE001  the run itself reports a broken box
            log.info("no fingerprints: %s", error)

    def _missing(self, snapshot: Snapshot) -> list[str]:
        python = [path for path, entry in snapshot.entries.items() if is_python(path, entry)]
        if len(python) > FILES_LIMIT:
            return []
        return [path for path in python if snapshot.entries[path].digest not in self._fingerprints]

    def _store(self, snapshot: Snapshot, fingerprints: Mapping[str, FileFingerprint]) -> None:
        for path, known in fingerprints.items():
            if path in snapshot.entries:
                self._fingerprints[snapshot.entries[path].digest] = known

    def _forget_fingerprints(self, *snapshots: Snapshot) -> None:
        """Remove fingerprints of contents that are neither in these snapshots nor in an unsettled run."""
        if len(self._fingerprints) <= self._fingerprints_needed + SPARE_FINGERPRINTS:
            return
        trees = (*snapshots, *(entry.snapshot for entry in self._unsettled))
        digests = {entry.digest for tree in trees for entry in tree.entries.values()}
        self._fingerprints = {digest: known for digest, known in self._fingerprints.items() if digest in digests}
        self._fingerprints_needed = len(self._fingerprints)

    def end(self, inputs: SelectionInput, recordings: RecordingRows) -> None:
        """Take the recordings of a run, to be learned when its verdict is known."""
        if recordings:
            self._unsettled.append(_UnsettledRun(inputs.snapshot, inputs.environment, recordings))

    # -- saving ------------------------------------------------------------------------------------

    def resume(self, kept: SavedMap) -> None:
        """Continue with the map of an earlier watcher."""
        self.test_map, self._environment, self._fingerprints = kept.test_map, kept.environment, dict(kept.fingerprints)
        self._base = kept.base

    async def keep(self, file: Path, base: Snapshot, results: Mapping[str, Result], box: str) -> None:
        """Save what is known about this tree for the next watcher. Raises OSError."""
        await self.settle(base)
        async with self._lock:
            digests = {entry.digest for entry in base.entries.values()}
            fingerprints = {digest: known for digest, known in self._fingerprints.items() if digest in digests}
            kept = SavedMap(self._environment, box, base, results, self.test_map, fingerprints)
            await asyncio.to_thread(save, file, kept)

    # -- audits ------------------------------------------------------------------------------------

    def report_missed(self, run: str, tests: tuple[str, ...]) -> str:
        """Write a report about tests that an audit found red although a selection left them out; return a message."""
        missed = {}
        for test in tests:
            touched = self.test_map.touched_by([test])
            missed[test] = {kind: sorted(map(str, things)) for kind, things in touched.items()}
        document = {"run": run, "environment": self._environment, "selections": self.journal, "missed": missed}
        where = self.report_miss(document)
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        return (
            f"{tests[0]}{more}: red, although no change was known to affect it. This is a bug in watchtest unless the"
            f" test is flaky or depends on the order; please report it with {where}"
        )

    def run_together(self, tests: tuple[str, ...]) -> str:
        """Run the files of these tests, which fail alone, only as a whole from now on; return a message."""
        files = sorted({file_of(test) for test in tests})
        self.whole_files.update(files)
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        return (
            f"{tests[0]}{more}: failed alone, but passes after other tests of its file; from now on"
            f" {', '.join(files[:3])} always runs as a whole"
        )

    # -- explaining --------------------------------------------------------------------------------

    def reach(self, paths: Iterable[str]) -> int:
        """Return the tests that can reach one of these files by imports."""
        if self._base is None:
            return 0
        return self._impact_context(self._base, [], follow_links(self._base.entries, self._links))[0].reach(paths)

    def real_path(self, path: str) -> str:
        """Return the path of a file without links."""
        return path if self._base is None else follow_links(self._base.entries, self._links).real.get(path, path)

    async def explained(self, what: str, known: Snapshot | None) -> dict[str, Any] | None:
        """Explain why a test ran or did not, or which tests depend on a file; None if nothing is known about it."""
        await self.settle(known)
        async with self._lock:
            return await asyncio.to_thread(explain, self, what)

    # -- settling ----------------------------------------------------------------------------------

    async def settle(self, known: Snapshot | None) -> None:
        """Learn what runs recorded, now that the tree of the last complete verdict is known."""
        if self._fetch_task is not None and not self._fetch_task.done():
            await asyncio.wait([self._fetch_task])
        async with self._lock:
            self._base = known or self._base
            unsettled, self._unsettled = self._unsettled, []
            if unsettled:
                await asyncio.to_thread(self._learn, unsettled, known)

    def _learn(self, unsettled: list[_UnsettledRun], known: Snapshot | None) -> None:
        for entry in unsettled:
            if entry.environment != self._environment:
                self.test_map, self._environment = TestMap(), entry.environment
                self._edges, self._names = {}, None
            is_proven = known is not None and entry.snapshot.entries == known.entries
            self.test_map.learn(entry.recordings.recorded(self._fingerprints_of(entry.snapshot)), is_proven)

    def _fingerprints_of(self, snapshot: Snapshot) -> dict[str, FileFingerprint]:
        return {
            path: self._fingerprints[entry.digest]
            for path, entry in snapshot.entries.items()
            if entry.digest in self._fingerprints and is_python(path, entry)
        }

    # -- selecting ---------------------------------------------------------------------------------

    async def select(self, inputs: SelectionInput) -> Selection:
        """Return the tests that must run, with a proof that the others need not."""
        self.last = await self._select(inputs)
        return self.last

    async def _select(self, inputs: SelectionInput) -> Selection:
        self.impacts = ()
        if self.mode == "all":
            return All(because='all tests, because selection.mode is "all"')
        await self.settle(inputs.base)
        known = inputs.base
        if known is None:
            return All(because="it is not recorded yet which tests a change can affect")
        if inputs.environment != self._environment:
            return All(because="the environment has changed since the tests were recorded")
        changed = sorted(difference(known.entries, inputs.snapshot.entries).paths)
        fresh = [path for path in changed if _has_no_fingerprint(path, inputs.snapshot, self._fingerprints)]
        if fresh:
            self._store(inputs.snapshot, await inputs.fetch(fresh))
        self._forget_fingerprints(known, inputs.snapshot)
        async with self._lock:
            return self._selected(inputs, known, changed)

    def _selected(self, inputs: SelectionInput, known: Snapshot, changed: list[str]) -> Selection:
        self._links = inputs.links
        changes = [self._change(path, known.entries, inputs.snapshot.entries) for path in changed]
        in_git = _changes_in_git(known.repository, inputs.snapshot.repository)
        changes += [self._change(path, known.repository, inputs.snapshot.repository) for path in in_git]
        changed = [*changed, *in_git]
        linked = self._changes_behind_links(known.entries, inputs.snapshot.entries, changes)
        context, empty = self._impact_context(known, changes, linked)
        look = impact_rules.find_impacts_by_file if self.mode == "conservative" else impact_rules.find_impacts
        self.impacts = tuple(look(changes, context))
        first, rest = 0, 0
        for impact in self.impacts:
            first |= impact.first
            rest |= impact.rest
        unrecorded = inputs.known_tests.difference(self.test_map.tests)
        quick = {*self.test_map.names(first), *inputs.must_run}
        whole = {impact.whole for impact in self.impacts if impact.whole}
        whole |= {file for file in self.test_map.files if not self.test_map.in_file(file) & ~(first | rest)} | empty
        tests = {*self.test_map.names(first | rest), *inputs.must_run, *unrecorded, *whole}
        together = self.whole_files & {file_of(test) for test in tests}
        tests |= together
        quick |= together & {file_of(test) for test in quick}
        because = self._because(changed, unrecorded, inputs)
        for impact in self.impacts:
            sizes = impact.first.bit_count(), (impact.rest & ~impact.first).bit_count()
            log.info("%d tests first, %d behind: %s", *sizes, impact.because)
        self._note_down(known, inputs, changed, len(tests), because)
        if inputs.known_tests and tests.issuperset(inputs.known_tests):
            return All(because=because)
        return Only(
            tuple(sorted(tests)),
            because,
            is_proof=True,
            first=tuple(sorted(quick)),
            reasons=self._reasons(),
            collects_all=any(impact.collects_all for impact in self.impacts) or not empty.isdisjoint(linked.real),
        )

    def _reasons(self) -> tuple[str, ...]:
        """Return how many tests each reason selects, the most precise reason first."""
        sizes: dict[str, int] = {}
        for impact in self.impacts:
            sizes[impact.because] = sizes.get(impact.because, 0) | impact.first | impact.rest
        rows = sorted(sizes.items(), key=lambda row: row[1].bit_count())
        return tuple(f"{mask.bit_count()} of {len(self.test_map)}: {because}" for because, mask in rows[:REASONS_KEPT])

    def _note_down(self, known: Snapshot, inputs: SelectionInput, changed: list[str], count: int, because: str) -> None:
        row = {"from": known.id, "to": inputs.snapshot.id, "changed": changed[:100], "selected": count}
        self.journal = [*self.journal, {**row, "known": len(inputs.known_tests), "because": because}][-JOURNAL_LENGTH:]

    def _because(self, changed: list[str], unrecorded: frozenset[str], inputs: SelectionInput) -> str:
        words = join_reasons(impact.because for impact in self.impacts)
        if not words:
            words = f"no test depends on {names(changed)}" if changed else "nothing has changed"
        if inputs.must_run:
            words += f"; {len(inputs.must_run)} failed or without a current result"
        if unrecorded - inputs.must_run:
            words += f"; {len(unrecorded - inputs.must_run)} not recorded yet"
        return words

    def _change(self, path: str, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> ChangedPath:
        old, new = before.get(path), after.get(path)
        came_or_went = tuple(_came_or_went(path, before, after)) if (old is None) != (new is None) else ()
        return ChangedPath(
            path,
            was_there=old is not None,
            is_there=new is not None,
            before=self._fingerprints.get(old.digest) if old is not None and is_python(path, old) else None,
            after=self._fingerprints.get(new.digest) if new is not None and is_python(path, new) else None,
            is_content=old is None or new is None or (old.digest, old.kind) != (new.digest, new.kind),
            listings=tuple(one.rpartition("/")[0] or "." for one in came_or_went),
            came_or_went=came_or_went,
            is_link=any(entry is not None and entry.kind is EntryKind.SYMLINK for entry in (old, new)),
        )

    def _changes_behind_links(
        self, before: Mapping[str, Entry], after: Mapping[str, Entry], changes: list[ChangedPath]
    ) -> LinkedPaths:
        """Add the changes of paths through links. Changed links are not compared: they affect all tests anyway."""
        old, new = follow_links(before, self._links), follow_links(after, self._links)
        linked = old | new
        were, are = old.entries(before), new.entries(after)
        before, after = {**before, **were}, {**after, **are}
        for path in sorted(difference(were, are).paths):
            changes.append(replace(self._change(path, before, after), real=linked.real[path]))
        return linked

    # -- the context of the rules ------------------------------------------------------------------

    def _impact_context(
        self, known: Snapshot, changes: list[ChangedPath], linked: LinkedPaths
    ) -> tuple[impact_rules.ImpactContext, set[str]]:
        """Return the context, and a set of files without tests that may have some now. `reach` fills that set."""
        empty: set[str] = set()
        old = self._fingerprints_of(known)
        new = {change.path: change.after for change in changes if change.after is not None}
        names = self._named({*old, *new, *linked.real})

        @cache
        def graph() -> ImportGraph:
            """Build the graph on demand: most changes of a function do not need it."""
            graph = self._graph(names, old, new)
            for path, real in linked.real.items():
                graph.add_edge(path, real)
            return graph

        def reach(paths: Iterable[str]) -> int:
            mask = 0
            for path in graph().reaching(paths):
                if PurePosixPath(path).name == impact_rules.CONFTEST:
                    mask |= self.test_map.below(path.rpartition("/")[0])
                elif SESSION in self.test_map.scopes("imports", path):
                    return self.test_map.all()
                real = linked.real.get(path, path)
                if self.test_map.is_collected(real) and not self.test_map.in_file(path) | self.test_map.in_file(real):
                    empty.add(path)
                mask |= self.test_map.entering(path) | self.test_map.looked_for(names.of(path))
            return mask

        context = impact_rules.ImpactContext(
            recorded=self.test_map,
            reach=reach,
            module_names=names.of,
            tops=self.test_map.tops,
            suffixes=frozenset(PurePosixPath(file).suffix for file in self.test_map.files if not file.endswith(".py")),
            circles=linked.circles,
            patterns=self.patterns,
        )
        return context, empty

    def _graph(
        self, names: ModuleNames, old: Mapping[str, FileFingerprint], new: Mapping[str, FileFingerprint]
    ) -> ImportGraph:
        graph = ImportGraph(names)
        for path, one in old.items():
            for imported in self._imported(names, path, one):
                graph.add_edge(path, imported)
        for path, one in new.items():
            graph.add(path, one)
        self.test_map.add_edges(graph, names)
        return graph

    def _named(self, paths: set[str]) -> ModuleNames:
        """Return the module names, cached as long as no file and no module is added or removed."""
        key = (frozenset(paths), len(self.test_map.modules))
        if self._names is None or self._names[:2] != key:
            self._names = (*key, ModuleNames(self.test_map.modules, paths))
            self._edges = {}
        return self._names[2]

    def _imported(self, names: ModuleNames, path: str, known: FileFingerprint) -> set[str]:
        kept = self._edges.get(path)
        if kept is None or kept[0] is not known:
            kept = self._edges[path] = (known, names.imported_by(path, known))
        return kept[1]


def is_python(path: str, entry: Entry) -> bool:
    return path.endswith(".py") and entry.kind is EntryKind.FILE


def _changes_in_git(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """Return what git says otherwise than before; REPOSITORY stands for its commits and tags."""
    paths = sorted(path for path in difference(before, after).paths if not path.startswith(f"{REPOSITORY}/objects/"))
    has_moved = any(path != f"{REPOSITORY}/index" for path in paths)
    return [*([REPOSITORY] if has_moved else []), *paths]


def _has_no_fingerprint(path: str, snapshot: Snapshot, fingerprints: Mapping[str, FileFingerprint]) -> bool:
    entry = snapshot.entries.get(path)
    return entry is not None and is_python(path, entry) and entry.digest not in fingerprints


def _came_or_went(path: str, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterable[str]:
    """Yield the path, and the folders above it that exist in only one of the trees."""
    yield path
    folder = path.rpartition("/")[0]
    while folder:
        start = f"{folder}/"
        if any(one.startswith(start) for one in before) and any(one.startswith(start) for one in after):
            return
        yield folder
        folder = folder.rpartition("/")[0]
