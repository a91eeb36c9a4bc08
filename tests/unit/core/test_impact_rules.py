"""The rules, each with a small test map: which tests a changed path selects, how soon, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from watchtest.agent.warm import prestart
from watchtest.core.impact_rules import (
    SETTINGS,
    Impact,
    ImpactContext,
    find_impacts,
    find_impacts_by_file,
)
from watchtest.core.recorded import ChangedPath, Dependencies, FileFingerprint, RunRecording
from watchtest.core.text import join_reasons
from watchtest.selection.test_map import TestMap

CART, PAGE, SLOW = "tests/test_cart.py::test_cart", "tests/web/test_page.py::test_page", "tests/test_slow.py::test_slow"
IMPORTERS = {"shop/cart.py": [CART], "shop/page.py": [PAGE], "tests/test_cart.py": [CART]}


def mapped(tests: Mapping[str, Dependencies], scopes: Mapping[str, Dependencies] | None = None) -> TestMap:
    test_map = TestMap()
    known = {test: Dependencies() for test in (CART, PAGE, SLOW)}
    test_map.learn(RunRecording({**known, **tests}, scopes or {}, tops=frozenset({"json"})), is_proven=True)
    return test_map


def asked(change: ChangedPath, test_map: TestMap, **more: object) -> tuple[set[str], set[str], list[Impact]]:
    """Return the tests to run first, all tests to run, and the findings."""

    def reach(paths: Iterable[str]) -> int:
        return test_map.of(test for path in paths for test in IMPORTERS.get(path, ()))

    context = ImpactContext(
        recorded=test_map,
        reach=reach,
        module_names=lambda path: [path.removesuffix(".py").replace("/", ".")],
        tops=test_map.tops,
        suffixes=frozenset(),
        **more,  # type: ignore[arg-type]
    )
    found = find_impacts([change], context)
    first, every = 0, 0
    for impact in found:
        first |= impact.first
        every |= impact.first | impact.rest
    return set(test_map.names(first)), set(test_map.names(every)), found


def changed(path: str, before: FileFingerprint | None = None, after: FileFingerprint | None = None) -> ChangedPath:
    return ChangedPath(path, was_there=True, is_there=True, before=before, after=after)


def new(path: str, *listings: str) -> ChangedPath:
    return ChangedPath(path, was_there=False, is_there=True, listings=listings, came_or_went=(path,))


def gone(path: str, *listings: str) -> ChangedPath:
    return ChangedPath(path, was_there=True, is_there=False, listings=listings, came_or_went=(path,))


def a_print(shell: str = "shell", writers: Iterable[str] = (), **functions: str) -> FileFingerprint:
    return FileFingerprint(shell, functions, writers=frozenset(writers))


def in_cart(name: str) -> Dependencies:
    return Dependencies(units=frozenset({("shop/cart.py", name)}))


BODY = changed("shop/cart.py", a_print(add="1", drop="1"), a_print(add="2", drop="1"))


def test_a_function_selects_the_tests_that_entered_it() -> None:
    first, every, found = asked(BODY, mapped({CART: in_cart("add"), SLOW: in_cart("drop")}))
    assert (first, every) == ({CART}, {CART})
    assert join_reasons(impact.because for impact in found) == "shop/cart.py: add changed"


def test_a_function_that_a_fixture_entered_selects_the_users_of_the_fixture() -> None:
    test_map = mapped({PAGE: Dependencies(uses=frozenset({"fixture:x"}))}, {"fixture:x": in_cart("add")})
    assert asked(BODY, test_map)[1] == {PAGE}


def test_a_function_that_ran_at_import_selects_behind_it_all_who_reach_the_module() -> None:
    first, every, _ = asked(BODY, mapped({}, {"import:shop/page.py": in_cart("add")}))
    assert (first, every) == (set(), {PAGE})


def test_a_function_that_ran_at_collection_selects_the_whole_file() -> None:
    _, every, found = asked(BODY, mapped({}, {"file:tests/test_slow.py": in_cart("add")}))
    assert every == {SLOW}
    assert [impact.whole for impact in found if impact.whole] == ["tests/test_slow.py"]


def test_a_function_of_the_session_selects_everything_behind() -> None:
    first, every, _ = asked(BODY, mapped({}, {"session": in_cart("add")}))
    assert (first, every) == (set(), {CART, PAGE, SLOW})


def test_what_a_remembering_function_called_selects_all_who_reach_that_one() -> None:
    test_map = mapped(
        {SLOW: Dependencies(uses=frozenset({"memo:1:f:shop/page.py"}))}, {"memo:1:f:shop/page.py": in_cart("add")}
    )
    first, every, _ = asked(BODY, test_map)
    assert (first, every) == ({SLOW}, {SLOW, PAGE})


def test_a_function_that_writes_global_names_selects_all_who_reach_it() -> None:
    change = changed("shop/cart.py", a_print(add="1"), a_print(writers=["add"], add="2"))
    assert asked(change, mapped({SLOW: in_cart("add")}))[:2] == ({SLOW}, {SLOW, CART})


def test_a_shell_selects_all_who_reach_the_file() -> None:
    change = changed("shop/cart.py", a_print("1"), a_print("2"))
    assert asked(change, mapped({SLOW: in_cart("add")}))[:2] == ({SLOW}, {SLOW, CART})


def test_the_same_fingerprint_selects_no_test() -> None:
    assert asked(changed("shop/cart.py", a_print(add="1"), a_print(add="1")), mapped({CART: in_cart("add")}))[2] == []


def test_a_file_that_does_not_parse_counts_as_changed_all_over_and_says_so() -> None:
    _, every, found = asked(
        changed("shop/cart.py", a_print(), FileFingerprint(error="does not parse: x, line 2")), mapped({})
    )
    assert every == {CART}
    assert "does not parse" in join_reasons(impact.because for impact in found)


def test_a_file_without_a_known_past_counts_as_changed_all_over() -> None:
    assert asked(changed("shop/cart.py", None, a_print()), mapped({}))[1] == {CART}


def test_the_shell_of_a_file_without_tests_runs_what_it_may_hold_now() -> None:
    test_map = mapped({}, {"file:tests/test_none.py": Dependencies(imports=frozenset({"tests/test_none.py"}))})
    _, _, found = asked(changed("tests/test_none.py", a_print("1"), a_print("2")), test_map)
    assert [impact.whole for impact in found] == ["tests/test_none.py"]


def test_a_conftest_selects_the_tests_below_it() -> None:
    _, every, found = asked(changed("tests/web/conftest.py", a_print("1"), a_print("2")), mapped({}))
    assert every == {PAGE}
    assert any(impact.collects_all for impact in found)


def test_a_new_conftest_selects_everything() -> None:
    assert asked(new("tests/web/conftest.py"), mapped({}))[1] == {CART, PAGE, SLOW}


def test_a_new_module_selects_those_who_looked_for_it() -> None:
    first, every, found = asked(
        new("shop/speedup.py"), mapped({SLOW: Dependencies(missing=frozenset({"shop.speedup"}))})
    )
    assert (first, every) == ({SLOW}, {SLOW})
    assert any(impact.whole == "shop/speedup.py" for impact in found)


def test_a_new_module_with_the_name_of_another_selects_everything() -> None:
    assert asked(new("json.py"), mapped({}))[1] == {CART, PAGE, SLOW}


def test_a_module_that_goes_selects_all_who_entered_or_reach_it() -> None:
    assert asked(gone("shop/cart.py"), mapped({SLOW: in_cart("add")}))[:2] == ({SLOW}, {SLOW, CART})


def test_data_selects_those_who_read_it() -> None:
    test_map = mapped(
        {PAGE: Dependencies(files=frozenset({"data.txt"})), SLOW: Dependencies(probes=frozenset({"data.txt"}))}
    )
    assert asked(changed("data.txt"), test_map)[:2] == ({PAGE}, {PAGE, SLOW})


def test_a_file_that_comes_selects_those_who_listed_its_folder_or_asked_for_it() -> None:
    test_map = mapped(
        {PAGE: Dependencies(folders=frozenset({"data"})), SLOW: Dependencies(probes=frozenset({"data/x"}))}
    )
    assert asked(new("data/x", "data"), test_map)[0] == {PAGE, SLOW}
    assert asked(gone("data/x", "data"), test_map)[0] == {PAGE, SLOW}
    assert asked(changed("data/x"), test_map)[0] == set()


def test_settings_select_everything() -> None:
    assert asked(changed("pyproject.toml"), mapped({}))[1] == {CART, PAGE, SLOW}


def test_a_link_that_leads_elsewhere_selects_everything_behind() -> None:
    first, every, found = asked(replace(changed("data/current"), is_link=True), mapped({}))
    assert (first, every) == (set(), {CART, PAGE, SLOW})
    assert found[0].because == "data/current is a symlink that changed"


def test_a_file_that_a_library_may_keep_selects_behind_all_who_use_the_library_like_that() -> None:
    kept = Dependencies(files=frozenset({"page.html"}))
    reader = Dependencies(files=frozenset({"page.html"}), uses=frozenset({"library:pages"}))
    test_map = mapped({PAGE: reader, CART: Dependencies(uses=frozenset({"library:pages"}))}, {"library:pages": kept})
    first, every, found = asked(changed("page.html"), test_map)
    assert (first, every) == ({PAGE}, {PAGE, CART})
    assert found[-1].because == "page.html changed, and tests read it, through pages, which may have cached it"


def test_an_opaque_test_runs_for_whatever_is_no_text() -> None:
    test_map = mapped({SLOW: Dependencies(opaque=frozenset({"starts make"}))})
    assert asked(changed("Makefile"), test_map)[:2] == (set(), {SLOW})
    assert asked(changed("README.md"), test_map)[2] == []


def test_who_uses_an_opaque_fixture_is_opaque() -> None:
    scopes = {"fixture:x": Dependencies(opaque=frozenset({"starts a server"}))}
    assert asked(changed("Makefile"), mapped({PAGE: Dependencies(uses=frozenset({"fixture:x"}))}, scopes))[1] == {PAGE}


def test_who_reaches_an_opaque_module_is_opaque() -> None:
    scopes = {"import:shop/cart.py": Dependencies(opaque=frozenset({"starts make"}))}
    assert asked(changed("Makefile"), mapped({}, scopes))[1] == {CART}


def test_a_pattern_of_the_user_selects_the_tests_it_names() -> None:
    pattern = ("templates/** -> tests/web", lambda path: path.startswith("templates/"), "tests/web")
    first, _, found = asked(changed("templates/a.html"), mapped({}), patterns=(pattern,))
    assert first == {PAGE}
    assert "templates/** -> tests/web" in join_reasons(impact.because for impact in found)


def test_a_path_that_no_test_touches_selects_no_test() -> None:
    assert asked(changed("notes.txt"), mapped({}))[2] == []


def test_by_file_a_changed_function_is_a_changed_file() -> None:
    test_map = mapped({SLOW: in_cart("drop")})
    context = ImpactContext(test_map, lambda _: test_map.of([CART]), lambda _: [], frozenset(), frozenset())
    every = 0
    for impact in find_impacts_by_file([BODY], context):
        every |= impact.first | impact.rest
    assert set(test_map.names(every)) == {CART, SLOW}


def test_by_file_those_who_listed_a_folder_or_asked_for_a_path_are_not_forgotten() -> None:
    test_map = mapped(
        {PAGE: Dependencies(folders=frozenset({"data"})), SLOW: Dependencies(probes=frozenset({"data/x"}))}
    )
    context = ImpactContext(test_map, lambda _: 0, lambda _: [], frozenset(), frozenset())
    found = [impact.first for impact in find_impacts_by_file([new("data/x", "data")], context)]
    assert {name for mask in found for name in test_map.names(mask)} == {PAGE, SLOW}


def test_reasons_beyond_the_third_are_counted() -> None:
    words = join_reasons(f"because {number}" for number in (1, 2, 2, 3, 4, 5))
    assert words == "because 1; because 2; because 3; and 2 more"


def test_the_agent_knows_the_same_settings_files() -> None:
    """The agent cannot import the table; it also watches `setup.py`, which marks pytest's root folder."""
    assert {*prestart.SETTINGS} == SETTINGS | {"setup.py"}
