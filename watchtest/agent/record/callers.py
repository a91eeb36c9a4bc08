"""Classifies the caller that reads a file or imports a module: Python, a library, pytest, the project."""

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

PASS_THROUGH = frozenset(
    function.__code__.co_filename
    for function in (
        *(os.walk, posixpath.join, genericpath.exists, codecs.open, tokenize.open),
        *(linecache.getlines, inspect.getsource, glob.glob, shutil.copy),
        *(method for kind in pathlib.Path.__mro__ for method in vars(kind).values() if hasattr(method, "__code__")),
    )
) | {getattr(io, "__file__", ""), "<frozen io>"}
"""Files of code that acts on behalf of its caller."""
IMPORTLIB = "<frozen importlib"
LOADER_READS = frozenset({"get_data", "get_source"})
"""Methods of loaders that are not only called by imports."""
IGNORED = (sep + "_pytest" + sep, sep + "pluggy" + sep, sep + "coverage" + sep)
IGNORED_NAMES = frozenset({"warnings.py", "traceback.py"})
"""Code that looks at files for its own purposes: what it finds does not change the result of a test."""
STANDARD = os.path.join(os.path.dirname(os.__file__), "")
OURS = os.path.join(FOLDER, "")
INSTALLED = (sep + "site-packages" + sep, sep + "dist-packages" + sep)
PASS_THROUGH_MODULES = frozenset(
    {"os", "posixpath", "genericpath", "pathlib", "pathlib._local", "pathlib._abc", "glob", "shutil"}
)
"""The modules of PASS_THROUGH that check whether a path exists."""
PYTEST_PACKAGES = ("_pytest", "pluggy")


def is_pytest(frame: Optional[FrameType], own: Callable[[Any], str]) -> bool:
    """Return whether pytest is the caller, as it often is.

    Does not access `f_code`, which would be an audit event. `own` returns "" for files outside the project, which may
    be pytest itself.
    """
    while frame is not None:
        variables = frame.f_globals
        name = variables.get("__name__")
        if name not in PASS_THROUGH_MODULES:
            is_named_so = isinstance(name, str) and name.partition(".")[0] in PYTEST_PACKAGES
            return is_named_so and not own(variables.get("__file__"))
        frame = frame.f_back
    return False


def calls_observed_method(path_class: Any, name: str) -> bool:
    """Return whether a method of paths calls another that is observed anyway: `self.stat()`, `os.path.exists(self)`."""
    code = getattr(getattr(path_class, name, None), "__code__", None)
    names = frozenset(code.co_names) if code is not None else frozenset()
    return bool((names & {"stat", "lstat"} and "os" not in names) or {"os", "path"} <= names)


def is_pass_through(code: CodeType) -> bool:
    """Return whether this code acts on behalf of its caller."""
    file = code.co_filename
    return file in PASS_THROUGH or (code.co_name in LOADER_READS and file.startswith(IMPORTLIB))


@functools.lru_cache(maxsize=None)
def is_standard(file: str) -> bool:
    """Return whether this is a file of Python's standard library."""
    return file.startswith((IMPORTLIB, STANDARD)) and not library(file)


@functools.lru_cache(maxsize=None)
def library(file: str) -> str:
    """Return the name of the installed package that the file belongs to; "" for the project and for Python."""
    for part in INSTALLED:
        if part in file:
            return file.rpartition(part)[2].partition(sep)[0]
    return ""


@functools.lru_cache(maxsize=None)
def is_ignored(file: str) -> bool:
    is_ours = file.startswith(OURS)
    return is_ours or any(part in file for part in IGNORED) or basename(file) in IGNORED_NAMES
