"""Every setting is read somewhere in the package."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import watchtest
from watchtest.config.keys import SECTIONS, keys

PACKAGE = Path(watchtest.__file__).parent


def keys_read(source: str) -> set[str]:
    """Return the dotted keys that a module reads.

    Recognized are `config.box.engine`, `self._box.engine`, `box_settings.engine`, and `x.engine` where x is annotated
    as that section (`settings: BoxSettings`, `settings: config.BoxSettings | None`).
    """
    tree = ast.parse(source)
    typed = dict(_names_of_sections(tree))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
            sections = {typed[name]} if name in typed else set(name.split("_")) & set(SECTIONS)
            found |= {f"{section}.{node.attr}" for section in sections}
    return found & set(keys())


def _names_of_sections(tree: ast.Module) -> Iterator[tuple[str, str]]:
    classes = {kind.__name__: section for section, kind in SECTIONS.items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name, annotation = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name | ast.Attribute):
            target = node.target
            name, annotation = target.attr if isinstance(target, ast.Attribute) else target.id, node.annotation
        else:
            continue
        for part in ast.walk(annotation) if annotation else ():
            word = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
            if word in classes:
                yield name, classes[word]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("print(loaded.config.box.engine)", {"box.engine"}),
        ("start(self._box.image, box.pids)", {"box.image", "box.pids"}),
        ("def run(settings: RunnerSettings | None):\n    return settings.timeout_s", {"runner.timeout_s"}),
        ("def run(settings: config.RunnerSettings):\n    return settings.timeout_s", {"runner.timeout_s"}),
        ("message.timeout_s\nengine\nthing.engine", set()),
        ("box.engine = 3", set()),
        ("'box.engine'  # box.engine", set()),
    ],
)
def test_only_a_read_of_the_key_on_its_section_counts(source: str, found: set[str]) -> None:
    assert keys_read(source) == found


@functools.cache
def keys_read_by_the_package() -> frozenset[str]:
    """Return the keys that any module reads, apart from the modules that describe, check and show the settings."""
    own = {PACKAGE / "config", PACKAGE / "commands" / "config.py"}
    modules = [path for path in PACKAGE.rglob("*.py") if not own & {path, *path.parents}]
    return frozenset().union(*(keys_read(path.read_text(encoding="utf-8")) for path in modules))


@pytest.mark.parametrize("key", list(keys()))
def test_every_config_key_is_read_somewhere(key: str) -> None:
    assert key in keys_read_by_the_package(), f"{key} is described, checked and shown, but no module reads it"
