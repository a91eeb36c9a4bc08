"""Reports on services from the box are accepted only if their shape is valid and their size is bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from watchtest.boxes.services import reports_of
from watchtest.core.model import ServiceInfo
from watchtest.errors import ChannelLost

GOOD = {"name": "kv", "key": "k", "state": "ready", "since": 12.5, "restarts": 1, "reason": "", "tail": ["a"]}


def told(**said: Any) -> bytes:
    return json.dumps(said).encode()


def test_a_report_is_taken_over() -> None:
    reports = reports_of(told(services=[GOOD], did={"kv": "started"}))
    assert reports.infos == (ServiceInfo("kv", "ready", 12.5, 1, ""),)
    assert (reports.services["kv"].key, reports.services["kv"].tail) == ("k", ("a",))
    assert reports.did == {"kv": "started"}
    assert not reports.is_lost


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"[]",
        b"{}",
        b'{"services": {}}',
        told(services=[3]),
        told(services=[GOOD | {"state": "great"}]),
        told(services=[GOOD | {"name": 3}]),
        told(services=[GOOD | {"restarts": "1"}]),
    ],
)
def test_what_is_no_report_ends_the_trust_in_the_channel(body: bytes) -> None:
    with pytest.raises(ChannelLost):
        reports_of(body)


def test_sizes_are_bounded() -> None:
    row = GOOD | {"reason": "x" * 10_000, "tail": ["y" * 1_000] * 20, "since": 1e300}
    rows = [row | {"name": f"{number}"} for number in range(300)]
    reports = reports_of(told(services=rows))
    assert len(reports.infos) == 200
    one = reports.services["0"]
    assert (len(one.info.reason), len(one.tail), len(one.tail[0]), one.info.since) == (500, 15, 500, 0.0)
