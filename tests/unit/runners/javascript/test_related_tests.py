"""Which JavaScript tests a change can affect: the queries to Jest and Vitest, and how their answers are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from support import TESTS
from support.recorded_answers import ROOT, Answers, changed, narrowed

from watchtest.runners.javascript.javascript_runner import JestRunner, VitestRunner
from watchtest.runners.runner import Change, Invocation, InvocationEnd, Undecidable

CONFIG = json.loads((TESTS / "support" / "recorded" / "jest_config_30.json").read_text(encoding="utf-8"))
"""With src/setup.js among its setupFiles."""
KNOWN = ("src/price.test.js::total > is a product", "src/b/b.test.js::b")
RELATED = {"src/price.js": ["src/price.test.js"], "src/b/b.test.js": ["src/b/b.test.js"]}


def jest(
    related: dict[str, list[str]], config: Any = CONFIG, needed_by_setup: tuple[str, ...] = ()
) -> Callable[[Invocation], InvocationEnd]:
    """Return a function that answers as Jest in a box would."""

    def answer(invocation: Invocation) -> InvocationEnd:
        words = invocation.argv
        if "--showConfig" in words:
            return InvocationEnd(0, report=json.dumps(config).encode())
        files = words[words.index("--findRelatedTests") + 1 :]
        if any(word.startswith("--testMatch=") for word in words):
            assert f"--testMatch={ROOT}/src/setup.js" in words
            found = ["src/setup.js"] if set(files) & {*needed_by_setup, "src/setup.js"} else []
        else:
            found = [test for file in files for test in related.get(file, ())]
        return InvocationEnd(0, report=json.dumps([f"{ROOT}/{file}" for file in found]).encode())

    return answer


def vitest(related: dict[str, list[str]]) -> Callable[[Invocation], InvocationEnd]:
    return lambda _invocation: InvocationEnd(
        0, report=json.dumps({file: [f"{ROOT}/{test}" for test in tests] for file, tests in related.items()}).encode()
    )


def test_jest_is_asked_who_imports_a_source() -> None:
    selection = narrowed(JestRunner(), changed("src/price.js", known=KNOWN), jest(RELATED))
    assert (selection.tests, selection.is_proof) == (("src/price.test.js",), True)
    assert selection.because == "src/price.js is imported"
    two = narrowed(JestRunner(), changed("src/price.js", new=["src/b/b.test.js"], known=KNOWN), jest(RELATED))
    assert two.tests == ("src/b/b.test.js", "src/price.test.js")
    assert "src/b/b.test.js is a test" in two.because


def test_vitest_is_asked_who_imports_a_source() -> None:
    selection = narrowed(
        VitestRunner(), changed("src/price.js", known=KNOWN), vitest({"src/price.js": ["src/a.test.js"]})
    )
    assert (selection.tests, selection.is_proof) == (("src/a.test.js",), True)


@pytest.mark.parametrize("runner", [JestRunner(), VitestRunner()], ids=["jest", "vitest"])
def test_a_text_affects_no_test_and_a_snapshot_its_own(runner: JestRunner | VitestRunner) -> None:
    def nobody(invocation: Invocation) -> InvocationEnd:
        raise AssertionError(invocation)

    change = changed("README.md", "src/__snapshots__/price.test.js.snap", removed=["docs/a.md"], known=KNOWN)
    assert narrowed(runner, change, nobody).tests == ("src/price.test.js",)


@pytest.mark.parametrize("runner", [JestRunner(), VitestRunner()], ids=["jest", "vitest"])
@pytest.mark.parametrize(
    "change",
    [
        changed("package.json"),
        changed("package-lock.json"),
        changed("tsconfig.json"),
        changed("src/fixtures/a.json"),
        changed("src/style.css"),
        changed("tools/make.py"),
        changed("jest.config.js"),
        changed("vitest.config.mts"),
        changed("vite.config.ts"),
        changed(".babelrc.js"),
        changed("src/__mocks__/fs.js"),
        changed("src/__snapshots__/other.test.js.snap"),
        changed("elsewhere/a.snap"),
        changed(removed=["src/price.js"]),
        changed(*(f"src/{number}.js" for number in range(11))),
        changed("src/price.js"),
    ],
)
def test_what_imports_do_not_tell_makes_everything_run(runner: JestRunner | VitestRunner, change: Change) -> None:
    """The last case: a test may read a source that no test imports."""
    answer = jest({}) if isinstance(runner, JestRunner) else vitest({path: [] for path in change.changed})
    with pytest.raises(Undecidable):
        narrowed(runner, change, answer)


def test_what_setup_files_of_jest_import_concerns_every_test() -> None:
    for path in ("src/setup.js", "src/price.js"):
        with pytest.raises(Undecidable, match="every test"):
            narrowed(JestRunner(), changed(path), jest(RELATED, needed_by_setup=("src/price.js",)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("roots", [f"{ROOT}/lib"]),
        ("moduleFileExtensions", ["ts"]),
        ("modulePathIgnorePatterns", ["/src/"]),
        ("modulePathIgnorePatterns", ["(?<"]),
        ("roots", None),
    ],
)
def test_what_jest_does_not_look_at_makes_everything_run(key: str, value: object) -> None:
    config = {**CONFIG, "configs": [{**CONFIG["configs"][0], key: value}]}
    with pytest.raises(Undecidable):
        narrowed(JestRunner(), changed("src/price.js"), jest(RELATED, config))


def test_a_package_in_a_folder_is_asked_from_there() -> None:
    answers = Answers(vitest({"src/a.ts": ["web/src/a.test.ts"]}))
    change = changed("web/src/a.ts", known=["web/src/a.test.ts::a"])
    selection = asyncio.run(VitestRunner(folder="web", args=("--project", "x")).narrow(change, answers))
    assert selection.tests == ("web/src/a.test.ts",)
    [invocation] = answers.invocations
    assert invocation.folder == "web"
    assert invocation.argv[-4:] == ("1", "src/a.ts", "--project", "x")
    with pytest.raises(Undecidable, match="outside of web/"):
        narrowed(VitestRunner(folder="web"), changed("lib/a.ts"), answers.answer)


@pytest.mark.parametrize(
    "end",
    [
        InvocationEnd(1, output="SyntaxError"),
        InvocationEnd(127, output="vitest is not in node_modules"),
        InvocationEnd(None, stopped="cancelled"),
        InvocationEnd(0),
        InvocationEnd(0, report=b"no"),
        InvocationEnd(0, report=b"[]"),
        InvocationEnd(0, report=b'{"src/other.js": []}'),
        InvocationEnd(0, report=b'{"src/price.js": "src/price.test.js"}'),
        InvocationEnd(0, report=b'{"src/price.js": ["/elsewhere/price.test.js"]}'),
    ],
)
def test_a_tool_that_does_not_tell_makes_everything_run(end: InvocationEnd) -> None:
    for runner in (VitestRunner(), JestRunner()):
        with pytest.raises(Undecidable):
            narrowed(runner, changed("src/price.js"), lambda _invocation: end)
