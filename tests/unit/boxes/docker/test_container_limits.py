"""The limits of a container, derived from the machine of its engine."""

from __future__ import annotations

import pytest

from watchtest.boxes.docker.container_limits import ConfiguredLimits, EnforcedLimits

GIB = 1024**3


@pytest.mark.parametrize(
    ("cpus", "limits"),
    [
        (1, EnforcedLimits(12 * GIB, 0, 640)),
        (2, EnforcedLimits(12 * GIB, 1.5, 768)),
        (8, EnforcedLimits(12 * GIB, 7, 1536)),
        (128, EnforcedLimits(12 * GIB, 127, 4096)),
    ],
)
def test_the_limits_leave_a_part_of_the_machine_alone(cpus: int, limits: EnforcedLimits) -> None:
    assert ConfiguredLimits().on_engine({"NCPU": cpus, "MemTotal": 16 * GIB}) == limits


def test_explicit_limits_and_no_limits_are_taken_as_they_are() -> None:
    info = {"NCPU": 8, "MemTotal": 16 * GIB}
    assert ConfiguredLimits("2k", 0.5, 99).on_engine(info) == EnforcedLimits(2048, 0.5, 99)
    assert ConfiguredLimits("3G", 0, 0).on_engine(info) == EnforcedLimits(3 * GIB, 0, 0)
    assert ConfiguredLimits("", 0, 0).on_engine(info) == EnforcedLimits(0, 0, 0)


def test_a_derived_limit_is_left_out_where_the_engine_would_ignore_it() -> None:
    info = {"NCPU": 2, "MemTotal": 16 * GIB, "MemoryLimit": False, "CpuCfsQuota": False}
    assert ConfiguredLimits().on_engine(info) == EnforcedLimits(0, 0, 768)
    assert ConfiguredLimits("1g", 1.0).on_engine(info) == EnforcedLimits(GIB, 1, 768)


def test_an_engine_that_does_not_describe_its_machine_still_limits_processes() -> None:
    assert ConfiguredLimits().on_engine({}) == EnforcedLimits(0, 0, 640)
