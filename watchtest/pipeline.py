"""One run from start to end: box, snapshot, sync, setup, services, tests. `step` decides when a run starts."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.box import Box
from watchtest.boxes.environment import Environment, Standing
from watchtest.boxes.protocols import BoxSession, Note, Recipe, StopSignal
from watchtest.boxes.recipe.recipe_maker import RecipeMaker
from watchtest.boxes.services import ProcessEnvironment, Services
from watchtest.core import events, model
from watchtest.core.background_audit import green_in_company, missed_by_selection
from watchtest.core.recorded import FileFingerprint
from watchtest.errors import (
    BY_ITSELF,
    BoxDamaged,
    BoxError,
    EngineError,
    ImageError,
    RunOverdue,
    SourceMoved,
    WatchtestError,
)
from watchtest.execution import RunContext, TestExecutor
from watchtest.selection.recorded_rows import parse_fingerprint
from watchtest.selection.selector import SelectionInput

log = logging.getLogger(__name__)
SYNC_TRIES = 5
LEFT_OUT_LINES = 10
BY_HAND_SHOWN = 5
QUERY_LIMIT_S = 60.0


class Repository(Protocol):
    """What the box gets of the git repository of a lane. Its methods block."""

    def entries(self, snapshot: model.Snapshot) -> Mapping[str, model.Entry]:
        """Return the entries to add to this snapshot."""

    def read(self, path: str, expect: model.Entry) -> bytes:
        """Return the content of exactly that entry. Raises SourceMoved if it has changed."""


class SourceTree(Protocol):
    """The tree that a lane tests. Its methods block and are called from one thread at a time."""

    def snapshot(self, hint: frozenset[str]) -> model.Snapshot:
        """Return the present tree. `hint` has every path that may have changed since the last call, or EVERYTHING."""

    def read(self, path: str, expect: model.Entry) -> bytes:
        """Return the content of exactly that entry. Raises SourceMoved if it has changed."""


def environment_name(engine: str, image: str, origin: str, recipe: Recipe, settings: str) -> str:
    """Return the name under which verdicts are stored: a tree may be green in one environment and red in another."""
    return f"{engine} {image} {origin.removeprefix('sha256:')[:12]} {recipe.key} {settings}"


@dataclass(frozen=True, slots=True)
class _SyncedBox:
    """A box that holds exactly the snapshot to be tested."""

    session: BoxSession
    info: model.BoxInfo
    snapshot: model.Snapshot
    generation: int
    recipe: Recipe
    links: Mapping[str, str]
    """The target of each symlink in the snapshot."""
    standing: Standing


@dataclass(frozen=True, slots=True)
class _Listeners:
    """Callbacks for progress notes, for warnings that are kept, and for the connected box."""

    note: Note
    warn: Note
    seen: Callable[[model.BoxInfo], None]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The parts of one lane, and how they work together in a run."""

    lane: model.Lane
    source: SourceTree
    box: Box
    environment: Environment
    services: Services
    recipes: RecipeMaker
    executor: TestExecutor
    settings: str
    """A digest of the settings that affect verdicts."""
    check_shrinkage: Callable[[int, int], None]
    """Given the number of paths in the box and in the source: raise SourceShrank if a sync would delete too much."""
    build_lock: asyncio.Lock | None = None
    """Held while a clean environment is built. None: tests never run in an outdated box, but wait for a clean one."""
    lost_changes: Callable[[], tuple[str, ...]] = tuple
    """What the user had done in a box that is gone; asked when another was made."""
    repository: Repository | None = None
    lacking: set[str] = field(default_factory=set)
    """Ids of boxes that lack what the next setup installs: another run in them would prove nothing."""
    reported: set[str] = field(default_factory=set)
    """Excluded paths that were reported already."""
    services_at: dict[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    """By tree id: the services that were running when it was tested, and since when."""
    targets: dict[str, str] = field(default_factory=dict)
    """The targets of symlinks, by digest."""
    source_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the source is read."""

    def listen(self, post: events.Post) -> None:
        """Post an event when the box is lost or a service changes, during a run or between runs."""

        def lost(reason: str) -> None:
            problem = model.Problem("channel", f"lost the agent in the box: {reason}", BY_ITSELF)
            post(events.BoxLost(self.lane, time.time(), problem))

        def seen(services: tuple[model.ServiceInfo, ...]) -> None:
            # Queued like notes, so that they keep their order.
            asyncio.get_running_loop().call_soon(post, events.ServicesChanged(self.lane, time.time(), services))

        def revived() -> None:
            text = "a test has stopped the processes of the box (SIGSTOP): they continue"
            post(events.NoteAdded(self.lane, time.time(), text, is_kept=True))

        self.box.on_lost = lost
        self.box.on_revived = revived
        self.services.on_change = seen

    async def execute(self, start: events.StartRun, post: events.Post, signal: StopSignal) -> events.Ending:
        """Execute a run from start to end. Raises WatchtestError if the tool fails, not the code.

        Afterwards, a box that the run has damaged, or that it cannot be removed from, is repaired before the next run.
        """
        try:
            return await self._execute(start, post, signal)
        except BoxDamaged as error:
            self.box.condemn(error.message)
            raise
        except RunOverdue as error:
            await self.box.kill(error.message)
            raise

    async def _execute(self, start: events.StartRun, post: events.Post, signal: StopSignal) -> events.Ending:
        def note(text: str, is_kept: bool = False) -> None:
            loop.call_soon_threadsafe(post, events.NoteAdded(self.lane, time.time(), text, is_kept))

        def seen(info: model.BoxInfo) -> None:
            post(events.BoxConnected(self.lane, time.time(), info))

        run, judged_tree = start.run, start.knowledge.last_judged_tree
        loop = asyncio.get_running_loop()
        warn = functools.partial(note, is_kept=True)
        synced = await self._sync_to_source(start.paths, _Listeners(note, warn, seen), signal)
        if synced is None or signal.reason:
            return events.Halted(signal.reason or model.StopReason.CANCELLED)
        provisional = self._check_environment(synced, post)
        is_same_box = synced.info.id == start.knowledge.box and start.knowledge.provisional in (None, provisional)
        is_judged = is_same_box and judged_tree is not None and _is_same(synced.snapshot, judged_tree)
        may_skip = is_judged and not run.is_forced
        if not may_skip:
            self._announce(run, synced, post, warn)
        # Even if there is nothing to run, a recovered box must be set up again.
        prepared = await self.environment.prepare(synced.session, synced.recipe, synced.standing, note, signal)
        if prepared is None or signal.reason:
            return events.Halted(signal.reason or model.StopReason.CANCELLED)
        if prepared.is_fresh:
            # Setup may have written into the tree, for example lock files or generated code.
            await synced.session.refresh()
            generation = await self._sync(synced.session, synced.snapshot, is_fresh=True)
            synced = replace(synced, generation=generation, standing=Standing.CLEAN)
        around = ProcessEnvironment(self.environment.variables, self.environment.path_first)
        await self.services.ensure(synced.session, synced.snapshot, around, note, signal, is_forced=run.is_forced)
        if signal.reason:
            return events.Halted(signal.reason)
        if may_skip and not prepared.is_fresh:
            return events.Unchanged(synced.snapshot)
        if may_skip:
            self._announce(run, synced, post, warn)
        context = RunContext(
            session=synced.session,
            snapshot=synced.snapshot,
            generation=synced.generation,
            python=prepared.python,
            environment=self._environment_name(synced),
            start=start,
            changed=_changed(start, synced.snapshot),
            post=post,
            note=warn,
            signal=signal,
            selection_input=self._selection_input(start, synced, prepared.python),
            condemn=self.box.condemn,
        )
        provisional = self.environment.provisional(synced.standing)
        ending = await self._run_tests(context, synced)
        if isinstance(ending, events.Judged):
            # The user may have changed the box during the run, or may have kept what was changed before it.
            return replace(ending, provisional=provisional or self.environment.provisional(synced.standing))
        return ending

    def _check_environment(self, synced: _SyncedBox, post: events.Post) -> model.Provisional | None:
        """Report which clean environment is wanted for the tree, and return why a verdict would be provisional."""
        is_outdated = synced.standing is Standing.OUTDATED and not self.environment.is_changed_by_hand
        wanted = self.environment.key(synced.recipe) if is_outdated else ""
        post(events.EnvironmentChecked(self.lane, time.time(), wanted))
        return self.environment.provisional(synced.standing)

    async def _run_tests(self, context: RunContext, synced: _SyncedBox) -> events.Ending:
        """Select the tests, execute them in the prepared box, and check earlier selections if this is an audit."""
        context, box = await self._narrowed(context), synced.info.id
        if context.signal.reason:
            return events.Halted(context.signal.reason)
        match context.run.selection:
            case model.Only(tests=(), whole=(), is_proof=True, because=because):
                # From now on changes are compared at once: this may be half a save.
                context.post(events.TestsCollected(self.lane, time.time(), context.run.id, frozenset()))
                nothing = model.Execution(0, frozenset(), {}, reason=because, is_needless=True)
                return events.Judged(context.snapshot, nothing, box)
            case _:
                execution = await self.executor.execute(context)
                if await self._add_missing(context, execution, synced):
                    return events.Halted(model.StopReason.SUPERSEDED, "tests lack what the project names")
        if execution.stopped in (model.StopReason.CANCELLED, model.StopReason.KILLED):
            return events.Halted(context.signal.reason or execution.stopped)
        if context.run.is_audit:
            self._audit(context.start, execution, context.note)
        if execution.has_lost_box:
            await self.box.kill(execution.reason)
        return events.Judged(context.snapshot, execution, box)

    async def _add_missing(self, context: RunContext, execution: model.Execution, synced: _SyncedBox) -> bool:
        """Let the next setup install what the tests lacked and the project names. Return whether there is such."""
        is_conclusive = execution.stopped is None and not execution.has_lost_box and not context.signal.reason
        # In an outdated box, what the files name may be missing just because setup has not installed it yet.
        if not is_conclusive or context.run.is_audit or synced.standing is Standing.OUTDATED:
            return False
        missing = await asyncio.to_thread(self.recipes.missing, execution, context.snapshot, self.source.read)
        for line in missing.reports:
            context.note(line)
        for name, because in missing.installable:
            context.note(f"installing {name} and running the tests again: {because}")
        if not missing.installable:
            return False
        self.recipes.added.add(name for name, _ in missing.installable)
        self.lacking.add(synced.info.id)
        return True

    def _audit(self, start: events.StartRun, execution: model.Execution, note: Note) -> None:
        """Report what an audit found out about earlier selections."""
        selector = self.executor.selector
        if isinstance(start.run.selection, model.Only):
            if tests := green_in_company(start.knowledge.results, execution):
                note(selector.run_together(tests))
            return
        if missed := missed_by_selection(start.knowledge.results, execution):
            note(selector.report_missed(start.run.id, missed))
        selector.journal = []

    async def _narrowed(self, context: RunContext) -> RunContext:
        """Narrow the selection of the run if that is allowed."""
        selector, run = self.executor.selector, context.run
        if run.is_narrowable:
            run = replace(run, selection=await self._selection(context))
            context.post(events.SelectionMade(self.lane, time.time(), run.id, run.selection))
            context = replace(context, start=replace(context.start, run=run))
        selector.begin(context.selection_input)
        self.services_at.clear()
        self.services_at[context.snapshot.id] = self.services.start_times
        return context

    async def _selection(self, context: RunContext) -> model.Selection:
        """Return the selection for this tree. If that fails because of a bug, everything runs."""
        base = context.selection_input.base
        if base is not None and self.services_at.get(base.id, ()) != self.services.start_times:
            return model.All(because="a service was started since the last verdict: tests that use it may be affected")
        try:
            return await self.executor.select(context)
        except WatchtestError:
            raise
        except Exception as error:
            log.exception("no selection for run %s because of a bug", context.run.id)
            context.note("a bug in watchtest: the affected tests cannot be determined; the log has the details")
            return model.All(because=f"no selection because of a bug in watchtest: {type(error).__name__}: {error}")

    def _announce(self, run: model.Run, synced: _SyncedBox, post: events.Post, note: Note) -> None:
        """Report the snapshot that the run tests."""
        post(events.SnapshotTaken(self.lane, time.time(), run.id, synced.snapshot, self._environment_name(synced)))
        self._report_excluded(synced.snapshot, note)

    def _environment_name(self, synced: _SyncedBox) -> str:
        info, provisional = synced.info, self.environment.provisional(synced.standing)
        name = environment_name(info.engine, info.image, info.origin, synced.recipe, self.settings)
        return f"{name} {provisional.code.ending}" if provisional is not None else name

    async def prepare(self, note: Note, signal: StopSignal) -> None:
        """Do everything except running tests: create the box, sync the source, run the setup."""
        listeners = _Listeners(note, note, lambda _info: None)
        synced = await self._sync_to_source(frozenset({events.EVERYTHING}), listeners, signal)
        if synced is not None:
            self._report_excluded(synced.snapshot, note)
            await self.environment.prepare(synced.session, synced.recipe, synced.standing, note, signal)

    async def _sync_to_source(
        self, paths: frozenset[str], listeners: _Listeners, signal: StopSignal
    ) -> _SyncedBox | None:
        """Bring the box to exactly one snapshot. If files change meanwhile, take a new snapshot; never mix two."""
        for _ in range(SYNC_TRIES):
            try:
                synced = await self._sync_once(paths, listeners, signal)
            except SourceMoved:
                # The watch may not have reported the changed path yet.
                paths = frozenset({events.EVERYTHING})
                continue
            if synced is not None or signal.reason:
                return synced
        raise SourceMoved(
            f"files kept changing during the sync ({SYNC_TRIES} times in a row)",
            hint="add files that are written all the time to .gitignore or watch.ignore",
        )

    async def _sync_once(self, paths: frozenset[str], listeners: _Listeners, signal: StopSignal) -> _SyncedBox | None:
        """Bring the box to a snapshot; None if the run was stopped, or if the source needs another image."""
        is_opening = not self.box.is_open
        recipe = None if is_opening else self.box.recipe
        if recipe is None:
            # The recipe of the box is part of the source.
            recipe = await self._recipe(await self._snapshot(paths))
        session, info = await self._open_box(recipe, paths, listeners.note)
        recipe = self.box.recipe or recipe
        listeners.seen(info)
        if is_opening:
            self._report_lost_changes(info, listeners.warn)
        if signal.reason:
            return None
        snapshot = await self._take_snapshot(session, paths)
        recipe, used = await self._recipe(snapshot), recipe
        standing = await self.environment.standing(session, recipe, is_new=info.is_new)
        if info.id in self.lacking and standing is Standing.OUTDATED:
            self.lacking.discard(info.id)
            standing = Standing.BROKEN
        if await self._must_renew(standing, recipe):
            listeners.note("the dependencies have changed: the box starts from a clean environment")
            await self.box.renew(recipe, self.environment.key(recipe))
            return None
        if recipe.image != used.image and not self._may_run_outdated(standing):
            await self.box.disconnect()
            return None
        self.check_shrinkage(session.path_count, len(snapshot.entries) + len(snapshot.repository))
        generation = await self._sync(session, snapshot)
        links = await self._link_targets(snapshot)
        return _SyncedBox(session, info, snapshot, generation, recipe, links, standing)

    async def _sync(self, session: BoxSession, snapshot: model.Snapshot, *, is_fresh: bool = False) -> int:
        """Bring the box to this snapshot and its repository, and return the new generation.

        `is_fresh`: setup has just run, and may have installed git.
        """

        repository = snapshot.repository

        def read(path: str, entry: model.Entry) -> bytes:
            owner = self.repository if self.repository is not None and path in repository else self.source
            return owner.read(path, entry)

        tree = replace(snapshot, entries={**snapshot.entries, **repository}) if repository else snapshot
        generation, delta = await session.sync(tree, read)
        if repository and (is_fresh or not repository.keys().isdisjoint(delta.write)):
            await self.environment.refresh_index(session)
        return generation

    def _may_run_outdated(self, standing: Standing) -> bool:
        return standing is Standing.OUTDATED and self.build_lock is not None and not self.environment.is_changed_by_hand

    async def _must_renew(self, standing: Standing, recipe: Recipe) -> bool:
        """Return whether the box must be replaced now. A box that the user has changed by hand never is."""
        if standing in (Standing.NEW, Standing.CLEAN) or self.environment.is_changed_by_hand:
            return False
        return not self._may_run_outdated(standing) or await self._has_environment(recipe)

    async def _has_environment(self, recipe: Recipe) -> bool:
        key = self.environment.key(recipe)
        try:
            return await in_daemon_thread(lambda: self.box.provider.has_environment(recipe, key), QUERY_LIMIT_S)
        except TimeoutError as error:
            raise EngineError(f"the engine did not answer within {QUERY_LIMIT_S:g} s") from error

    def _selection_input(self, start: events.StartRun, synced: _SyncedBox, python: str) -> SelectionInput:
        async def fetch(paths: Collection[str]) -> Mapping[str, FileFingerprint]:
            rows = await synced.session.fingerprints(python, paths)
            return {path: parse_fingerprint(rows.get(path)) for path in paths}

        knowledge = start.knowledge
        is_same_environment = knowledge.box == synced.info.id and knowledge.provisional == self.environment.provisional(
            synced.standing
        )
        return SelectionInput(
            snapshot=synced.snapshot,
            environment=self._environment_name(synced),
            base=knowledge.base if is_same_environment else None,
            known_tests=frozenset(knowledge.tests),
            must_run=knowledge.must_run,
            fetch=fetch,
            links=synced.links,
        )

    # -- the clean environment ---------------------------------------------------------------------

    async def build(self, key: str, post: events.Post, signal: StopSignal) -> bool:
        """Build the clean environment with this key in a box of its own. Return False if it is no longer needed."""
        assert self.build_lock is not None
        loop = asyncio.get_running_loop()

        def note(text: str) -> None:
            loop.call_soon_threadsafe(post, events.NoteAdded(self.lane, time.time(), f"clean environment: {text}"))

        paths = frozenset[str]()
        async with self.build_lock:
            for _ in range(SYNC_TRIES):
                snapshot = await self._snapshot(paths)
                recipe = await self._recipe(snapshot)
                if self.environment.key(recipe) != key:
                    return False
                try:
                    return await self._has_environment(recipe) or await self._build(snapshot, recipe, note, signal)
                except SourceMoved:
                    paths = frozenset({events.EVERYTHING})
        raise SourceMoved(f"files kept changing while the environment was built ({SYNC_TRIES} times in a row)")

    async def _build(self, snapshot: model.Snapshot, recipe: Recipe, note: Note, signal: StopSignal) -> bool:
        """Build the environment of this recipe. Return False if that was stopped."""
        provider = self.box.provider.builder()
        box, environment = Box(provider), self.environment.beside(provider)
        try:
            await box.renew(recipe, environment.key(recipe))  # a killed watcher may have left half a build
            session, info = await box.ensure(recipe, note)
            await session.refresh()
            await self._sync(session, await asyncio.to_thread(self._with_repository, snapshot))
            standing = await environment.standing(session, recipe, is_new=info.is_new)
            if await environment.prepare(session, recipe, standing, note, signal) is None:
                return False
            if not await self._has_environment(recipe):
                raise BoxError("the clean environment could not be saved", hint="check the free space of the engine")
            return True
        finally:
            await box.disconnect()
            try:
                await in_daemon_thread(provider.free, QUERY_LIMIT_S)
            except (WatchtestError, TimeoutError) as error:
                log.warning("the box of a build could not be removed: %s", error)
            await box.close()

    async def _open_box(self, recipe: Recipe, paths: frozenset[str], note: Note) -> tuple[BoxSession, model.BoxInfo]:
        """Open the box; if its image cannot be pulled, with the next image that the project allows."""
        preferred_failed: ImageError | None = None
        while True:
            try:
                return await self.box.ensure(recipe, note)
            except ImageError as error:
                preferred_failed = preferred_failed or error
                snapshot = await self._snapshot(paths)
                other = await asyncio.to_thread(self.recipes.next_recipe, recipe, snapshot, self.source.read)
                if other is None:
                    raise preferred_failed from None
                note(f"{error.message}: trying another version that the project allows")
                recipe = other

    async def _recipe(self, snapshot: model.Snapshot) -> Recipe:
        return await asyncio.to_thread(self.recipes.recipe, snapshot, self.source.read)

    def _report_lost_changes(self, info: model.BoxInfo, note: Note) -> None:
        lost = self.lost_changes() if info.is_new else ()
        if lost:
            what = "; ".join(lost[-BY_HAND_SHOWN:])
            note(f"the box is new: manual changes of the old one are lost ({what}); `watchtest snapshot` keeps them")

    def _report_excluded(self, snapshot: model.Snapshot, note: Note) -> None:
        fresh = [excluded for excluded in snapshot.excluded if excluded.path not in self.reported]
        for excluded in fresh[:LEFT_OUT_LINES]:
            note(f"left out {excluded.path}: {excluded.reason}")
        if len(fresh) > LEFT_OUT_LINES:
            note(f"left out {len(fresh) - LEFT_OUT_LINES} more; `watchtest doctor` lists them")
        self.reported.update(excluded.path for excluded in fresh)

    async def _take_snapshot(self, session: BoxSession, paths: frozenset[str]) -> model.Snapshot:
        """Take a snapshot of the source and its repository, and refresh what is known about the tree in the box."""

        async def take() -> model.Snapshot:
            async with self.source_lock:
                return await asyncio.to_thread(lambda: self._with_repository(self.source.snapshot(paths)))

        snapshot, refreshed = await asyncio.gather(take(), session.refresh(), return_exceptions=True)
        for outcome in (snapshot, refreshed):
            if isinstance(outcome, BaseException):
                raise outcome
        assert isinstance(snapshot, model.Snapshot)
        return snapshot

    def _with_repository(self, snapshot: model.Snapshot) -> model.Snapshot:
        return snapshot if self.repository is None else replace(snapshot, repository=self.repository.entries(snapshot))

    async def _link_targets(self, snapshot: model.Snapshot) -> Mapping[str, str]:
        """Return the target of each symlink. Raises SourceMoved if one has changed since the snapshot."""
        links = {path: entry for path, entry in snapshot.entries.items() if entry.kind is model.EntryKind.SYMLINK}
        unknown = {entry.digest: (path, entry) for path, entry in links.items() if entry.digest not in self.targets}

        def read() -> dict[str, str]:
            return {digest: os.fsdecode(self.source.read(path, entry)) for digest, (path, entry) in unknown.items()}

        if unknown:
            async with self.source_lock:
                self.targets.update(await asyncio.to_thread(read))
        return {path: self.targets[entry.digest] for path, entry in links.items()}

    async def changed_since(self, snapshot: model.Snapshot, paths: frozenset[str]) -> frozenset[str]:
        """Return which of these paths differ from the snapshot; EVERYTHING compares the whole source."""
        return model.difference(snapshot.entries, (await self._snapshot(paths)).entries).paths

    async def _snapshot(self, paths: frozenset[str]) -> model.Snapshot:
        async with self.source_lock:
            return await asyncio.to_thread(self.source.snapshot, paths)


def _is_same(one: model.Snapshot, other: model.Snapshot) -> bool:
    return one.entries == other.entries and one.repository == other.repository


def _changed(start: events.StartRun, snapshot: model.Snapshot) -> frozenset[str]:
    """Return the paths that differ from the last judged tree; without one, those that the watch reported."""
    judged_tree = start.knowledge.last_judged_tree
    if judged_tree is None:
        return start.paths - {events.EVERYTHING}
    return model.difference(judged_tree.entries, snapshot.entries).paths
