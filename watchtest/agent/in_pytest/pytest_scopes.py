"""The scopes of a pytest session: when a test, a fixture that outlives it, or the collection of a file begins and ends.

A plugin beside the one that reports. Tells what each test has touched as soon as the test is over.
"""

from __future__ import annotations

from os import getpid
from os.path import isfile
from typing import Any, Dict, Generator, Iterable, Set, Tuple

import pytest

from ..module_origins import of_project
from ..record.recorder import Recorder
from ..record.scopes import FILE, FIXTURE, SESSION, TEST, Scope, Send, identity


class Recording:
    """`name` gives the id of a test as the workspace knows it."""

    def __init__(self, recorder: Recorder, send: Send, name: Any) -> None:
        self._recorder = recorder
        self._scopes = recorder.scopes
        self._send = send
        self._name = name
        self._pid = getpid()
        self._test = Scope(SESSION)
        """That of the test which is on."""
        self._keys: Dict[int, Tuple[Any, str]] = {}
        """By the identity of a fixture, which is kept: plugins put others in the place of its function."""

    # -- collection --------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        path = getattr(collector, "path", None) or getattr(collector, "fspath", None)
        own = self._scopes.own(str(path)) if path is not None and isfile(str(path)) else ""
        if not own:
            yield
            return
        self._scopes.begin(FILE + own)
        yield
        self._scopes.end(FILE + own)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: Any) -> None:
        self._scopes.tell()

    # -- fixtures ----------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, None]:
        key = self._key_of(fixturedef)
        if not key:
            yield
            return
        # Finalizers run from the last to the first: what the fixture adds in between runs within its own scope.
        fixturedef.addfinalizer(lambda: self._scopes.end(key))
        self._scopes.begin(key)
        scope = self._scopes.top
        yield
        if "request" in getattr(fixturedef, "argnames", ()):  # it may have asked for others by name, made before
            scope.uses.update(self._wide(_active(request)) - {key})  # type: ignore[attr-defined]
        self._scopes.end(key)
        fixturedef.addfinalizer(lambda: self._scopes.begin(key))

    def _key_of(self, fixturedef: Any) -> str:
        """ "" for a fixture that lives no longer than its test: that is a part of it."""
        if getattr(fixturedef, "scope", "function") == "function":
            return ""
        if identity(fixturedef) not in self._keys:
            self._keys[identity(fixturedef)] = (fixturedef, self._new_key(fixturedef))
        return self._keys[identity(fixturedef)][1]

    def _new_key(self, fixturedef: Any) -> str:
        code = getattr(fixturedef.func, "__code__", None)
        place = "{}:{}".format(self._scopes.own(code.co_filename), code.co_firstlineno) if code is not None else ""
        return "{}{}:{}".format(FIXTURE, place, fixturedef.argname)

    # -- tests -------------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, None]:
        key = TEST + self._name(item.nodeid)
        self._scopes.begin(key)
        self._test = top = self._scopes.top
        yield
        top.uses.update(self._fixtures_of(item))  # type: ignore[attr-defined]
        if not self._recorder.is_undisturbed:
            top.opaque.add("takes the place of whoever listens")  # type: ignore[attr-defined]
        self._scopes.end(key)
        if getpid() == self._pid:
            self._scopes.tell(key)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: Any) -> Generator[None, Any, None]:
        """Before pytest forgets what the test has asked for by name."""
        self._test.uses.update(self._wide(_active(getattr(item, "_request", None))))  # type: ignore[attr-defined]
        yield

    def _fixtures_of(self, item: Any) -> Set[str]:
        """Of wider scope: they may have been set up for an earlier test."""
        candidates = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", None) or {}
        return self._wide(one for several in candidates.values() for one in several or ())

    def _wide(self, fixturedefs: Iterable[Any]) -> Set[str]:
        return {key for key in map(self._key_of, fixturedefs) if key}

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """When the session is over."""
        self._recorder.stop()
        self._scopes.tell()
        self._send(of_project(self._scopes.own))


def _active(request: Any) -> Iterable[Any]:
    """The fixtures that were made or used for it so far."""
    return tuple((getattr(request, "_fixture_defs", None) or {}).values())
