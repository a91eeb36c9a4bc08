"""Prestarted runs wait before the file that is expected to change. Only the agent is involved."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.warm_bench import PARKED_AFTER_S, Seen, WarmBench, local_warm_bench

# Each run writes down at its end how long before its test a module was imported; nothing may be written earlier.
CONFTEST = """\
import json, time
times = {}
def pytest_sessionfinish():
    with open('ages', 'w') as stream:
        json.dump({name: time.monotonic() - at for name, at in times.items()}, stream)
"""
NOTED = "import conftest, time\nconftest.times[__name__] = time.monotonic()\n"
SHOP = {
    "conftest.py": CONFTEST,
    "shop/__init__.py": "",
    "shop/first.py": NOTED,
    "shop/price.py": "VALUE = 0\n",
    "shop/last.py": NOTED,
    "test_shop.py": "from shop import first, price, last\ndef test_price(): assert price.VALUE == 0\n",
}
PRICE = "test_shop.py::test_price"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[WarmBench]:
    with local_warm_bench(tmp_path) as bench:
        yield bench


def rested(bench: WarmBench, content: dict[str, str], *tests: str) -> Seen:
    """Do a warm run after the prestarted session had time to get as far as it may."""
    time.sleep(PARKED_AFTER_S)
    bench.put(content)
    seen = bench.start(True, *tests)
    assert seen.end.is_warm, seen.end
    return seen


def ages(bench: WarmBench) -> dict[str, float]:
    found: dict[str, float] = json.loads(bench.bench.said("cat ages"))
    return found


def with_price(value: object, expected: object) -> dict[str, str]:
    test = SHOP["test_shop.py"].replace("== 0", f"== {expected}")
    return {**SHOP, "shop/price.py": f"VALUE = {value}\n", "test_shop.py": test}


def begun(bench: WarmBench, content: dict[str, str], *tests: str) -> None:
    bench.put(content)
    bench.warm(*tests)


def test_what_comes_before_the_saved_file_is_there_and_the_file_itself_is_fresh(bench: WarmBench) -> None:
    begun(bench, SHOP)
    rested(bench, with_price(1, 0))  # from now on this file is expected to change
    for value in (2, 3, 0, 4):
        content = {**SHOP, "shop/price.py": f"VALUE = {value}\n"}
        assert rested(bench, content).outcomes == {PRICE: "failed" if value else "passed"}
        found = ages(bench)
        assert found["shop.first"] > PARKED_AFTER_S / 2, found
        assert found["shop.last"] < PARKED_AFTER_S / 2, found


@pytest.mark.thorough
def test_a_test_file_is_waited_for_like_any_other(bench: WarmBench) -> None:
    content = {"conftest.py": CONFTEST, "test_a.py": NOTED + "def test_a(): pass\n", "test_b.py": ""}
    begun(bench, content)
    for number in range(4):
        content["test_b.py"] = NOTED + f"def test_b{number}(): assert {number} % 2\n"
        seen = rested(bench, content)
        expected = {"test_a.py::test_a": "passed", f"test_b.py::test_b{number}": "passed" if number % 2 else "failed"}
        assert seen.outcomes == expected, seen.end.output
    found = ages(bench)
    assert found["test_a"] > PARKED_AFTER_S / 2 > found["test_b"], found


@pytest.mark.thorough
def test_other_tests_may_be_asked_for_than_the_last_time(bench: WarmBench) -> None:
    content = {**SHOP, "test_other.py": "from shop import price\ndef test_other(): assert price.VALUE < 3\n"}
    begun(bench, content, PRICE)
    other = "test_other.py::test_other"
    for value, asked, outcomes in (
        (1, (PRICE,), {PRICE: "failed"}),
        (2, (other,), {other: "passed"}),
        (3, (other,), {other: "failed"}),
        (0, (PRICE, other), {PRICE: "passed", other: "passed"}),
        (3, (), {PRICE: "failed", other: "failed"}),
    ):
        seen = rested(bench, {**content, "shop/price.py": f"VALUE = {value}\n"}, *asked)
        assert seen.outcomes == outcomes, seen.end.output


ALSO_CHANGED = {
    "a module that was imported before": ({"shop/first.py": NOTED + "raise ImportError('first')\n"}, {}),
    "a module that comes after": (
        {"shop/last.py": "import shop.price\nshop.price.VALUE = 7\n"},
        {PRICE: "failed"},
    ),
    "a new test file": (
        {"test_new.py": "def test_new(): pass\n"},
        {PRICE: "passed", "test_new.py::test_new": "passed"},
    ),
    "a new module in the way": ({"test_shop/__init__.py": "raise ImportError('in the way')\n"}, {}),
    "a test that is gone": ({"test_shop.py": "from shop import price\n"}, {}),
    "a conftest": ({"conftest.py": CONFTEST + "def pytest_collection_modifyitems(items): items.clear()\n"}, {}),
    "data that was read at import": ({"data.txt": "1"}, {PRICE: "failed"}),
    "a size that was asked for at import": ({"other.txt": "1"}, {PRICE: "failed"}),
}


IN_THE_DEFAULT_RUN = ("a module that comes after", "a new test file")


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=() if what in IN_THE_DEFAULT_RUN else pytest.mark.thorough) for what in ALSO_CHANGED],
)
def test_whatever_else_changes_is_seen(bench: WarmBench, what: str) -> None:
    reading = "DATA = open('data.txt').read()\nimport os\nSIZE = os.path.getsize('other.txt')\n"
    asserting = "def test_price(): assert (price.VALUE, first.DATA, first.SIZE) == (price.VALUE % 7, '', 0)\n"
    content = {
        **SHOP,
        "data.txt": "",
        "other.txt": "",
        "shop/first.py": NOTED + reading,
        "test_shop.py": "from shop import first, price, last\n" + asserting,
    }
    begun(bench, content)
    rested(bench, {**content, "shop/price.py": "VALUE = 1\n"})
    changed, outcomes = ALSO_CHANGED[what]
    after = {**content, "shop/price.py": "VALUE = 2\n", **changed}
    seen = rested(bench, after)
    assert seen.outcomes == outcomes, seen.end.output
    assert seen.verdicts == bench.cold().verdicts
    assert rested(bench, {**content, "shop/price.py": "VALUE = 3\n"}).outcomes == {PRICE: "passed"}


@pytest.mark.thorough
def test_what_modules_do_when_they_are_imported_happens_once_a_run(bench: WarmBench) -> None:
    content = {**SHOP, "shop/first.py": "with open('noted', 'a') as stream: stream.write('i')\n"}
    begun(bench, content)
    bench.bench.said("rm -f noted")
    for value in range(1, 4):
        rested(bench, {**content, "shop/price.py": f"VALUE = {value}\n"})
        time.sleep(PARKED_AFTER_S)
        assert bench.bench.said("cat noted") == "i" * value
