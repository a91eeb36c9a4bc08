"""The selection of one lane: what its runs have recorded, and which tests the next change can affect.

Knows no box: prints of files come by a function that is passed in. Called from the event loop; what takes long is done
in a thread, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from watchtest.core.impact_rules import (
    CONFTEST,
    Impact,
    ImpactContext,
    describe_impacts,
    find_impacts,
    find_impacts_by_file,
)
from watchtest.core.model import All, Entry, EntryKind, Only, Result, Selection, Snapshot, difference
from watchtest.core.recorded import ChangedPath, FileFingerprint
from watchtest.core.verdict import file_of
from watchtest.selection.explanation import explain
from watchtest.selection.import_graph import ImportGraph, ModuleNames
from watchtest.selection.map_file import SavedMap, save
from watchtest.selection.recorded_rows import RecordingRows
from watchtest.selection.test_map import TestMap

log = logging.getLogger(__name__)

JOURNAL_LENGTH = 200
REASONS_KEPT = 50
FILES_LIMIT = 20_000
SPARE_FINGERPRINTS = 50
"""So many prints of contents that are no more are kept, which saves looking for them at each save."""
"""More Python files than this are not printed; then every change is a change of everything."""

Fetch = Callable[[Collection[str]], Awaitable[Mapping[str, FileFingerprint]]]
"""Prints of these paths, as they are in the box now."""
Pattern = tuple[str, Callable[[str], bool], str]


@dataclass(frozen=True, slots=True)
class SelectionInput:
    """A run that is about to begin, in a box that holds its snapshot."""

    snapshot: Snapshot
    environment: str
    base: Snapshot | None
    """The last tree of which everything is known, in this box; None if there is none."""
    known_tests: frozenset[str]
    """Every test that there is a result of."""
    must_run: frozenset[str]
    """Those that are to run in any case: red, or heard of since."""
    fetch: Fetch


@dataclass(slots=True)
class _UnsettledRun:
    """What the last run recorded: proven only once its verdict is the one that the next run goes by."""

    snapshot: Snapshot
    environment: str
    recordings: RecordingRows


@dataclass(slots=True)
class Selector:
    mode: str = "affected"
    """affected, conservative or all."""
    patterns: tuple[Pattern, ...] = ()
    test_map: TestMap = field(default_factory=TestMap)
    whole_files: set[str] = field(default_factory=set)
    """Files whose tests count on one another: they run together."""
    report_miss: Callable[[Mapping[str, object]], str] = lambda _document: "the log"
    """Writes down what is needed to reproduce a miss; where."""
    journal: list[Mapping[str, object]] = field(default_factory=list)
    """What was left out since all tests ran, and why."""
    found: tuple[Impact, ...] = ()
    """Why the last selection was what it was."""
    last: Selection | None = None
    _environment: str = ""
    _base: Snapshot | None = None
    """The tree that all of this is true of."""
    _fingerprints: dict[str, FileFingerprint] = field(default_factory=dict)
    """By the digest of a file's content."""
    _fingerprints_needed: int = 0
    """How many of them were still of use when that was last looked at."""
    _unsettled: list[_UnsettledRun] = field(default_factory=list)
    _fetch_task: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The test map is used by one at a time."""
    _edges: dict[str, tuple[FileFingerprint, frozenset[str]]] = field(default_factory=dict)
    _names: tuple[frozenset[str], int, ModuleNames] | None = None

    @property
    def is_recording(self) -> bool:
        return self.mode != "all"

    # -- learning ----------------------------------------------------------------------------------

    def begin(self, inputs: SelectionInput) -> None:
        """Have the files printed that are not yet, while the tests run."""
        missing = self._missing(inputs.snapshot)
        if self.is_recording and missing and (self._fetch_task is None or self._fetch_task.done()):
            self._fetch_task = asyncio.create_task(self._fetch_missing(inputs, missing), name="prints")

    async def _fetch_missing(self, inputs: SelectionInput, paths: list[str]) -> None:
        try:
            self._store(inputs.snapshot, await inputs.fetch(paths))
        except Exception as error:  # noqa: BLE001  the run finds out by itself what became of the box
            log.info("no prints: %s", error)

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
        """Of contents that no tree has any more of which something is still to be learned or compared."""
        if len(self._fingerprints) <= self._fingerprints_needed + SPARE_FINGERPRINTS:
            return
        trees = (*snapshots, *(entry.snapshot for entry in self._unsettled))
        digests = {entry.digest for tree in trees for entry in tree.entries.values()}
        self._fingerprints = {digest: known for digest, known in self._fingerprints.items() if digest in digests}
        self._fingerprints_needed = len(self._fingerprints)

    def end(self, inputs: SelectionInput, recordings: RecordingRows) -> None:
        """What tests that came to their end have told."""
        if recordings:
            self._unsettled.append(_UnsettledRun(inputs.snapshot, inputs.environment, recordings))

    # -- keeping -----------------------------------------------------------------------------------

    def resume(self, kept: SavedMap) -> None:
        """Go on with what an earlier watcher has found out."""
        self.test_map, self._environment, self._fingerprints = kept.test_map, kept.environment, dict(kept.fingerprints)
        self._base = kept.base

    async def keep(self, file: Path, base: Snapshot, results: Mapping[str, Result], box: str) -> None:
        """For the next watcher: all that is known of this tree. Raises OSError."""
        await self.settle(base)
        async with self._lock:
            digests = {entry.digest for entry in base.entries.values()}
            fingerprints = {digest: known for digest, known in self._fingerprints.items() if digest in digests}
            kept = SavedMap(self._environment, box, base, results, self.test_map, fingerprints)
            await asyncio.to_thread(save, file, kept)

    # -- owning up ---------------------------------------------------------------------------------

    def report_missed(self, run: str, tests: tuple[str, ...]) -> str:
        """An audit found tests red that a selection had left out: keep all that is known about it, and say so."""
        document = {
            "run": run,
            "environment": self._environment,
            "selections": self.journal,
            "missed": {test: {kind: sorted(map(str, things)) for kind, things in self.test_map.touched_by(test).items()}
                       for test in tests},
        }  # fmt: skip
        where = self.report_miss(document)
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        return (
            f"{tests[0]}{more}: red, and no change was known to reach it. A defect of watchtest, unless the test is"
            f" flaky or depends on the order; please report it with {where}"
        )

    def run_together(self, tests: tuple[str, ...]) -> str:
        """Tests that failed by themselves and pass after others of their file: it is not to be taken apart again."""
        files = sorted({file_of(test) for test in tests})
        self.whole_files.update(files)
        more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        return (
            f"{tests[0]}{more}: failed by itself, and passes after others of its file; from now on all of"
            f" {', '.join(files[:3])} runs when some of it has to"
        )

    # -- explaining --------------------------------------------------------------------------------

    def reach(self, paths: Iterable[str]) -> int:
        """The tests that can reach one of these files by imports."""
        return self._impact_context(self._base, [])[0].reach(paths) if self._base is not None else 0

    async def explained(self, what: str, known: Snapshot | None) -> dict[str, Any] | None:
        """Why a test ran or did not, or who depends on a file; None if nothing is known of it."""
        await self.settle(known)
        async with self._lock:
            return await asyncio.to_thread(explain, self, what)

    # -- settling ----------------------------------------------------------------------------------

    async def settle(self, known: Snapshot | None) -> None:
        """Take over what was recorded, now that it is known which tree the last verdict is of."""
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
        """What has to run; a proof that all the others need not."""
        self.last = await self._select(inputs)
        return self.last

    async def _select(self, inputs: SelectionInput) -> Selection:
        self.found = ()
        if self.mode == "all":
            return All(because="all tests, as selection.mode says")
        await self.settle(inputs.base)
        known = inputs.base
        if known is None:
            return All(because="it is not recorded yet which tests a change can affect")
        if inputs.environment != self._environment:
            return All(because="the environment is another than the one in which tests were recorded")
        changed = sorted(_changed(known.entries, inputs.snapshot.entries))
        fresh = [path for path in changed if _has_no_fingerprint(path, inputs.snapshot, self._fingerprints)]
        if fresh:
            self._store(inputs.snapshot, await inputs.fetch(fresh))
        self._forget_fingerprints(known, inputs.snapshot)
        async with self._lock:
            return self._selected(inputs, known, changed)

    def _selected(self, inputs: SelectionInput, known: Snapshot, changed: list[str]) -> Selection:
        changes = [self._change(path, known.entries, inputs.snapshot.entries) for path in changed]
        context, empty = self._impact_context(known, changes)
        look = find_impacts_by_file if self.mode == "conservative" else find_impacts
        self.found = tuple(look(changes, context))
        first, rest = 0, 0
        for impact in self.found:
            first |= impact.first
            rest |= impact.rest
        unrecorded = inputs.known_tests.difference(self.test_map.tests)
        quick = {*self.test_map.names(first), *inputs.must_run}
        whole = {impact.whole for impact in self.found if impact.whole}
        whole |= {file for file in self.test_map.files if not self.test_map.in_file(file) & ~(first | rest)} | empty
        tests = {*self.test_map.names(first | rest), *inputs.must_run, *unrecorded, *whole}
        together = self.whole_files & {file_of(test) for test in tests}
        tests |= together
        quick |= together & {file_of(test) for test in quick}
        because = self._because(changed, unrecorded, inputs)
        for impact in self.found:
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
            collects_all=any(impact.collects_all for impact in self.found),
        )

    def _reasons(self) -> tuple[str, ...]:
        """How many tests each reason concerns, the most precise first."""
        sizes: dict[str, int] = {}
        for impact in self.found:
            sizes[impact.because] = sizes.get(impact.because, 0) | impact.first | impact.rest
        rows = sorted(sizes.items(), key=lambda row: row[1].bit_count())
        return tuple(f"{mask.bit_count()} of {len(self.test_map)}: {because}" for because, mask in rows[:REASONS_KEPT])

    def _note_down(self, known: Snapshot, inputs: SelectionInput, changed: list[str], count: int, because: str) -> None:
        row = {"from": known.id, "to": inputs.snapshot.id, "changed": changed[:100], "selected": count}
        self.journal = [*self.journal, {**row, "known": len(inputs.known_tests), "because": because}][-JOURNAL_LENGTH:]

    def _because(self, changed: list[str], unrecorded: frozenset[str], inputs: SelectionInput) -> str:
        words = describe_impacts(self.found)
        if not words:
            names = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
            words = f"no test is known to touch {names}" if changed else "nothing has changed"
        if inputs.must_run:
            words += f"; {len(inputs.must_run)} failed or did not end well"
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

    # -- what the rules stand on -------------------------------------------------------------------

    def _impact_context(self, known: Snapshot, changes: list[ChangedPath]) -> tuple[ImpactContext, set[str]]:
        """And, filled by asking, files without tests that may hold some now."""
        empty: set[str] = set()
        old = self._fingerprints_of(known)
        new = {change.path: change.after for change in changes if change.after is not None}
        names = self._named({*old, *new})

        @cache
        def graph() -> ImportGraph:
            """Made when it is asked for: most changes of a function are no matter of imports."""
            return self._graph(names, old, new)

        def reach(paths: Iterable[str]) -> int:
            mask = 0
            for path in graph().reaching(paths):
                if PurePosixPath(path).name == CONFTEST:
                    mask |= self.test_map.below(path.rpartition("/")[0])
                elif self.test_map.is_of_session("imports", path):
                    return self.test_map.all()
                if self.test_map.is_collected(path) and not self.test_map.in_file(path):
                    empty.add(path)
                mask |= self.test_map.entering(path) | self.test_map.looked_for(names.of(path))
            return mask

        context = ImpactContext(
            recorded=self.test_map,
            reach=reach,
            module_names=names.of,
            tops=self.test_map.tops,
            suffixes=frozenset(PurePosixPath(file).suffix for file in self.test_map.files if not file.endswith(".py")),
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
        """Kept while files and modules stay the same: most changes are to what is in a file."""
        key = (frozenset(paths), len(self.test_map.modules))
        if self._names is None or self._names[:2] != key:
            self._names = (*key, ModuleNames(self.test_map.modules, paths))
            self._edges = {}
        return self._names[2]

    def _imported(self, names: ModuleNames, path: str, known: FileFingerprint) -> frozenset[str]:
        kept = self._edges.get(path)
        if kept is None or kept[0] is not known:
            imported = frozenset(file for statement in known.imports for file in names.named_by(path, statement))
            kept = self._edges[path] = (known, imported | names.around(path))
        return kept[1]


def is_python(path: str, entry: Entry) -> bool:
    return path.endswith(".py") and entry.kind is EntryKind.FILE


def _changed(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterable[str]:
    delta = difference(before, after)
    return (*delta.write, *delta.remove)


def _has_no_fingerprint(path: str, snapshot: Snapshot, fingerprints: Mapping[str, FileFingerprint]) -> bool:
    entry = snapshot.entries.get(path)
    return entry is not None and is_python(path, entry) and entry.digest not in fingerprints


def _came_or_went(path: str, before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterable[str]:
    """The path, and the folders above it that there are in one tree alone."""
    yield path
    folder = path.rpartition("/")[0]
    while folder:
        start = f"{folder}/"
        if any(one.startswith(start) for one in before) and any(one.startswith(start) for one in after):
            return
        yield folder
        folder = folder.rpartition("/")[0]
