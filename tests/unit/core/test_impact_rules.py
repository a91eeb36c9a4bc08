"""The rules, each over a small atlas: which tests a changed path selects, how soon, and because of what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from watchtest.core.impact_rules import Finding, Ground, by_file, findings, in_words
from watchtest.core.recorded import ChangedPath, FilePrint, Recorded, Touched
from watchtest.selection.test_map import Atlas

CART, PAGE, SLOW = "tests/test_cart.py::test_cart", "tests/web/test_page.py::test_page", "tests/test_slow.py::test_slow"
IMPORTERS = {"shop/cart.py": [CART], "shop/page.py": [PAGE], "tests/test_cart.py": [CART]}


def an_atlas(tests: Mapping[str, Touched], scopes: Mapping[str, Touched] | None = None) -> Atlas:
    atlas = Atlas()
    known = {test: Touched() for test in (CART, PAGE, SLOW)}
    atlas.learn(Recorded({**known, **tests}, scopes or {}, tops=frozenset({"json"})), is_proven=True)
    return atlas


def asked(change: ChangedPath, atlas: Atlas, **more: object) -> tuple[set[str], set[str], list[Finding]]:
    """The tests to run first, all to run, and the findings."""

    def reach(paths: Iterable[str]) -> int:
        return atlas.of(test for path in paths for test in IMPORTERS.get(path, ()))

    ground = Ground(
        known=atlas,
        reach=reach,
        module_names=lambda path: [path.removesuffix(".py").replace("/", ".")],
        tops=atlas.tops,
        suffixes=frozenset(),
        **more,  # type: ignore[arg-type]
    )
    found = findings([change], ground)
    first, every = 0, 0
    for finding in found:
        first |= finding.first
        every |= finding.first | finding.rest
    return set(atlas.names(first)), set(atlas.names(every)), found


def changed(path: str, before: FilePrint | None = None, after: FilePrint | None = None) -> ChangedPath:
    return ChangedPath(path, was_there=True, is_there=True, before=before, after=after)


def new(path: str, *listings: str) -> ChangedPath:
    return ChangedPath(path, was_there=False, is_there=True, listings=listings, came_or_went=(path,))


def gone(path: str, *listings: str) -> ChangedPath:
    return ChangedPath(path, was_there=True, is_there=False, listings=listings, came_or_went=(path,))


def a_print(shell: str = "shell", writers: Iterable[str] = (), **functions: str) -> FilePrint:
    return FilePrint(shell, functions, writers=frozenset(writers))


def in_cart(name: str) -> Touched:
    return Touched(units=frozenset({("shop/cart.py", name)}))


BODY = changed("shop/cart.py", a_print(add="1", drop="1"), a_print(add="2", drop="1"))


def test_a_function_selects_the_tests_that_entered_it() -> None:
    first, every, found = asked(BODY, an_atlas({CART: in_cart("add"), SLOW: in_cart("drop")}))
    assert (first, every) == ({CART}, {CART})
    assert in_words(found) == "shop/cart.py: add changed"


def test_a_function_that_a_fixture_entered_selects_the_users_of_the_fixture() -> None:
    atlas = an_atlas({PAGE: Touched(uses=frozenset({"fixture:x"}))}, {"fixture:x": in_cart("add")})
    assert asked(BODY, atlas)[1] == {PAGE}


def test_a_function_that_ran_at_import_selects_behind_it_all_who_reach_the_module() -> None:
    first, every, _ = asked(BODY, an_atlas({}, {"import:shop/page.py": in_cart("add")}))
    assert (first, every) == (set(), {PAGE})


def test_a_function_that_ran_at_collection_selects_the_whole_file() -> None:
    _, every, found = asked(BODY, an_atlas({}, {"file:tests/test_slow.py": in_cart("add")}))
    assert every == {SLOW}
    assert [finding.whole for finding in found if finding.whole] == ["tests/test_slow.py"]


def test_a_function_of_the_session_selects_everything_behind() -> None:
    first, every, _ = asked(BODY, an_atlas({}, {"session": in_cart("add")}))
    assert (first, every) == (set(), {CART, PAGE, SLOW})


def test_what_a_remembering_function_called_selects_all_who_reach_that_one() -> None:
    atlas = an_atlas(
        {SLOW: Touched(uses=frozenset({"memo:1:f:shop/page.py"}))}, {"memo:1:f:shop/page.py": in_cart("add")}
    )
    first, every, _ = asked(BODY, atlas)
    assert (first, every) == ({SLOW}, {SLOW, PAGE})


def test_a_function_that_writes_global_names_selects_all_who_reach_it() -> None:
    change = changed("shop/cart.py", a_print(add="1"), a_print(writers=["add"], add="2"))
    assert asked(change, an_atlas({SLOW: in_cart("add")}))[:2] == ({SLOW}, {SLOW, CART})


def test_a_shell_selects_all_who_reach_the_file() -> None:
    change = changed("shop/cart.py", a_print("1"), a_print("2"))
    assert asked(change, an_atlas({SLOW: in_cart("add")}))[:2] == ({SLOW}, {SLOW, CART})


def test_the_same_print_selects_nobody() -> None:
    assert asked(changed("shop/cart.py", a_print(add="1"), a_print(add="1")), an_atlas({CART: in_cart("add")}))[2] == []


def test_a_file_that_does_not_parse_counts_as_changed_all_over_and_says_so() -> None:
    _, every, found = asked(
        changed("shop/cart.py", a_print(), FilePrint(error="does not parse: x, line 2")), an_atlas({})
    )
    assert every == {CART}
    assert "does not parse" in in_words(found)


def test_a_file_without_a_known_past_counts_as_changed_all_over() -> None:
    assert asked(changed("shop/cart.py", None, a_print()), an_atlas({}))[1] == {CART}


def test_the_shell_of_a_file_without_tests_runs_what_it_may_hold_now() -> None:
    atlas = an_atlas({}, {"file:tests/test_none.py": Touched(imports=frozenset({"tests/test_none.py"}))})
    _, _, found = asked(changed("tests/test_none.py", a_print("1"), a_print("2")), atlas)
    assert [finding.whole for finding in found] == ["tests/test_none.py"]


def test_a_conftest_selects_the_tests_below_it() -> None:
    _, every, found = asked(changed("tests/web/conftest.py", a_print("1"), a_print("2")), an_atlas({}))
    assert every == {PAGE}
    assert any(finding.collects_all for finding in found)


def test_a_new_conftest_selects_everything() -> None:
    assert asked(new("tests/web/conftest.py"), an_atlas({}))[1] == {CART, PAGE, SLOW}


def test_a_new_module_selects_those_who_looked_for_it() -> None:
    first, every, found = asked(new("shop/speedup.py"), an_atlas({SLOW: Touched(missing=frozenset({"shop.speedup"}))}))
    assert (first, every) == ({SLOW}, {SLOW})
    assert any(finding.whole == "shop/speedup.py" for finding in found)


def test_a_new_module_with_the_name_of_another_selects_everything() -> None:
    assert asked(new("json.py"), an_atlas({}))[1] == {CART, PAGE, SLOW}


def test_a_module_that_goes_selects_all_who_entered_or_reach_it() -> None:
    assert asked(gone("shop/cart.py"), an_atlas({SLOW: in_cart("add")}))[:2] == ({SLOW}, {SLOW, CART})


def test_data_selects_those_who_read_it() -> None:
    atlas = an_atlas({PAGE: Touched(files=frozenset({"data.txt"})), SLOW: Touched(probes=frozenset({"data.txt"}))})
    assert asked(changed("data.txt"), atlas)[:2] == ({PAGE}, {PAGE, SLOW})


def test_a_file_that_comes_selects_those_who_listed_its_folder_or_asked_for_it() -> None:
    atlas = an_atlas({PAGE: Touched(folders=frozenset({"data"})), SLOW: Touched(probes=frozenset({"data/x"}))})
    assert asked(new("data/x", "data"), atlas)[0] == {PAGE, SLOW}
    assert asked(gone("data/x", "data"), atlas)[0] == {PAGE, SLOW}
    assert asked(changed("data/x"), atlas)[0] == set()


def test_settings_select_everything() -> None:
    assert asked(changed("pyproject.toml"), an_atlas({}))[1] == {CART, PAGE, SLOW}


def test_a_link_that_leads_elsewhere_selects_everything_behind() -> None:
    first, every, found = asked(replace(changed("data/current"), is_link=True), an_atlas({}))
    assert (first, every) == (set(), {CART, PAGE, SLOW})
    assert found[0].because == "data/current leads elsewhere than before"


def test_a_file_that_a_library_may_keep_selects_behind_all_who_use_the_library_like_that() -> None:
    kept = Touched(files=frozenset({"page.html"}))
    reader = Touched(files=frozenset({"page.html"}), uses=frozenset({"library:pages"}))
    atlas = an_atlas({PAGE: reader, CART: Touched(uses=frozenset({"library:pages"}))}, {"library:pages": kept})
    first, every, found = asked(changed("page.html"), atlas)
    assert (first, every) == ({PAGE}, {PAGE, CART})
    assert found[-1].because == "page.html was read by pages, which may have kept it"


def test_an_opaque_test_runs_for_whatever_is_no_text() -> None:
    atlas = an_atlas({SLOW: Touched(opaque=frozenset({"starts make"}))})
    assert asked(changed("Makefile"), atlas)[:2] == (set(), {SLOW})
    assert asked(changed("README.md"), atlas)[2] == []


def test_who_uses_an_opaque_fixture_is_opaque() -> None:
    scopes = {"fixture:x": Touched(opaque=frozenset({"starts a server"}))}
    assert asked(changed("Makefile"), an_atlas({PAGE: Touched(uses=frozenset({"fixture:x"}))}, scopes))[1] == {PAGE}


def test_who_reaches_an_opaque_module_is_opaque() -> None:
    scopes = {"import:shop/cart.py": Touched(opaque=frozenset({"starts make"}))}
    assert asked(changed("Makefile"), an_atlas({}, scopes))[1] == {CART}


def test_a_pattern_of_the_user_selects_the_tests_it_names() -> None:
    pattern = ("templates/** -> tests/web", lambda path: path.startswith("templates/"), "tests/web")
    first, _, found = asked(changed("templates/a.html"), an_atlas({}), patterns=(pattern,))
    assert first == {PAGE}
    assert "templates/** -> tests/web" in in_words(found)


def test_a_path_that_nobody_touches_selects_nobody() -> None:
    assert asked(changed("notes.txt"), an_atlas({}))[2] == []


def test_by_file_a_changed_function_is_a_changed_file() -> None:
    atlas = an_atlas({SLOW: in_cart("drop")})
    ground = Ground(atlas, lambda _: atlas.of([CART]), lambda _: [], frozenset(), frozenset())
    every = 0
    for finding in by_file([BODY], ground):
        every |= finding.first | finding.rest
    assert set(atlas.names(every)) == {CART, SLOW}


def test_by_file_those_who_listed_a_folder_or_asked_for_a_path_are_not_forgotten() -> None:
    atlas = an_atlas({PAGE: Touched(folders=frozenset({"data"})), SLOW: Touched(probes=frozenset({"data/x"}))})
    ground = Ground(atlas, lambda _: 0, lambda _: [], frozenset(), frozenset())
    found = [finding.first for finding in by_file([new("data/x", "data")], ground)]
    assert {name for mask in found for name in atlas.names(mask)} == {PAGE, SLOW}


def test_reasons_beyond_the_third_are_counted() -> None:
    words = in_words([Finding(f"because {number}") for number in (1, 2, 2, 3, 4, 5)])
    assert words == "because 1; because 2; because 3; and 2 more"
