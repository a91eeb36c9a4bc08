"""Draw the picture of the dashboard for the README, from a real run.

    python tests/support/dashboard_picture.py [--engine docker|local] [--image IMAGE] [-o FILE]

Starts a watcher on a small project, saves a few changes and then a bug, asks the watcher for its screen
(`GET /screen`) and exports the rows as an SVG that loads nothing from elsewhere.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from watchtest.client.watcher import ControlClient
from watchtest.views.dashboard.live_screen import render
from watchtest.views.dashboard.styled_rows import from_document

PICTURE = Path(__file__).parents[2] / "watchtest" / "help" / "dashboard.svg"
WIDTH, HEIGHT = 92, 14
LIMIT_S = 120.0
SHOP = '''"""Prices."""


def total(prices, discount=0):
    return sum(prices) * (100 - discount) / 100


def label(name):
    return name.strip().title()
'''
TESTS = """from shop import label, total


def test_prices_add_up():
    assert total([1, 2]) == 3


def test_an_empty_basket_costs_nothing():
    assert total([]) == 0


def test_a_discount_is_subtracted():
    assert total([80, 20], discount=25) == 75


def test_a_label_is_capitalised():
    assert label(" green tea ") == "Green Tea"
"""
EDITS = (
    SHOP.replace("sum(prices) * (100 - discount) / 100", "sum(prices) * (1 - discount / 100)"),
    SHOP.replace("name.strip().title()", "name.title().strip()"),
    SHOP.replace("100 - discount", "100 + discount"),
)
"""Two changes that keep the tests green, and a bug."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the dashboard of a real run as an SVG.")
    parser.add_argument("--engine", choices=("docker", "podman", "local"), default="docker")
    parser.add_argument("--image", default="watchtest-test/python:3.13")
    parser.add_argument("-o", "--output", type=Path, default=PICTURE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="picture-") as around:
        root = Path(around, "shop")
        root.mkdir()
        with watching(root, options.engine, options.image) as environ:
            verdicts = [verdict(root, tree="")]
            for content in EDITS:
                (root / "shop.py").write_text(content)
                verdicts.append(verdict(root, tree=verdicts[-1]["code"]["tree"]))
            rows = screen(root, environ)
    expected = ["passed", "passed", "passed", "failed"]
    if [each["verdict"] for each in verdicts] != expected:
        raise SystemExit(f"the verdicts are {[each['verdict'] for each in verdicts]}, not {expected}")
    options.output.write_text(picture(rows), encoding="utf-8")
    print(f"wrote {options.output}")


@contextmanager
def watching(root: Path, engine: str, image: str) -> Iterator[dict[str, str]]:
    """Watch a new repository with the shop in it; yield the environment of the watcher."""
    (root / "shop.py").write_text(SHOP)
    (root / "test_shop.py").write_text(TESTS)
    author = ("-c", "user.name=shop", "-c", "user.email=shop@localhost")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*author, "commit", "-qm", "Open the shop")):
        subprocess.run(["git", *words], cwd=root, check=True)
    folders = {f"WATCHTEST_{name}_DIR": str(root.parent / name.lower()) for name in ("CACHE", "STATE", "RUNTIME")}
    environ = {**os.environ, **folders, "WATCHTEST_BOX_IMAGE": image, "WATCHTEST_NOTIFY_DESKTOP": "false"}
    Path(environ["WATCHTEST_RUNTIME_DIR"]).mkdir(mode=0o700)
    command = [sys.executable, "-m", "watchtest", "-C", str(root), "watch", "--silent", "--engine", engine]
    watcher = subprocess.Popen(command, env=environ)
    try:
        yield environ
    finally:
        watcher.terminate()
        watcher.wait(30)
        if engine != "local":
            from watchtest.boxes.inventory import remove_boxes

            remove_boxes(str(root.resolve()), os.environ)


def verdict(root: Path, tree: str) -> dict[str, Any]:
    """Wait for the verdict on a tree other than `tree`, and return its status."""
    deadline = time.monotonic() + LIMIT_S
    status: dict[str, Any] = {}
    while time.monotonic() < deadline:
        try:
            status = json.loads((root / ".watchtest" / "status.json").read_bytes())
        except FileNotFoundError:
            status = {"verdict": "unknown"}
        is_done = status["verdict"] != "unknown" and status["activity"] == "idle" and not status["pending"]["changes"]
        if is_done and status["code"]["tree"] != tree:
            return status
        time.sleep(0.05)
    raise SystemExit(f"no verdict within {LIMIT_S:g} s: {status}")


def screen(root: Path, environ: dict[str, str]) -> list[Any]:
    command = [sys.executable, "-m", "watchtest", "-C", str(root), "api", "show", "--json"]
    info = json.loads(subprocess.run(command, env=environ, check=True, capture_output=True).stdout)
    document = ControlClient((Path(info["socket"]),)).get(f"/screen?height={HEIGHT}")
    return [from_document(row) for row in document["rows"]]


def picture(rows: list[Any]) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(render(rows, WIDTH))
    # Without the fonts that rich would load from the network, and without the comment that names its site.
    plain = re.sub(r"@font-face \{\{.*?\}\}\s*|<!--.*?-->\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    plain = plain.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace")
    svg = console.export_svg(title="watchtest", code_format=plain, unique_id="dashboard")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


if __name__ == "__main__":
    main()
