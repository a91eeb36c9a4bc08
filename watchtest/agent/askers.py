"""Who it is that asks for a file or a module, by the file of its code: Python, a library, somebody of no interest."""

from __future__ import annotations

import codecs
import functools
import genericpath
import glob
import inspect
import io
import linecache
import os
import pathlib
import posixpath
import shutil
import tokenize
from types import CodeType

PASSING = frozenset(
    function.__code__.co_filename
    for function in (
        *(os.walk, posixpath.join, genericpath.exists, codecs.open, tokenize.open),
        *(linecache.getlines, inspect.getsource, glob.glob, shutil.copy),
        *(method for kind in pathlib.Path.__mro__ for method in vars(kind).values() if hasattr(method, "__code__")),
    )
) | {getattr(io, "__file__", ""), "<frozen io>"}
"""Files of code that asks on behalf of somebody else."""
IMPORTING = "<frozen importlib"
READING = frozenset({"get_data", "get_source"})
"""Functions of importers that others call, too."""
IGNORED = (os.sep + "_pytest" + os.sep, os.sep + "pluggy" + os.sep, os.sep + "coverage" + os.sep)
IGNORED_NAMES = frozenset({"warnings.py", "traceback.py"})
"""Those who look at files for reasons of their own: what they find changes no outcome."""
STANDARD = os.path.join(os.path.dirname(os.__file__), "")
INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


def is_passing(code: CodeType) -> bool:
    """Whether it is asked on behalf of its caller."""
    file = code.co_filename
    return file in PASSING or (code.co_name in READING and file.startswith(IMPORTING))


@functools.lru_cache(maxsize=None)
def is_standard(file: str) -> bool:
    return file.startswith((IMPORTING, STANDARD)) and not library(file)


@functools.lru_cache(maxsize=None)
def library(file: str) -> str:
    """The name of the package that is installed there; "" for the project's own and for Python's."""
    for part in INSTALLED:
        if part in file:
            return file.rpartition(part)[2].partition(os.sep)[0]
    return ""


@functools.lru_cache(maxsize=None)
def is_ignored(file: str) -> bool:
    is_ours = file.startswith(os.path.dirname(__file__) + os.sep)
    return is_ours or any(part in file for part in IGNORED) or os.path.basename(file) in IGNORED_NAMES
