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
from os import sep
from os.path import basename
from types import CodeType, FrameType
from typing import Any, Callable, Optional

from .. import FOLDER

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
IGNORED = (sep + "_pytest" + sep, sep + "pluggy" + sep, sep + "coverage" + sep)
IGNORED_NAMES = frozenset({"warnings.py", "traceback.py"})
"""Those who look at files for reasons of their own: what they find changes no outcome."""
STANDARD = os.path.join(os.path.dirname(os.__file__), "")
OURS = os.path.join(FOLDER, "")
INSTALLED = (sep + "site-packages" + sep, sep + "dist-packages" + sep)
PASSING_MODULES = frozenset(
    {"os", "posixpath", "genericpath", "pathlib", "pathlib._local", "pathlib._abc", "glob", "shutil"}
)
"""Those of PASSING that ask whether there is a path, by the names of their modules."""
OF_PYTEST = ("_pytest", "pluggy")


def is_of_pytest(frame: Optional[FrameType], own: Callable[[Any], str]) -> bool:
    """Whether it is pytest that asks, which does so a lot. Told without the code of frames: to look at that is an event
    of the interpreter. `own`: "" for files that are none of the project, which may be pytest itself."""
    while frame is not None:
        around = frame.f_globals
        name = around.get("__name__")
        if name not in PASSING_MODULES:
            is_of = isinstance(name, str) and name.partition(".")[0] in OF_PYTEST
            return is_of and not own(around.get("__file__"))
        frame = frame.f_back
    return False


def is_heard_through_another(kind: Any, name: str) -> bool:
    """Whether a method of paths calls others that are listened to, anyway: `self.stat()`, `os.path.exists(self)`."""
    code = getattr(getattr(kind, name, None), "__code__", None)
    names = frozenset(code.co_names) if code is not None else frozenset()
    return bool((names & {"stat", "lstat"} and "os" not in names) or {"os", "path"} <= names)


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
            return file.rpartition(part)[2].partition(sep)[0]
    return ""


@functools.lru_cache(maxsize=None)
def is_ignored(file: str) -> bool:
    is_ours = file.startswith(OURS)
    return is_ours or any(part in file for part in IGNORED) or basename(file) in IGNORED_NAMES
