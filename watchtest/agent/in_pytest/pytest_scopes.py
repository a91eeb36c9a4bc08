"""The plugin that begins and ends scopes of the recorder: tests, fixtures that outlive a test, collections of files.

It works beside the plugin that reports results, and sends what a test has touched as soon as the test is over.
"""

from __future__ import annotations

from os.path import isfile
from typing import Any, Dict, Generator, Iterable, Set, Tuple

import pytest

from ..record.recorder import Recorder
from ..record.scopes import FILE, FIXTURE, SESSION, TEST, Scope, identity


class ScopePlugin:
    """`name` converts a node id of pytest to a test id of the workspace."""

    def __init__(self, recorder: Recorder, name: Any) -> None:
        self._recorder = recorder
        self._scopes = recorder.scopes
        self._name = name
        self._test = Scope(SESSION)
        """The scope of the current test."""
        self._keys: Dict[int, Tuple[Any, str]] = {}
        """By the identity of a fixture: the fixture, so that it stays alive, and its key. Plugins replace functions."""

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
        self._scopes.report()

    # -- fixtures ----------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, None]:
        key = self._key_of(fixturedef)
        if not key:
            yield
            return
        # Finalizers run in reverse order: those that the fixture adds in between run within its own scope.
        fixturedef.addfinalizer(lambda: self._scopes.end(key))
        self._scopes.begin(key)
        scope = self._scopes.top
        yield
        if "request" in getattr(fixturedef, "argnames", ()):  # it may have requested existing fixtures by name
            scope.uses.update(self._wide_keys(_active(request)) - {key})  # type: ignore[attr-defined]
        self._scopes.end(key)
        fixturedef.addfinalizer(lambda: self._scopes.begin(key))

    def _key_of(self, fixturedef: Any) -> str:
        """Return the key of a fixture's scope; "" for a function-scoped one, which is part of its test."""
        if getattr(fixturedef, "scope", "function") == "function":
            return ""
        if identity(fixturedef) not in self._keys:
            code = getattr(fixturedef.func, "__code__", None)
            place = "{}:{}".format(self._scopes.own(code.co_filename), code.co_firstlineno) if code is not None else ""
            self._keys[identity(fixturedef)] = (fixturedef, "{}{}:{}".format(FIXTURE, place, fixturedef.argname))
        return self._keys[identity(fixturedef)][1]

    # -- tests -------------------------------------------------------------------------------------

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, None]:
        key = TEST + self._name(item.nodeid)
        self._scopes.begin(key)
        self._test = top = self._scopes.top
        yield
        top.uses.update(self._fixtures_of(item))  # type: ignore[attr-defined]
        self._recorder.end_test(key)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: Any) -> Generator[None, Any, None]:
        """Note the fixtures that the test requested by name, before pytest forgets them."""
        self._test.uses.update(self._wide_keys(_active(getattr(item, "_request", None))))  # type: ignore[attr-defined]
        yield

    def _fixtures_of(self, item: Any) -> Set[str]:
        """Return the keys of wider-scoped fixtures of a test, which may have been set up for an earlier one."""
        candidates = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", None) or {}
        return self._wide_keys(fixturedef for fixturedefs in candidates.values() for fixturedef in fixturedefs or ())

    def _wide_keys(self, fixturedefs: Iterable[Any]) -> Set[str]:
        return {key for key in map(self._key_of, fixturedefs) if key}


def _active(request: Any) -> Iterable[Any]:
    """Return the fixtures that were set up or used for this request so far."""
    return tuple((getattr(request, "_fixture_defs", None) or {}).values())
