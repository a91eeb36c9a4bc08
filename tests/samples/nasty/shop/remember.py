"""Whatever finds something out once, and keeps it for those who come later."""

import functools
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
_loaded = None
_rates = {}


def rate_of(name):
    return {"low": 5, "high": 20}[name]


@functools.cache
def cached_rate(name):
    return rate_of(name)


def kept_rate(name):
    if name not in _rates:
        _rates[name] = _look_up(name)
    return _rates[name]


def _look_up(name):
    return rate_of(name) + 1


def settings():
    global _loaded
    if _loaded is None:
        _loaded = _read()
    return _loaded


def _read():
    return dict(line.split("=") for line in (DATA / "settings.txt").read_text().split())


class Catalogue:
    _only = None

    def __init__(self):
        self.pages = self._print()
        self._index = None

    @classmethod
    def only(cls):
        if cls._only is None:
            cls._only = cls()
        return cls._only

    def _print(self):
        return 3

    @functools.cached_property
    def title(self):
        return self._title()

    def _title(self):
        return "catalogue"

    @property
    def index(self):
        if self._index is None:
            self._index = self._make_index()
        return self._index

    def _make_index(self):
        return ["a", "b"]


SHARED = Catalogue()
