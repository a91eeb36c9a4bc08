"""Services as users and editors see them, also while nothing runs."""

from __future__ import annotations

import json

import jsonschema
from support.view_output import lines, of, screen
from support.watcher_states import LOST, NOON, Story, passed

from watchtest.core.events import BoxLost, ServicesChanged
from watchtest.core.model import Lane, ServiceInfo
from watchtest.views.schemas import status_schema
from watchtest.views.status.status_words import block

READY = ServiceInfo("kv", "ready", NOON)
FAILED = ServiceInfo("kv", "failed", NOON, 5, "exited with code 3 before it was ready")


def idle_with(*services: ServiceInfo) -> Story:
    story = Story().box().run("t1", passed("a.py::test_a"))
    return story.on(ServicesChanged(Lane.SAVE, story.now, services))


def test_each_change_of_a_state_is_a_line() -> None:
    story = Story()
    for state, restarts, reason in (
        ("starting", 0, ""),
        ("starting", 0, ""),
        ("backoff", 0, "exited with code 3 before it was ready"),
        ("starting", 1, ""),
        ("ready", 1, ""),
    ):
        other = ServiceInfo("web", "ready", NOON)
        story.on(ServicesChanged(Lane.SAVE, NOON, (ServiceInfo("kv", state, NOON, restarts, reason), other)))
    assert lines(story) == [
        "service kv: starting",
        "service web: ready",
        "service kv: backoff: exited with code 3 before it was ready",
        "service kv: starting, 1 restart",
        "service kv: ready, 1 restart",
    ]


def test_text_out_of_the_box_cannot_steer_a_terminal() -> None:
    story = Story().on(ServicesChanged(Lane.SAVE, NOON, (ServiceInfo("kv", "failed", NOON, 0, "a\x1b[31m\nb"),)))
    assert all(line.isprintable() for line in lines(story))


def test_the_dashboard_has_a_row_of_services() -> None:
    rows = screen(idle_with(READY, ServiceInfo("web", "backoff", NOON, 1, "exited")).state, 80, 24, NOON)
    assert " serv kv ready · web backoff: exited" in rows
    assert not any(row.startswith(" serv") for row in screen(idle_with().state, 80, 24, NOON))


def test_the_status_file_lists_services() -> None:
    written = of(idle_with(READY, FAILED).state)
    assert written["box"]["services"] == [
        {"name": "kv", "state": "ready", "since": "2023-11-14T22:13:20.000Z", "restarts": 0, "reason": None},
        {
            "name": "kv",
            "state": "failed",
            "since": "2023-11-14T22:13:20.000Z",
            "restarts": 5,
            "reason": "exited with code 3 before it was ready",
        },
    ]
    jsonschema.Draft202012Validator(status_schema()).validate(json.loads(json.dumps(written)))
    assert "  services: kv ready · kv failed" in block(written, "", NOON, has_colour=False).splitlines()


def test_a_service_that_failed_while_nothing_ran_is_a_problem_but_no_verdict() -> None:
    written = of(idle_with(FAILED).state)
    assert written["problem"]["code"] == "service"
    assert written["problem"]["message"] == "service kv failed: exited with code 3 before it was ready"
    assert "watchtest logs kv" in written["problem"]["hint"]
    assert (written["activity"], written["verdict"]) == ("idle", "passed")
    assert of(idle_with(READY).state)["problem"] is None


def test_nothing_is_said_of_services_in_a_box_that_is_lost() -> None:
    story = idle_with(READY)
    story.on(BoxLost(Lane.SAVE, story.now, LOST))
    assert of(story.state)["box"]["services"] == []
