"""The small project that is changed at random, and what may be changed in it so that outcomes often flip."""

from __future__ import annotations

import random
import re

FILES = {
    ".gitignore": "__pycache__/\n.pytest_cache/\n*.log\nbuild/\n",
    "pytest.ini": "[pytest]\nxfail_strict = true\n",
    "conftest.py": """import pytest

from shop import prices

RATE = 2


@pytest.fixture
def basket():
    return [1, RATE]


@pytest.fixture(scope="session")
def limit():
    return prices.LIMIT + 1
""",
    "data/stock.txt": "nail 3\nbolt 2\nnut 1\n",
    "data/parts/one.txt": "1\n",
    "data/parts/two.txt": "2\n",
    "shop/__init__.py": "from shop.prices import total\n\n__all__ = ['total']\n",
    "shop/prices.py": """LIMIT = 3


def double(value):
    return value * 2


def total(values, discount=0):
    return sum(double(value) for value in values) - discount


class Till:
    start = 1

    def __init__(self):
        self.money = self.start

    def pay(self, amount):
        self.money += amount
        return self.money
""",
    "shop/stock.py": """from functools import lru_cache
from pathlib import Path

DATA = Path(__file__).parent.parent / "data"


@lru_cache
def stock():
    return {name: int(count) for name, count in map(str.split, (DATA / "stock.txt").read_text().splitlines())}


def parts():
    return sum(int(path.read_text()) for path in sorted((DATA / "parts").glob("*.txt")))
""",
    "shop/words/__init__.py": "",
    "shop/words/plural.py": """ENDING = "s"


def plural(word, count=2):
    return word if count == 1 else word + ENDING
""",
    "tests/test_prices.py": """import pytest

import shop
from shop.prices import Till, double, total


def test_double():
    assert double(2) == 4


@pytest.mark.parametrize("values, expected", [([1], 2), ([1, 2], 6), ([], 0)])
def test_total(values, expected):
    assert total(values) == expected


def test_a_discount():
    assert shop.total([2], discount=1) == 3


def test_the_basket(basket):
    assert total(basket) == 6


class TestTill:
    def test_pay(self):
        assert Till().pay(2) == 3

    def test_start(self):
        assert Till.start == 1
""",
    "tests/test_stock.py": """import os
import subprocess
import sys

import pytest

from shop import stock


@pytest.mark.parametrize("name, count", [("nail", 3), ("bolt", 2), ("nut", 1)])
def test_stock(name, count):
    assert stock.stock()[name] == count


def test_parts():
    assert stock.parts() == 3


def test_a_program_of_its_own():
    code = "from shop.words.plural import plural; print(plural('nut'))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, universal_newlines=True)
    assert done.stdout.strip() == "nuts"


def test_leaves_a_process_behind():
    lasts_s = os.environ.get("LEFT_BEHIND_S", "7654")
    subprocess.Popen(["sleep", lasts_s], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_an_optional_file():
    assert not os.path.exists(stock.DATA / "switch")
""",
    "tests/test_limits.py": """from shop.prices import LIMIT


def test_limit(limit):
    assert limit == 4


def test_constant():
    assert LIMIT == 3
""",
    "tests/words/conftest.py": """import pytest


@pytest.fixture(autouse=True)
def ending(monkeypatch):
    monkeypatch.setenv("ENDING", "s")


@pytest.fixture
def word():
    return "bolt"
""",
    "tests/words/test_plural.py": """import os

from shop.words.plural import plural


def test_plural(word):
    assert plural(word) == "bolts"


def test_one(word):
    assert plural(word, 1) == "bolt"


def test_ending():
    assert os.environ["ENDING"] == "s"
""",
    "test_top.py": """from shop.prices import double
from shop.words import plural


def test_top():
    assert plural.plural("nail") == "nails"


def test_at_import():
    assert AT_IMPORT == 2


AT_IMPORT = double(1)
""",
}
NUMBER = re.compile(r"(?<![\w.])\d+(?!\w)")
NEW_NAMES = (
    "tests/test_new.py",
    "tests/more/test_more.py",
    "tests/more/deep/test_deep.py",
    "tests/test_ünï.py",
    "tests/a b/test_blank.py",
    "test_root.py",
    "tests/words/new_test.py",
    "shop/test_inside.py",
)
OTHER_NAMES = (
    "notes.md",
    "data/parts/three.txt",
    "data/switch",
    "data/ü b.txt",
    "docs/-x.txt",
    "docs/a*b.txt",
    "docs/new\nline.txt",
    "docs/'quote\".txt",
    "shop/extra.py",
    "conftest.txt",
    "big.bin",
    "x.log",
    "build/out.py",
    ".hidden/file",
)


def change_number(path: str, text: str, chance: random.Random) -> str | None:
    """Change one number; more often than not, put one back that differs from the original."""
    numbers = list(NUMBER.finditer(text))
    if not numbers:
        return None
    original = NUMBER.findall(FILES.get(path, ""))
    wrong = [index for index, number in enumerate(numbers) if original[index : index + 1] not in ([], [number[0]])]
    if wrong and chance.random() < 0.6:
        index = chance.choice(wrong)
        new = original[index]
    else:
        index = chance.randrange(len(numbers))
        new = str(chance.randrange(4))
    return text[: numbers[index].start()] + new + text[numbers[index].end() :]


def add_test(text: str, number: int, chance: random.Random) -> str:
    """Append a test: a plain one, one with a fixture, several, or a class."""
    right = chance.random() < 0.75
    match chance.randrange(5):
        case 0:
            body = f"def test_new_{number}(basket):\n    assert len(basket) == {2 if right else 3}\n"
        case 1:
            body = (
                f"import pytest\n\n\n@pytest.mark.parametrize('n', range({chance.randrange(3)}))\n"
                f"def test_new_{number}(n):\n    assert n < {3 if right else 1}\n"
            )
        case 2:
            body = f"class TestNew{number}:\n    def test_it(self):\n        assert {right}\n"
        case 3:
            body = (
                f"from shop.prices import double as d{number}\n\n\n"
                f"def test_new_{number}():\n    assert d{number}(1) == {2 if right else 1}\n"
            )
        case _:
            body = f"def test_new_{number}():\n    assert {right}\n"
    return f"{text}\n\n{body}"


def drop_last_test(text: str) -> str | None:
    start = max(text.rfind("\ndef test_"), text.rfind("\nclass Test"))
    return None if start < 0 else text[:start]


def rename_test(text: str, number: int, chance: random.Random) -> str | None:
    names = re.findall(r"def (test_\w+)", text)
    if not names:
        return None
    name = chance.choice(names)
    new = chance.choice((f"test_renamed_{number}", name.removeprefix("test_")))
    return re.sub(rf"\bdef {name}\b", f"def {new}", text, count=1)


def mark_test(text: str, chance: random.Random) -> str | None:
    """Skip a test, or expect that it fails."""
    found = list(re.finditer(r"^def test_", text, re.MULTILINE))
    if not found:
        return None
    start = chance.choice(found).start()
    mark = chance.choice(("skip", "xfail", "xfail(strict=False)", "skipif(True, reason='x')"))
    return f"{text[:start]}@__import__('pytest').mark.{mark}\n{text[start:]}"


def swap_operator(text: str, chance: random.Random) -> str | None:
    found = list(re.finditer(r" (==|!=|\+|-|\*) ", text))
    if not found:
        return None
    place = chance.choice(found)
    other = {"==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+"}[place[1]]
    return text[: place.start(1)] + other + text[place.end(1) :]


def change_nothing_that_counts(text: str, number: int, chance: random.Random) -> str:
    match chance.randrange(4):
        case 0:
            return f"{text}\n# {number}\n"
        case 1:
            return text.replace("\n\n\n", f"\n\n# {number}\n\n", 1)
        case 2:
            return text.replace("\n", "\r\n") if "\r" not in text else text.replace("\r\n", "\n")
        case _:
            return f"{text}\n"
