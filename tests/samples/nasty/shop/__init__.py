"""A shop whose code does everything that makes it hard to tell which tests a change can affect."""

import importlib

from .prices import gross
from .stars import *  # noqa: F403

__all__ = ["gross"]


def __getattr__(name):
    if name == "rarely":
        return importlib.import_module(".rarely", __name__)
    raise AttributeError(name)
