"""Real toolchains are asked which tests a change can affect: the answer includes everything that the change breaks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.needs import must_be_marked
from support.node_packages import link_packages
from support.order_executor import asking, carry_out
from support.samples import SAMPLES, marked, tool_of

from watchtest.core.model import Execution, Only
from watchtest.core.verdict import file_of
from watchtest.runners.cargo.cargo_runner import CargoRunner
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.javascript.javascript_runner import JestRunner, VitestRunner
from watchtest.runners.runner import Change, Runner, Undecidable

MORE = {
    "go": {
        "web/web.go": """\
package web

import (
	_ "embed"

	"example.com/shop/internal/stock"
)

//go:embed static/title.txt
var Title string

func Count(name string) int {
	s := stock.New()
	s.Add(name)
	return s[name]
}
""",
        "web/web_test.go": """\
package web_test

import (
	"os"
	"testing"

	"example.com/shop/web"
)

func TestWeb(t *testing.T) {
	data, err := os.ReadFile("testdata/name")
	if err != nil || web.Title != "shop\\n" || web.Count(string(data)) != 1 || len(data) != 4 {
		t.Fatal(err, web.Title, string(data))
	}
}
""",
        "web/static/title.txt": "shop\n",
        "web/testdata/name": "pear",
    },
    "rust": {
        "cli/Cargo.toml": '[package]\nname = "cli"\nversion = "0.1.0"\nedition = "2021"\n\n'
        '[dependencies]\ntax = { path = "../tax" }\n',
        "cli/src/main.rs": "fn main() {}\n\n#[test]\nfn taxed() {\n    assert_eq!(tax::with_tax(5), 6);\n}\n",
    },
    "jest": {
        "src/b/stock.js": "exports.empty = () => ({})\n",
        "src/b/stock.test.js": "const { empty } = require('./stock')\n"
        "test('empty', () => { expect(empty()).toEqual({}) })\n",
        "jest.config.js": "module.exports = { setupFiles: ['./src/setup.js'] }\n",
        "src/setup.js": "require('./words')\n",
        "src/words.js": "global.word = 'a'\n",
    },
    "vitest": {
        "src/b/stock.ts": "export const empty = () => ({})\n",
        "src/b/stock.test.ts": "import { expect, test } from 'vitest'\nimport { empty } from './stock'\n"
        "test('empty', () => { expect(empty()).toEqual({}) })\n",
        "vitest.config.ts": "import { plugins } from './plugins'\n"
        "export default { plugins, test: { setupFiles: ['./src/setup.ts'] } }\n",
        "src/b/text.test.ts": "import { expect, test } from 'vitest'\nimport text from '../price.ts?raw'\n"
        "test('text', () => { expect(text).toContain('total') })\n",
        "plugins.ts": "export const plugins = []\n",
        "src/setup.ts": "import './words'\n",
        "src/words.ts": "globalThis.word = 'a'\n",
    },
}
RUNNERS: dict[str, Runner] = {"go": GoRunner(), "rust": CargoRunner(), "jest": JestRunner(), "vitest": VitestRunner()}

Sample = Callable[[str], Path]


@pytest.fixture
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Sample:
    """A copy of a sample, with an additional part that depends on another, in a workspace with a space in its name."""

    def copy(name: str) -> Path:
        tool = tool_of(name)
        must_be_marked(request, tool)
        workspace = tmp_path / "work space"
        shutil.copytree(SAMPLES / name, workspace)
        for path, text in MORE[name].items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_text(text, encoding="utf-8")
        if name == "rust":
            manifest = workspace / "Cargo.toml"
            manifest.write_text(manifest.read_text().replace('["tax"]', '["tax", "cli"]'))
        if tool == "npm":
            link_packages(SAMPLES / name, workspace)
        return workspace

    return copy


def narrowed(name: str, workspace: Path, known: Execution, *changed: str, new: tuple[str, ...] = ()) -> Only:
    tests = frozenset(known.results)
    change = Change(frozenset(changed), frozenset(new), frozenset(), tests, str(workspace))
    return asyncio.run(RUNNERS[name].narrow(change, asking(workspace)))


def outcomes(execution: Execution) -> dict[str, str]:
    return {test: result.outcome.value for test, result in execution.results.items()}


FIRST_OF_EACH = frozenset(RUNNERS)
MUTATIONS = [
    ("go", "internal/stock/stock.go", "stock[name]++", "stock[name] += 2", {"internal/stock", "web"}),
    ("go", "web/static/title.txt", "shop", "shops", {"web"}),
    ("go", "web/testdata/name", "pear", "", {"web"}),
    ("go", "price_test.go", "!= 6", "!= 7", {"."}),
    ("rust", "tax/src/lib.rs", "price / 5", "price / 2", {"tax/lib", "tax/doc", "cli/bin/cli"}),
    ("jest", "src/price.js", "thing.price *", "thing.price + ", {"src/price.test.js"}),
    ("vitest", "src/b/stock.ts", "({})", "1", {"src/b/stock.test.ts"}),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "expected"), marked(MUTATIONS, FIRST_OF_EACH))
def test_all_that_a_change_breaks_is_in_the_answer_and_runs_by_it(
    sample: Sample, name: str, file: str, old: str, new: str, expected: set[str]
) -> None:
    workspace = sample(name)
    before = carry_out(RUNNERS[name], workspace)
    text = (workspace / file).read_text(encoding="utf-8")
    assert old in text
    (workspace / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    selection = narrowed(name, workspace, before, file)
    assert set(selection.tests) == expected
    selected = outcomes(carry_out(RUNNERS[name], workspace, selection.tests))
    after = outcomes(carry_out(RUNNERS[name], workspace))
    broken = {test for test, outcome in after.items() if outcome != outcomes(before).get(test)}
    assert broken
    assert {file_of(test) for test in broken} <= expected
    assert {test: selected[test] for test in broken} == {test: after[test] for test in broken}


NEW = [
    ("go", "extra/extra_test.go", 'package extra\n\nimport "testing"\n\nfunc TestMore(t *testing.T) {}\n', "extra"),
    ("rust", "tests/more.rs", "#[test]\nfn more() {}\n", "shop/test/more"),
    ("jest", "src/more.test.js", "test('more', () => {})\n", "src/more.test.js"),
    ("vitest", "src/more.test.ts", "import { test } from 'vitest'\ntest('more', () => {})\n", "src/more.test.ts"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "file", "text", "expected"), marked(NEW), ids=[name for name, *_ in NEW])
def test_a_new_file_of_tests_is_in_the_answer(sample: Sample, name: str, file: str, text: str, expected: str) -> None:
    workspace = sample(name)
    (workspace / file).parent.mkdir(exist_ok=True)
    (workspace / file).write_text(text)
    nothing = Execution(0, frozenset(), {})
    selection = narrowed(name, workspace, nothing, new=(file,))
    assert expected in selection.tests
    assert expected in {file_of(test) for test in carry_out(RUNNERS[name], workspace, selection.tests).results}


@pytest.mark.parametrize(
    ("name", "file"),
    marked(
        [
            ("jest", "src/words.js"),
            ("vitest", "src/words.ts"),
            ("vitest", "plugins.ts"),
            ("vitest", "src/price.ts"),
        ],
        FIRST_OF_EACH,
    ),
)
def test_what_every_test_needs_without_importing_it_concerns_all(sample: Sample, name: str, file: str) -> None:
    workspace = sample(name)
    try:
        selected = set(narrowed(name, workspace, Execution(0, frozenset(), {}), file).tests)
    except Undecidable:
        return
    assert selected == {file_of(test) for test in carry_out(RUNNERS[name], workspace).results}


@pytest.mark.parametrize(
    ("name", "file"),
    marked([("go", "price.go"), ("rust", "Cargo.toml"), ("jest", "jest.config.js"), ("vitest", "src/price.test.ts")]),
)
def test_a_broken_project_makes_everything_run(sample: Sample, name: str, file: str) -> None:
    workspace = sample(name)
    (workspace / file).write_text("((((")
    other = {"go": "web/web.go", "rust": "tax/src/lib.rs", "jest": "src/price.js", "vitest": "src/price.ts"}[name]
    with pytest.raises(Undecidable):
        narrowed(name, workspace, Execution(0, frozenset(), {}), other)
