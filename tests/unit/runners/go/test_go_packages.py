"""Which Go packages a change can affect, with recorded output of `go list`."""

from __future__ import annotations

import pytest
from support import TESTS
from support.recorded_answers import changed, narrowed, says

from watchtest.runners.go.go_packages import listing_flags
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.runner import Change, InvocationEnd, Undecidable

LISTING = (TESTS / "support" / "recorded" / "go_list_1_19.txt").read_bytes()
"""Of three packages: web needs stock, and embeds a file; its tests, which stand outside of it, need the top one."""
KNOWN = (".::TestTotal", "internal/stock::TestAdd", "web::TestW")


def packages(change: Change, listing: bytes = LISTING) -> set[str]:
    return set(narrowed(GoRunner(), change, says(listing)).tests)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("price.go", {".", "web"}),
        ("price_test.go", {"."}),
        ("price_windows.go", {".", "web"}),
        ("internal/stock/stock.go", {"internal/stock", "web"}),
        ("internal/stock/prices.csv", {"internal/stock", "web"}),
        ("prices.csv", {".", "internal/stock", "web"}),
        ("testdata/a_test.go", {".", "internal/stock", "web"}),
        ("web/prices.csv", {"web"}),
        ("internal/stock/testdata/a.md", {"internal/stock", "web"}),
        ("README.md", {"."}),
        ("internal/stock/testdata/deep/a.go", {"internal/stock", "web"}),
        ("internal/stock/README.md", {"internal/stock"}),
        ("web/static/a.html", {"web"}),
        ("web/w_test.go", {"web"}),
        ("docs/README.md", set()),
        ("tools/make.py", set()),
    ],
)
def test_a_file_concerns_its_package_and_those_that_need_it(path: str, expected: set[str]) -> None:
    for change in (changed(path, known=KNOWN), changed(new=[path], known=KNOWN), changed(removed=[path], known=KNOWN)):
        assert packages(change) == expected


@pytest.mark.parametrize(
    "path",
    [
        "go.mod",
        "go.sum",
        "go.work",
        "vendor/x/y.go",
        "config.yaml/x",
        "web/static/b.html",
        "internal/gone/a.go",
        "a/b.c",
    ],
)
def test_a_file_outside_all_packages_may_affect_every_package(path: str) -> None:
    with pytest.raises(Undecidable, match=path):
        packages(changed("price.go", removed=[path], known=KNOWN))


def test_a_text_that_is_embedded_concerns_all_that_need_it() -> None:
    line = b'"dir":"/workspace/internal/stock","is_main":false,"imports":[],"embeds":['
    assert line in LISTING
    listing = LISTING.replace(line, line + b'"README.md"')
    assert packages(changed("internal/stock/README.md", known=KNOWN), listing) == {"internal/stock", "web"}


def test_a_selection_says_why() -> None:
    selection = narrowed(GoRunner(), changed("price.go", "web/w_test.go", known=KNOWN), says(LISTING))
    assert selection.is_proof
    assert selection.because == "price.go belongs to the package .; web/w_test.go belongs to the package web"
    nothing = narrowed(GoRunner(), changed("docs/README.md", known=KNOWN), says(LISTING))
    assert nothing.because == "no test depends on docs/README.md"


def test_a_package_that_lost_all_its_tests_is_asked_for_them() -> None:
    lines = [line for line in LISTING.decode().splitlines() if '"example.com/shop/web.test"' not in line]
    without = "\n".join(lines).encode()
    assert packages(changed(removed=["web/w_test.go"], known=KNOWN), without) == {"web"}


def test_a_package_that_is_gone_makes_everything_run() -> None:
    with pytest.raises(Undecidable, match="no longer exist: old"):
        packages(changed("price.go", known=(*KNOWN, "old::TestOld")))


@pytest.mark.parametrize(
    "end",
    [
        InvocationEnd(1, output="go: errors parsing go.mod"),
        InvocationEnd(127, output="sh: go: not found"),
        InvocationEnd(None, stopped="timed_out", reason="it took longer than 60 s"),
        InvocationEnd(0, report=None),
        InvocationEnd(0, report=b""),
        InvocationEnd(0, report=b"[1]"),
        InvocationEnd(0, report=b'{"path":"a"}'),
        InvocationEnd(0, report=LISTING[:-20]),
        InvocationEnd(0, report=b"\xff"),
    ],
)
def test_a_tool_that_does_not_tell_makes_everything_run(end: InvocationEnd) -> None:
    with pytest.raises(Undecidable, match="go list"):
        narrowed(GoRunner(), changed("price.go", known=KNOWN), lambda _invocation: end)


def test_flags_that_choose_files_are_handed_on() -> None:
    args = ("-count=1", "-tags", "slow,db", "-race", "--mod=vendor", "-v", "-run", "TestX")
    assert listing_flags(args) == ("-tags", "slow,db", "-race", "--mod=vendor")
