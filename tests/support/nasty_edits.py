"""Edits of the project in tests/samples/nasty; the words of each edit name a test case."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Step = Callable[[Path], None]


@dataclass(frozen=True, slots=True)
class Edit:
    """`left_out` are tests that change their outcome although no selection can predict it; `reason` explains why."""

    words: str
    steps: tuple[Step, ...]
    left_out: frozenset[str] = frozenset()
    reason: str = ""


def edit(words: str, *steps: Step) -> Edit:
    return Edit(words, steps)


def unsound(words: str, *steps: Step, leaves_out: str, because: str) -> Edit:
    return Edit(words, steps, frozenset({leaves_out}), because)


def change(path: str, old: str, new: str) -> Step:
    """Replace text that occurs exactly once."""

    def step(root: Path) -> None:
        text = (root / path).read_text()
        assert text.count(old) == 1, f"{path} holds {old!r} {text.count(old)} times"
        (root / path).write_text(text.replace(old, new))

    return step


def add(path: str, text: str) -> Step:
    """Append text to a file, creating it if needed."""

    def step(root: Path) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        with (root / path).open("a") as stream:
            stream.write(text)

    return step


def remove(path: str) -> Step:
    return lambda root: (root / path).unlink()


def rename(path: str, name: str) -> Step:
    def step(root: Path) -> None:
        (root / path).rename(root / name)

    return step


FUNCTIONS = (
    edit("the body of a function", change("shop/prices.py", "gross * 100 // 120", "gross * 100 // 121")),
    edit("a function in a function", change("shop/shapes.py", "value + amount", "value - amount")),
    edit("a lambda", change("shop/shapes.py", "lambda: 10", "lambda: 11")),
    edit("one of two lambdas of a line", change("shop/shapes.py", 'lambda: "there"', 'lambda: "elsewhere"')),
    edit("a generator", change("shop/shapes.py", "start -= 1", "start -= 2")),
    edit("a coroutine", change("shop/shapes.py", '"fetched"', '"lost"')),
    edit("a context manager", change("shop/shapes.py", 'yield "opened"', 'yield "closed"')),
    edit("a comprehension", change("shop/shapes.py", "number * number", "number + number")),
    edit("a property", change("shop/kinds.py", "self.amount * 10", "self.amount * 11")),
    edit("a class method", change("shop/kinds.py", "amount=2", "amount=3")),
    edit("a special method", change("shop/kinds.py", "self.amount == other.amount", "False")),
    edit(
        "a function that becomes a generator",
        change("shop/prices.py", "return [str(price) for", "yield [str(price) for"),
    ),
    edit("a function that a decorator puts around another", change("shop/decorated.py", ".upper()", ".lower()")),
)

SHELLS = (
    edit("a default", change("shop/prices.py", "digits=0", "digits=1")),
    edit("a constant", change("shop/prices.py", "TAX = 20", "TAX = 10")),
    edit("a constant of a late module", change("shop/latecomer.py", '"once"', '"twice"')),
    edit("a decorator that goes", change("shop/decorated.py", "@loud\n", "")),
    edit("a decorator of a class", change("shop/decorated.py", "len([name", "1 + len([name")),
    edit("a class attribute", change("shop/kinds.py", "legs = 4", "legs = 3")),
    edit("the value of an enumeration", change("shop/kinds.py", "GREEN = 2", "GREEN = 3")),
    edit("a field of a data class", change("shop/kinds.py", "amount: int = 1", "amount: int = 5\n    size: int = 1")),
    edit("a field of a named tuple", change("shop/kinds.py", "y: int = 0", "y: int = 1")),
    edit("a metaclass", change("shop/kinds.py", "name.lower()", "name.upper()")),
    edit("a descriptor that is told its name", change("shop/kinds.py", 'name + "!"', "name")),
    edit("what marks subclasses", change("shop/kinds.py", 'cls.mark = "sub"', 'cls.mark = "under"')),
    edit("a docstring", change("shop/prices.py", "Nothing to see.", "Nothing at all.")),
    edit("an annotation", change("shop/prices.py", "amount: int)", "amount: str)")),
    edit(
        "a method that is new",
        change("shop/decorated.py", 'return "open"', 'return "open"\n\n    def shut(self):\n        pass'),
    ),
    edit(
        "a method that goes",
        change(
            "shop/removable.py",
            'class Child(Base):\n    def greet(self):\n        return "child"',
            "class Child(Base):\n    pass",
        ),
    ),
    edit("a function that goes", change("shop/removable.py", 'def doomed():\n    return "here"', "")),
    edit("a function with another name", change("shop/patched.py", "def send", "def deliver")),
    edit(
        "a function that moves to another module",
        change("shop/removable.py", 'def doomed():\n    return "here"', ""),
        add("shop/moved.py", 'def doomed():\n    return "here"\n'),
    ),
    edit("a class that becomes another's child", change("shop/kinds.py", "class Dog(Thing)", "class Dog")),
    edit("a file that does not parse", change("shop/shapes.py", "def adder(amount):", "def adder(amount:")),
)

PACKAGES = (
    edit("what a star import brings", change("shop/stars.py", '["starred"]', '["starred", "hidden"]')),
    edit("what a package offers", change("shop/__init__.py", "import gross", "import net as gross")),
    edit("a module that a package loads when asked", change("shop/rarely.py", '"seldom"', '"often"')),
    edit("a constant of a module that is there already", change("shop/rarely.py", "HOW_OFTEN = 1", "HOW_OFTEN = 2")),
    edit("a class that is found by its name in data", change("shop/rarely.py", "worth = 100", "worth = 99")),
    edit("what the package of the tests does", change("tests/__init__.py", '"open"', '"shut"')),
    edit("a function that is imported late", change("shop/latecomer.py", '"late"', '"early"')),
    edit("a function of a module by its name", change("shop/dynamic.py", "return 42", "return 41")),
    edit("a constant of a module by its name", change("shop/dynamic.py", "LIMIT = 7", "LIMIT = 8")),
    edit("a module that makes an import succeed", add("shop/speedup.py", "")),
    edit("a module that makes a search succeed", add("shop/extra.py", "")),
    edit("a module that is found by listing", add("shop/plugins/gamma.py", 'NAME = "gamma"\n')),
    edit("a listed module that goes", remove("shop/plugins/beta.py")),
    edit("a module that goes", remove("shop/latecomer.py")),
    edit("a module with another name", rename("shop/rarely.py", "shop/never.py")),
    edit("a module that hides one of the library", add("inspect.py", "raise ImportError('hidden')\n")),
    edit("a module that becomes a package", remove("shop/stars.py"), add("shop/stars/__init__.py", "starred = str\n")),
)

REMEMBERED = (
    edit("what a cached function calls", change("shop/remember.py", '"low": 5', '"low": 6')),
    edit("what is kept in a table", change("shop/remember.py", "rate_of(name) + 1", "rate_of(name) + 2")),
    edit("what is kept in a global name", change("shop/remember.py", 'split("=")', 'split("+")')),
    edit("data that is kept in a global name", change("data/settings.txt", "name=shop", "name=shed")),
    edit("what makes the only one", change("shop/remember.py", "return 3", "return 4")),
    edit("what a cached property calls", change("shop/remember.py", 'return "catalogue"', 'return "leaflet"')),
    edit("what a lazy attribute is made of", change("shop/remember.py", '["a", "b"]', '["b", "a"]')),
    edit("what a decorator of our own keeps", change("shop/habits.py", "return len(name)", "return 7")),
    edit("what an attribute that may be missing is made of", change("shop/habits.py", '"for sale"', '"sold"')),
    edit("what an item of an attribute is made of", change("shop/habits.py", "10 * len(name)", "11 * len(name)")),
    edit("what a list is filled with", change("shop/habits.py", '["s", "t"]', '["t", "s"]')),
    edit("what sets something back that others find", change("shop/globals.py", "SETTINGS.language = None", "pass")),
    edit("a function that runs at import only", change("shop/atimport.py", "return 1", "return 2")),
    edit("data that is read at import", change("data/words.txt", "pear", "plum")),
)

DATA = (
    edit("a data file", change("data/template.txt", "hello", "goodbye")),
    edit("a data file that goes", remove("data/template.txt")),
    edit("data of a package", change("shop/packed.txt", "packed", "unpacked")),
    edit("data behind a link", change("data/target.txt", "target", "tarmac")),
    edit("a file in a listed folder", add("data/folder/eleven", "")),
    edit("a file that a pattern finds", add("data/two.cfg", "")),
    edit("a file that was asked for", add("data/switch", "")),
    edit("a file that the system was asked for", remove("data/door")),
    edit("a file that a function of the system was asked for", add("data/weighed.bin", "5")),
    edit("what asks the system, for all tests", change("shop/files.py", "return os.access", "return not os.access")),
    edit("a file that was opened from its folder", change("data/beside.txt", "beside", "behind")),
    edit("the size of a file", add("data/sized.bin", "6")),
    edit("data that tests are made of", change("data/numbers.txt", "2", "2 3")),
    edit("a source that a test reads", change("shop/documented.py", "as it is written", "as you like it")),
)

CHILDREN = (
    edit("what a fork and a Python of its own run", change("shop/child.py", "number * 2", "number * 4")),
    edit("data that a fork reads", change("data/forked.txt", "forked", "spooned")),
    edit("what a spawned process runs", change("shop/spawned.py", "number * 3", "number * 5")),
    edit("a program that a test starts", change("tools/print_program.py", "print(", "print(1, ")),
    edit("data that a program reads", change("data/program.txt", "2", "3")),
)

FIXTURES = (
    edit("what a fixture calls", change("conftest.py", '"egg"', '"ham"')),
    edit("a fixture of a folder", change("tests/web/conftest.py", "<html>", "<xml>")),
    edit("what a fixture of a module is made of", change("tests/conftest.py", "len(name) for", "0 for")),
    edit("what a fixture of a package calls", change("tests/conftest.py", 'return "packet"', 'return "parcel"')),
    edit("what a fixture for all tests calls", change("tests/conftest.py", 'return "en"', 'return "de"')),
    edit("data of a fixture of the session", change("data/stock.txt", "nail", "bolt")),
    edit("the end of a fixture of the session", change("shop/store.py", "return True", "return False")),
    edit("a fixture that is asked for by its name", change("tests/conftest.py", 'return "even"', 'return "odd"')),
    edit("a file that the session has listed", add("tools/new.txt", "")),
    edit("what a class is set up with", change("tests/test_fixtures.py", 'return "made"', 'return "maid"')),
    edit("what runs when the session is configured", change("conftest.py", "return 3", "return 4")),
    edit("what runs before each test", change("conftest.py", "return True", "return False")),
    edit(
        "a fixture that hides another", add("tests/conftest.py", "\n\n@pytest.fixture\ndef basket():\n    return []\n")
    ),
    edit("a new conftest.py", add("tests/cases/conftest.py", ""), add("shop/conftest.py", "raise OSError\n")),
    edit("a conftest.py that goes", remove("tests/web/conftest.py")),
)

TESTS = (
    edit("what a test puts in the place of a function", change("tests/test_order.py", "= replaced", "= str")),
    edit("a test", change("tests/test_prices.py", "rounded(1.26) == 1", "rounded(1.26) == 2")),
    edit("a new test in an old file", add("tests/test_prices.py", "\n\ndef test_new():\n    pass\n")),
    edit("the first test of a file", add("tests/test_empty.py", "\n\ndef test_new():\n    pass\n")),
    edit("a new file with tests", add("tests/test_new.py", "def test_new():\n    pass\n")),
    edit("a file with tests that goes", remove("tests/test_by_name.py")),
    edit("a test that goes", change("tests/test_by_name.py", "def test_a_name_is_replaced", "def replaced")),
    edit("a constant that tests are made of", change("tests/cases/__init__.py", "(2, 4)]", "(2, 4), (3, 9)]")),
    edit("a function that tests are made of", change("tests/cases/__init__.py", "(2, 8)]", "(2, 8), (3, 27)]")),
    edit("what generates tests", change("tests/cases/__init__.py", '["a", "b"]', '["a", "b", "C"]')),
    edit("a setting of pytest", change("pytest.ini", "[pytest]", "[pytest]\npython_functions = test_a_*")),
)  # fmt: skip

UNSOUND = (
    unsound(
        "what one test leaves for a test of another file",
        change("tests/test_order.py", 'return "wild"', 'return "mild"'),
        leaves_out="tests/test_order_too.py::test_the_mode_of_another_file",
        because="the order of tests is a part of the outcome",
    ),
    unsound(
        "what a test puts in the place of a function of others",
        change("tests/test_order.py", "str.upper", "str.lower"),
        leaves_out="tests/test_order_too.py::test_the_function_of_another_file",
        because="a test replaces a function for good",
    ),
)

EDITS = (*FUNCTIONS, *SHELLS, *PACKAGES, *REMEMBERED, *DATA, *CHILDREN, *FIXTURES, *TESTS)
