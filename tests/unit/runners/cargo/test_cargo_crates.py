"""Which crates a change can affect, with recorded output of `cargo metadata`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support import TESTS
from support.recorded_answers import changed, narrowed, says

from watchtest.runners.cargo.cargo_runner import CargoRunner
from watchtest.runners.runner import Change, InvocationEnd, Undecidable

METADATA = (TESTS / "support" / "recorded" / "cargo_metadata_1_95.json").read_bytes()
"""Of three crates: shop at the top, tax, and cli, which needs tax."""
KNOWN = ("shop/lib::tests::two_things", "shop/test/shopping::a", "tax/lib::a_fifth", "cli/bin/cli::c")
SHOP = {"shop/lib", "shop/test/shopping", "shop/doc"}
TAX = {"tax/lib", "tax/doc", "cli/bin/cli"}


def crates(change: Change, metadata: bytes = METADATA, folder: str = "") -> set[str]:
    return set(narrowed(CargoRunner(folder=folder), change, says(metadata)).tests)


def edited(**dependency: Any) -> bytes:
    """Return shop with an additional dependency."""
    said = json.loads(METADATA)
    [shop] = [crate for crate in said["packages"] if crate["name"] == "shop"]
    shop["dependencies"].append({"name": "", "source": None, "path": None, "optional": True, **dependency})
    return json.dumps(said).encode()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/lib.rs", SHOP),
        ("README.md", SHOP),
        ("tests/a.rs", SHOP),
        ("tests/data/a.json", SHOP | TAX),
        ("cli/data/a.json", {"cli/bin/cli"}),
        ("tax/src/lib.rs", TAX),
        ("tax/build.rs", TAX),
        ("cli/src/main.rs", {"cli/bin/cli"}),
    ],
)
def test_a_file_concerns_its_crate_and_those_that_need_it(path: str, expected: set[str]) -> None:
    for change in (changed(path, known=KNOWN), changed(new=[path], known=KNOWN), changed(removed=[path], known=KNOWN)):
        assert crates(change) == expected


def test_a_dependency_counts_by_its_name_be_it_optional_or_patched() -> None:
    source = "registry+https://github.com/rust-lang/crates.io-index"
    assert crates(changed("tax/src/lib.rs", known=KNOWN), edited(name="tax", source=source)) == TAX | SHOP


def test_a_target_that_is_gone_is_asked_for_with_its_crate() -> None:
    known = (*KNOWN, "shop/test/old::x")
    assert crates(changed(removed=["tests/old.rs"], known=known)) == SHOP | {"shop/test/old"}


@pytest.mark.parametrize("path", ["Cargo.toml", "tax/Cargo.toml", "Cargo.lock", ".cargo/config.toml", "rust-toolchain"])
def test_what_crates_are_made_of_makes_everything_run(path: str) -> None:
    with pytest.raises(Undecidable, match=path):
        crates(changed(path, known=KNOWN))


def test_what_is_in_no_crate_may_concern_every_crate() -> None:
    said = METADATA.replace(b"/workspace", b"/workspace/rust")
    known = tuple(f"rust/{test}" for test in KNOWN)
    assert crates(changed("rust/tax/src/lib.rs", known=known), said, "rust") == {f"rust/{target}" for target in TAX}
    assert crates(changed("README.md", known=known), said, "rust") == set()
    with pytest.raises(Undecidable, match=r"schema\.json"):
        crates(changed("schema.json", known=known), said, "rust")


def test_a_crate_that_is_gone_makes_everything_run() -> None:
    with pytest.raises(Undecidable, match="crate old no longer exists"):
        crates(changed("src/lib.rs", known=(*KNOWN, "old/lib::x")))


def test_a_crate_that_cargo_does_not_look_into_makes_everything_run() -> None:
    with pytest.raises(Undecidable, match="/workspace/helper"):
        crates(changed("src/lib.rs", known=KNOWN), edited(name="helper", path="/workspace/helper"))


@pytest.mark.parametrize(
    "end",
    [
        InvocationEnd(101, output="error: failed to download `x`"),
        InvocationEnd(None, stopped="killed"),
        InvocationEnd(0, report=b"{}"),
        InvocationEnd(0, report=b"null"),
        InvocationEnd(0, report=METADATA[:-20]),
    ],
)
def test_a_tool_that_does_not_tell_makes_everything_run(end: InvocationEnd) -> None:
    with pytest.raises(Undecidable, match="cargo metadata"):
        narrowed(CargoRunner(), changed("src/lib.rs", known=KNOWN), lambda _invocation: end)
