"""One run, top to bottom: box, snapshot, sync, setup, services, tests. Decides nothing about when."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from watchtest.boxes.box import Box
from watchtest.boxes.environment import Environment
from watchtest.boxes.protocols import BoxSession, Note, Recipe, StopSignal
from watchtest.boxes.recipe.recipe import RecipeInput, recipe_of
from watchtest.boxes.services import ProcessEnvironment, Services
from watchtest.core.audit import green_in_company, missed_by_selection
from watchtest.core.events import (
    EVERYTHING,
    BoxConnected,
    BoxLost,
    Ending,
    Halted,
    Judged,
    NoteAdded,
    Post,
    SelectionMade,
    ServicesChanged,
    SnapshotTaken,
    StartRun,
    TestsCollected,
    Unchanged,
)
from watchtest.core.model import (
    All,
    BoxInfo,
    Entry,
    Execution,
    Lane,
    Only,
    Problem,
    Run,
    Selection,
    ServiceInfo,
    Snapshot,
    StopReason,
    difference,
)
from watchtest.core.recorded import FileFingerprint
from watchtest.errors import BY_ITSELF, SourceMoved, SourceShrank, WatchtestError
from watchtest.execution import RunContext, TestExecutor
from watchtest.selection.recorded_rows import parse_fingerprint
from watchtest.selection.selector import SelectionInput

log = logging.getLogger(__name__)
SYNC_TRIES = 5
SHRINK_FROM = 20
"""Below so many paths a box is filled again before anybody could answer."""
LEFT_OUT_LINES = 10
BY_HAND_SHOWN = 5


class SourceTree(Protocol):
    """The tree a lane tests. Blocking; called from one thread at a time."""

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        """The tree now. `hint` holds every path that may have changed since the last snapshot, or EVERYTHING."""

    def read(self, path: str, expect: Entry) -> bytes:
        """The content of that very entry; SourceMoved if it is no longer there."""


def environment_name(engine: str, image: str, origin: str, recipe: Recipe, settings: str) -> str:
    """By this word verdicts are remembered: the same tree may be green in one environment and red in another."""
    return f"{engine} {image} {origin.removeprefix('sha256:')[:12]} {recipe.key} {settings}"


@dataclass(frozen=True, slots=True)
class _SyncedBox:
    """A box at the very snapshot it is to be tested with."""

    session: BoxSession
    info: BoxInfo
    snapshot: Snapshot
    generation: int
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class _Listeners:
    """Who hears what happens on the way to a box: its steps, what has to be read later, too, and the box itself."""

    note: Note
    warn: Note
    seen: Callable[[BoxInfo], None]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts of one lane."""

    lane: Lane
    source: SourceTree
    box: Box
    environment: Environment
    services: Services
    wish: RecipeInput
    executor: TestExecutor
    settings: str
    """A digest of the settings that a verdict depends on."""
    may_shrink: Callable[[], bool]
    """Whether a sync may delete more than half of the box; asked only when one would."""
    done_by_hand: Callable[[], tuple[str, ...]] = tuple
    """What the user had done in a box that is gone; asked when another was made."""
    said: set[str] = field(default_factory=set)
    """Paths that were left out, and said so: once is enough."""
    served: dict[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    """By the id of a tree: which services there were when it was tested, and since when."""
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A source is looked at by one at a time."""

    def listen(self, post: Post) -> None:
        """Hear of a box that is lost, and of services that change, while nobody uses them."""

        def lost(reason: str) -> None:
            problem = Problem("channel", f"lost the agent in the box: {reason}", BY_ITSELF)
            post(BoxLost(self.lane, time.time(), problem))

        def seen(services: tuple[ServiceInfo, ...]) -> None:
            # By the same way as notes, so that they keep their order.
            asyncio.get_running_loop().call_soon(post, ServicesChanged(self.lane, time.time(), services))

        self.box.on_lost = lost
        self.services.on_change = seen

    async def execute(self, start: StartRun, post: Post, wish: StopSignal) -> Ending:
        """The whole of a run. Raises WatchtestError when the tool, not the code, fails."""

        def note(text: str) -> None:
            loop.call_soon_threadsafe(post, NoteAdded(self.lane, time.time(), text))

        def warn(text: str) -> None:
            loop.call_soon_threadsafe(post, NoteAdded(self.lane, time.time(), text, is_kept=True))

        def seen(info: BoxInfo) -> None:
            post(BoxConnected(self.lane, time.time(), info))

        run, judged_tree = start.run, start.knowledge.last_judged_tree
        loop = asyncio.get_running_loop()
        ready = await self._sync_to_source(start.paths, _Listeners(note, warn, seen), wish)
        if ready is None or wish.stop:
            return Halted(wish.stop or StopReason.CANCELLED)
        is_same_box = ready.info.id == start.knowledge.box
        is_known = is_same_box and judged_tree is not None and ready.snapshot.entries == judged_tree.entries
        if not is_known or run.is_forced:
            self._announce(run, ready, post, warn)
        # Even with nothing to run: a box that was brought back has to be whole again.
        prepared = await self.environment.prepare(ready.session, ready.recipe, note, wish)
        if prepared is None or wish.stop:
            return Halted(wish.stop or StopReason.CANCELLED)
        is_needless = is_known and not run.is_forced and not prepared.is_fresh
        if prepared.is_fresh:
            # Setup may have written into the tree: lock files, generated code.
            await ready.session.refresh()
            generation, _ = await ready.session.sync(ready.snapshot, self.source.read)
            ready = replace(ready, generation=generation)
        around = ProcessEnvironment(self.environment.variables, self.environment.path_first)
        await self.services.ensure(ready.session, ready.snapshot, around, note, wish, is_forced=run.is_forced)
        if wish.stop:
            return Halted(wish.stop)
        if is_needless:
            return Unchanged(ready.snapshot)
        if is_known and not run.is_forced:
            self._announce(run, ready, post, warn)
        context = RunContext(
            session=ready.session,
            snapshot=ready.snapshot,
            generation=ready.generation,
            python=prepared.python,
            environment=self._environment_name(ready),
            start=start,
            changed=_changed(start, ready.snapshot),
            post=post,
            note=warn,
            wish=wish,
            selection_input=_selection_input(start, ready, self._environment_name(ready), prepared.python),
        )
        context = await self._narrowed(context)
        if wish.stop:
            return Halted(wish.stop)
        match context.run.selection:
            case Only(tests=(), whole=(), is_proof=True, because=because):
                # From here on a change is looked at at once: this may be half a save.
                post(TestsCollected(self.lane, time.time(), run.id, frozenset()))
                nothing = Execution(exit_code=0, promised=frozenset(), results={}, reason=because, is_needless=True)
                return Judged(ready.snapshot, nothing, ready.info.id)
            case _:
                execution = await self.executor.execute(context)
        if execution.stopped in (StopReason.CANCELLED, StopReason.KILLED):
            return Halted(wish.stop or execution.stopped)
        if run.is_audit:
            self._audit(start, execution, warn)
        return Judged(ready.snapshot, execution, ready.info.id)

    def _audit(self, start: StartRun, execution: Execution, note: Note) -> None:
        """What a look at more tests than were selected has shown."""
        selector = self.executor.selector
        if isinstance(start.run.selection, Only):
            if tests := green_in_company(start.knowledge.results, execution):
                note(selector.keep_together(tests))
            return
        if left_out := missed_by_selection(start.knowledge.results, execution):
            note(selector.admit(start.run.id, left_out))
        selector.journal = []

    async def _narrowed(self, context: RunContext) -> RunContext:
        """The run with what it really has to run, where that was left open."""
        selector, run = self.executor.selector, context.run
        if run.is_narrowable:
            run = replace(run, selection=await self._selection(context))
            context.post(SelectionMade(self.lane, time.time(), run.id, run.selection))
            context = replace(context, start=replace(context.start, run=run))
        selector.begin(context.selection_input)
        self.served.clear()
        self.served[context.snapshot.id] = self.services.start_times
        return context

    async def _selection(self, context: RunContext) -> Selection:
        """A defect in here costs time, never a verdict: then everything runs."""
        base = context.selection_input.base
        if base is not None and self.served.get(base.id, ()) != self.services.start_times:
            return All(because="a service was started since: whoever speaks with it may be affected")
        try:
            return await self.executor.select(context)
        except WatchtestError:
            raise
        except Exception as error:
            log.exception("no selection for run %s, by a bug", context.run.id)
            context.note("a defect of watchtest: it cannot tell what is affected; the log has the details")
            return All(because=f"no selection, by a defect of watchtest: {type(error).__name__}: {error}")

    def _announce(self, run: Run, ready: _SyncedBox, post: Post, note: Note) -> None:
        """This is what the run is about."""
        post(SnapshotTaken(self.lane, time.time(), run.id, ready.snapshot, self._environment_name(ready)))
        self._say_what_is_left_out(ready.snapshot, note)

    def _environment_name(self, ready: _SyncedBox) -> str:
        hand = " by hand" if self.environment.has_manual_changes() else ""
        info = ready.info
        return environment_name(info.engine, info.image, info.origin, ready.recipe, self.settings) + hand

    async def prepare(self, note: Note, wish: StopSignal) -> None:
        """All of it but the tests: the box there, at the source as it is now, and set up."""
        listeners = _Listeners(note, note, lambda _info: None)
        ready = await self._sync_to_source(frozenset({EVERYTHING}), listeners, wish)
        if ready is not None:
            self._say_what_is_left_out(ready.snapshot, note)
            await self.environment.prepare(ready.session, ready.recipe, note, wish)

    async def _sync_to_source(
        self, paths: frozenset[str], listeners: _Listeners, wish: StopSignal
    ) -> _SyncedBox | None:
        """The box at exactly one snapshot. Files that change meanwhile mean another snapshot, not a mixture."""
        for _ in range(SYNC_TRIES):
            try:
                ready = await self._sync_once(paths, listeners, wish)
            except SourceMoved:
                # Nobody may have told yet what it was that changed.
                paths = frozenset({EVERYTHING})
                continue
            if ready is not None or wish.stop:
                return ready
        raise SourceMoved(
            f"files kept changing while they were synced ({SYNC_TRIES} times in a row)",
            hint="what writes into the workspace all the time belongs into .gitignore or watch.ignore",
        )

    async def _sync_once(self, paths: frozenset[str], listeners: _Listeners, wish: StopSignal) -> _SyncedBox | None:
        """None: it was stopped, or the source asks for another box than the one there is."""
        is_opening = not self.box.is_open
        recipe = None if is_opening else self.box.recipe
        if recipe is None:
            # What the box is made of is in the source, too.
            recipe = await self._recipe(await self._snapshot(paths))
        session, info = await self.box.ensure(recipe, listeners.note)
        listeners.seen(info)
        if is_opening:
            self._say_what_is_lost(info, listeners.warn)
        if wish.stop:
            return None
        snapshot = await self._look(session, paths)
        recipe, used = await self._recipe(snapshot), recipe
        if recipe.image != used.image:
            await self.box.disconnect()
            return None
        self._guard(session.path_count, snapshot)
        generation, _ = await session.sync(snapshot, self.source.read)
        return _SyncedBox(session, info, snapshot, generation, recipe)

    async def _recipe(self, snapshot: Snapshot) -> Recipe:
        return await asyncio.to_thread(recipe_of, self.wish, snapshot, self.source.read)

    def _say_what_is_lost(self, info: BoxInfo, note: Note) -> None:
        lost = self.done_by_hand() if info.is_new else ()
        if lost:
            what = "; ".join(lost[-BY_HAND_SHOWN:])
            note(f"a new box: what was done by hand in the old one is gone ({what}); `watchtest snapshot` keeps a box")

    def _say_what_is_left_out(self, snapshot: Snapshot, note: Note) -> None:
        fresh = [left_out for left_out in snapshot.excluded if left_out.path not in self.said]
        for left_out in fresh[:LEFT_OUT_LINES]:
            note(f"left out {left_out.path}: {left_out.reason}")
        if len(fresh) > LEFT_OUT_LINES:
            note(f"left out {len(fresh) - LEFT_OUT_LINES} more; `watchtest doctor` lists them")
        self.said.update(left_out.path for left_out in fresh)

    async def _look(self, session: BoxSession, paths: frozenset[str]) -> Snapshot:
        """At both ends at once: what is there now, and what became of the tree in the box."""
        taking = self._snapshot(paths)
        snapshot, refreshed = await asyncio.gather(taking, session.refresh(), return_exceptions=True)
        for outcome in (snapshot, refreshed):
            if isinstance(outcome, BaseException):
                raise outcome
        assert isinstance(snapshot, Snapshot)
        return snapshot

    def _guard(self, in_box: int, snapshot: Snapshot) -> None:
        """An unmounted disk looks like a project without files; emptying the box for it helps nobody."""
        now = len(snapshot.entries)
        if in_box < SHRINK_FROM or 2 * now >= in_box or self.may_shrink():
            return
        raise SourceShrank(
            f"the source of the {self.lane.value} lane has {now} paths, its box {in_box}: most would be deleted",
            hint="if that is right: `watchtest sync --accept` (or watch.shrink_guard = false)",
        )

    async def is_still(self, snapshot: Snapshot) -> bool:
        """Whether the source is what it was, looked at as a whole: a second opinion on what the watch has told."""
        now = await self._snapshot(frozenset({EVERYTHING}))
        return now.entries == snapshot.entries

    async def changed_since(self, snapshot: Snapshot, paths: frozenset[str]) -> frozenset[str]:
        """Which paths, of those that the watch named, are no longer what they are in that snapshot."""
        delta = difference(snapshot.entries, (await self._snapshot(paths)).entries)
        return frozenset((*delta.write, *delta.remove))

    async def _snapshot(self, paths: frozenset[str]) -> Snapshot:
        async with self.looking:
            return await asyncio.to_thread(self.source.snapshot, paths)


def _selection_input(start: StartRun, ready: _SyncedBox, environment: str, python: str) -> SelectionInput:
    async def fetch(paths: Collection[str]) -> Mapping[str, FileFingerprint]:
        rows = await ready.session.fingerprints(python, paths)
        return {path: parse_fingerprint(rows.get(path)) for path in paths}

    return SelectionInput(
        snapshot=ready.snapshot,
        environment=environment,
        base=start.knowledge.base if start.knowledge.box == ready.info.id else None,
        known=frozenset(start.knowledge.tests),
        must_run=start.knowledge.must_run,
        fetch=fetch,
    )


def _changed(start: StartRun, snapshot: Snapshot) -> frozenset[str]:
    """What differs from the tree of the last verdict; from an unfinished one, what the watch has named."""
    judged_tree = start.knowledge.last_judged_tree
    if judged_tree is None:
        return start.paths - {EVERYTHING}
    delta = difference(judged_tree.entries, snapshot.entries)
    return frozenset((*delta.write, *delta.remove))
