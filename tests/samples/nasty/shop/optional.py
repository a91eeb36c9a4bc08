"""Does without modules that are not there."""

import importlib.util

try:
    from shop import speedup
except ImportError:
    speedup = None


def is_fast():
    return speedup is not None


def has_extra():
    return importlib.util.find_spec("shop.extra") is not None
