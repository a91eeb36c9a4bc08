"""Which module imports which, derived from import statements."""

from __future__ import annotations

import pytest

from watchtest.core.recorded import FileFingerprint, ImportName
from watchtest.selection.import_graph import ImportGraph, ModuleNames

MODULES = {"shop": "src/shop/__init__.py", "shop.cart": "src/shop/cart.py", "conftest": "tests/conftest.py"}
FILES = (
    *MODULES.values(),
    "src/shop/prices.py",
    "src/shop/web/__init__.py",
    "src/shop/web/pages.py",
    "tests/test_cart.py",
    "tests/helpers.py",
    "not-a-module.py",
)


@pytest.fixture
def names() -> ModuleNames:
    return ModuleNames(MODULES, FILES)


def test_where_sources_begin_is_learned_from_modules_that_were_imported(names: ModuleNames) -> None:
    assert "shop.prices" in names.of("src/shop/prices.py")
    assert names.files("helpers") == {"tests/helpers.py"}


def test_a_package_is_named_after_its_folder(names: ModuleNames) -> None:
    assert names.files("shop.web") == {"src/shop/web/__init__.py"}


def test_a_file_whose_name_is_none_has_none(names: ModuleNames) -> None:
    assert names.of("not-a-module.py") == set()


@pytest.mark.parametrize(
    ("path", "statement", "expected"),
    [
        ("tests/test_cart.py", ImportName(0, "shop.cart"), {"src/shop/__init__.py", "src/shop/cart.py"}),
        ("tests/test_cart.py", ImportName(0, "shop", ("cart",)), {"src/shop/__init__.py", "src/shop/cart.py"}),
        ("tests/test_cart.py", ImportName(0, "shop.cart", ("add",)), {"src/shop/__init__.py", "src/shop/cart.py"}),
        ("tests/test_cart.py", ImportName(0, "shop", ("*",)), {"src/shop/__init__.py"}),
        ("tests/test_cart.py", ImportName(0, "json"), set()),
        ("src/shop/cart.py", ImportName(1, "prices"), {"src/shop/__init__.py", "src/shop/prices.py"}),
        ("src/shop/cart.py", ImportName(1, "", ("prices",)), {"src/shop/__init__.py", "src/shop/prices.py"}),
        ("src/shop/web/pages.py", ImportName(2, "cart"), {"src/shop/__init__.py", "src/shop/cart.py"}),
        ("src/shop/__init__.py", ImportName(1, "cart"), {"src/shop/cart.py"}),
        ("src/shop/cart.py", ImportName(0, "shop.cart"), {"src/shop/__init__.py"}),
    ],
)
def test_a_statement_names(path: str, statement: ImportName, expected: set[str], names: ModuleNames) -> None:
    assert names.named_by(path, statement) == expected


def test_more_dots_than_packages_lead_nowhere(names: ModuleNames) -> None:
    assert names.named_by("src/shop/cart.py", ImportName(9, "prices")) == set()


def test_a_file_is_reached_through_others(names: ModuleNames) -> None:
    graph = ImportGraph(names)
    graph.add("src/shop/cart.py", FileFingerprint(imports=(ImportName(1, "prices"),)))
    graph.add("tests/test_cart.py", FileFingerprint(imports=(ImportName(0, "shop.cart"),)))
    reached = graph.reaching(["src/shop/prices.py"])
    assert reached == {"src/shop/prices.py", "src/shop/cart.py", "tests/test_cart.py"}


def test_a_file_executes_the_packages_that_it_lies_in(names: ModuleNames) -> None:
    assert names.around("src/shop/web/pages.py") == {"src/shop/__init__.py", "src/shop/web/__init__.py"}
    assert names.around("src/shop/__init__.py") == set()
    graph = ImportGraph(names)
    graph.add("src/shop/web/pages.py", FileFingerprint())
    assert "src/shop/web/pages.py" in graph.reaching(["src/shop/__init__.py"])


def test_files_that_import_one_another_are_reached_once(names: ModuleNames) -> None:
    graph = ImportGraph(names)
    graph.add_edge("a.py", "b.py")
    graph.add_edge("b.py", "a.py")
    assert graph.reaching(["a.py"]) == {"a.py", "b.py"}
    assert graph.reaching(["c.py"]) == {"c.py"}


def test_an_edge_that_no_statement_shows_counts(names: ModuleNames) -> None:
    graph = ImportGraph(names)
    graph.add_edge("tests/test_cart.py", "src/shop/web/pages.py")
    assert "tests/test_cart.py" in graph.reaching(["src/shop/web/pages.py"])
