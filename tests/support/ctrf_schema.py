"""The requirements of the CTRF specification (version 1.0.0) on a report, as a JSON Schema.

Only members that it names are allowed, except in `extra`. Parts that watchtest never writes (steps, attachments,
insights, a baseline) are left out, so a report containing them is rejected.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "minLength": 1}
WHOLE: Schema = {"type": "integer"}
EXTRA: Schema = {"type": "object"}
LINES: Schema = {"type": "array", "items": TEXT}
STATUS: Schema = {"enum": ["passed", "failed", "skipped", "pending", "other"]}


def strictly(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


TEST = strictly(
    ["name", "status", "duration"],
    testId=NAME,
    executionId=NAME,
    name=NAME,
    status=STATUS,
    duration=WHOLE,
    start=WHOLE,
    stop=WHOLE,
    suite={"type": "array", "minItems": 1, "items": TEXT},
    message=TEXT,
    trace=TEXT,
    snippet=TEXT,
    line=WHOLE,
    rawStatus=TEXT,
    tags=LINES,
    type=TEXT,
    filePath=TEXT,
    retries=WHOLE,
    flaky={"type": "boolean"},
    stdout=LINES,
    stderr=LINES,
    threadId=TEXT,
    extra=EXTRA,
)
COUNTS = ["tests", "passed", "failed", "skipped", "pending", "other", "start", "stop"]
SUMMARY = strictly(COUNTS, **dict.fromkeys([*COUNTS, "flaky", "suites", "duration"], WHOLE), extra=EXTRA)
WORDS = ["reportName", "appName", "appVersion", "buildId", "buildName", "buildUrl", "repositoryName", "repositoryUrl"]
PLACES = ["commit", "branchName", "osPlatform", "osRelease", "osVersion", "testEnvironment"]
CTRF: Schema = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    **strictly(
        ["results", "reportFormat", "specVersion"],
        reportFormat={"const": "CTRF"},
        specVersion={"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
        reportId={"type": "string", "format": "uuid", "minLength": 1},
        runId=NAME,
        timestamp={"type": "string", "format": "date-time"},
        generatedBy=TEXT,
        extra=EXTRA,
        results=strictly(
            ["tool", "summary", "tests"],
            tool=strictly(["name"], name=NAME, version=TEXT, extra=EXTRA),
            summary=SUMMARY,
            tests={"type": "array", "items": TEST},
            environment=strictly([], **dict.fromkeys([*WORDS, *PLACES], TEXT), buildNumber=WHOLE, extra=EXTRA),
            extra=EXTRA,
        ),
    ),
}
