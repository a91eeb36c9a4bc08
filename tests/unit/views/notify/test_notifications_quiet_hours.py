"""Quiet hours, by the minute and across midnight."""

from __future__ import annotations

import time

import pytest

from watchtest.views.notify.notifications import QuietHours


@pytest.mark.parametrize(
    ("hours", "quiet", "loud"),
    [
        ("22:00-07:00", ["22:00", "23:59", "00:00", "06:59"], ["21:59", "07:00", "12:00"]),
        ("12:30-13:15", ["12:30", "13:14"], ["12:29", "13:15", "00:00"]),
        ("00:00-23:59", ["00:00", "23:58"], ["23:59"]),
        ("", [], ["00:00", "12:00", "23:59"]),
    ],
)
def test_quiet_hours_hold_from_their_first_minute_to_before_their_last(
    hours: str, quiet: list[str], loud: list[str]
) -> None:
    read = QuietHours.parse(hours)
    assert [at for at in (*quiet, *loud) if read.contains(time.strptime(at, "%H:%M"))] == quiet
