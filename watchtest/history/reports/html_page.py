"""The HTML report: one self-contained page of bounded size that loads nothing from the network.

Names and messages of tests are embedded as data, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from watchtest.core.model import Outcome
from watchtest.core.text import EXCERPT_LIMIT, clean
from watchtest.history.queries.flaky_tests import flaky_tests
from watchtest.history.queries.run_queries import PastRun, RunFilter, ids_of_tests, recent_runs
from watchtest.history.queries.test_history import IS_LAST_ATTEMPT
from watchtest.history.queries.test_names import lineages
from watchtest.history.queries.trends import trend
from watchtest.history.store.columns import OUTCOMES, RED_CODES
from watchtest.history.store.database import Connection
from watchtest.history.store.failure_texts import unpack_failure
from watchtest.history.store.pack import PackReader

JsonObject = dict[str, object]

MOST_TESTS = 5_000
MOST_FAILURES = 1_000
LETTERS = dict(zip(Outcome, ".FEsxX", strict=True))
ASSETS = Path(__file__).with_name("assets")

# These characters occur only within JSON strings, where an escape sequence is equivalent.
_HARMFUL = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def page_data(connection: Connection, runs: RunFilter, name: str, now: float, limit: int) -> JsonObject:
    """Return everything that the page shows about the latest of the runs, ready to be encoded as JSON."""
    shown = recent_runs(connection, runs, limit=limit)[::-1]
    position = {run.number: index for index, run in enumerate(shown)}
    tests, index_of = _tests(connection, shown)
    flaky = flaky_tests(connection, replace(runs, since=None), now)
    buckets = trend(connection, runs, "day")[-120:]
    return {
        "name": clean(name),
        "made_at": now,
        "runs": [_run(run) for run in shown],
        "tests": tests,
        "failures": _failures(connection, replace(runs, since=None), position, index_of),
        "flaky": {clean(test.identity): test.standing.value for test in flaky},
        "trend": [[each.name, each.runs, each.green, each.tests, round(each.red, 2), each.run_s] for each in buckets],
    }


def _run(run: PastRun) -> JsonObject:
    return {
        "id": clean(run.id),
        "at": run.queued_at,
        "lane": run.lane.value,
        "by": "import" if run.imported_from is not None else run.trigger.value,
        "state": run.state.value,
        "reason": clean(run.reason)[:500],
        "took": run.duration_s,
        "all": run.selected is None,
        "because": clean(run.because)[:500],
        "tree": run.tree,
        "branch": clean(run.branch or ""),
        "counts": {outcome.value: count for outcome, count in run.counts.items()},
    }


def _tests(connection: Connection, runs: tuple[PastRun, ...]) -> tuple[list[JsonObject], dict[int, int]]:
    """Return the tests with their runs, outcomes and durations, and the index of each test by its number."""
    packs, lineage_of = PackReader(connection), lineages(connection)
    results: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    latest: dict[int, int] = {}
    for index, run in enumerate(runs):
        for test, code, spent in packs.results(run.number):
            lineage = lineage_of.get(test, test)
            latest[lineage] = test
            results[lineage].append((index, code, spent))
    red = {lineage: sum(code in RED_CODES for _, code, _ in each) for lineage, each in results.items()}
    kept = sorted(results, key=lambda lineage: (-red[lineage], lineage))[:MOST_TESTS]
    names = ids_of_tests(connection, [latest[lineage] for lineage in kept])
    # A test that one of these runs was the first to miss is gone.
    shown = {run.number for run in runs}
    rows = connection.execute("SELECT number, gone FROM tests WHERE gone IS NOT NULL").fetchall()
    gone = {row["number"] for row in rows if row["gone"] in shown}
    tests: list[JsonObject] = [
        {
            "id": clean(names[latest[lineage]]),
            "runs": [index for index, _, _ in results[lineage]],
            "outcomes": "".join(LETTERS[OUTCOMES[code]] for _, code, _ in results[lineage]),
            "ms": [round(spent / 1000, 1) for _, _, spent in results[lineage]],
            "median": round(median(spent for _, _, spent in results[lineage]) / 1000, 1),
            "red": red[lineage],
            "gone": latest[lineage] in gone,
        }
        for lineage in kept
    ]
    index_of = {lineage: index for index, lineage in enumerate(kept)}
    index_of |= {number: index_of[lineage] for number, lineage in lineage_of.items() if lineage in index_of}
    return tests, index_of


def _failures(
    connection: Connection, runs: RunFilter, position: Mapping[int, int], index_of: Mapping[int, int]
) -> list[list[object]]:
    """Return the failures, newest first: run, test, signature, location, text."""
    if not position:
        return []
    where, values = runs.sql()
    rows = connection.execute(
        f"""
        SELECT failures.run, test, signatures.text AS signature, document FROM failures
        JOIN runs ON runs.number = failures.run JOIN contents ON contents.number = content
        JOIN signatures ON signatures.number = signature
        WHERE failures.run >= ? AND {IS_LAST_ATTEMPT} AND {where} ORDER BY failures.run DESC LIMIT ?
        """,
        (min(position), *values, 4 * MOST_FAILURES),
    )
    found: list[list[object]] = []
    for row in rows:
        if row["run"] not in position or row["test"] not in index_of or len(found) >= MOST_FAILURES:
            continue
        failure = unpack_failure(row["document"])
        location = f"{failure.where.file}:{failure.where.line}" if failure.where is not None else ""
        text = clean(failure.text or failure.message)[-EXCERPT_LIMIT:]
        output = clean(failure.output)[-EXCERPT_LIMIT:]
        text = f"{text}\n\n{output}" if output else text
        found.append([position[row["run"]], index_of[row["test"]], clean(row["signature"]), clean(location), text])
    return found


def page(data: Mapping[str, object]) -> str:
    """Return the HTML page. Its content security policy names the digest of our script, so no other one can run."""
    style, script = ((ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"{data['name']} · watchtest"),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": embedded(data),
    }
    text = (ASSETS / "page.html").read_text(encoding="utf-8")
    # A single pass, so that placeholders in the inserted text are left alone.
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], text)


def embedded(data: object) -> str:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).translate(_HARMFUL)
    return text.encode("utf-8", "replace").decode("utf-8")
