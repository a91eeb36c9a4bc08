"""What doctor reports about an engine and the limits it enforces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.fake_engine import fake_engine

from watchtest.boxes.docker.container_limits import ConfiguredLimits
from watchtest.boxes.docker.engine_check import Remark, examine, limits_of
from watchtest.boxes.docker.engines import find_engine

KEEPS = {"MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True, "CgroupVersion": "2", "CgroupDriver": "systemd"}


def remarks(tmp_path: Path, wanted: ConfiguredLimits, **info: Any) -> list[Remark]:
    with fake_engine(tmp_path / "engine.sock", info={**KEEPS, **info}) as host:
        engine = find_engine({"DOCKER_HOST": host})
        try:
            return examine(engine, wanted)
        finally:
            engine.close()


def test_an_engine_that_keeps_every_limit_has_no_warning(tmp_path: Path) -> None:
    found = remarks(tmp_path, ConfiguredLimits("512m", 1.5, 100), Driver="overlay2")

    assert not [remark for remark in found if remark.is_warning]
    assert [remark.text for remark in found][-2:] == [
        "not rootless, cgroup v2 (systemd), storage overlay2",
        "limits that it enforces: memory, cpus, pids",
    ]


@pytest.mark.parametrize(
    "info",
    [
        {"SecurityOptions": ["name=rootless"], "CgroupVersion": "1"},
        {"CgroupDriver": "none"},
        {"MemoryLimit": False, "CpuCfsQuota": False, "PidsLimit": False},
    ],
    ids=["rootless on cgroup v1", "no driver", "told"],
)
def test_limits_that_are_ignored_are_a_warning_when_they_are_wanted(tmp_path: Path, info: dict[str, Any]) -> None:
    found = remarks(tmp_path, ConfiguredLimits("", 0.0, 100), **info)

    assert [remark.text for remark in found if remark.is_warning] == ["box.pids has no effect here"]
    assert "box.memory would have no effect here" in [remark.text for remark in found]


@pytest.mark.parametrize(
    ("files", "limits"),
    [
        (
            {"memory.max": "536870912", "pids.max": "100", "cpu.max": "150000 100000"},
            {"memory": 536870912, "pids": 100, "cpus": 1.5},
        ),
        ({"memory.max": "max", "pids.max": "max", "cpu.max": "max 100000"}, {"memory": 0, "pids": 0, "cpus": 0}),
        (
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "pids/pids.max": "4096",
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
            },
            {"memory": 0, "pids": 4096, "cpus": 0},
        ),
        ({}, {}),
    ],
    ids=["version 2", "version 2 without", "version 1", "unreadable"],
)
def test_the_limits_of_a_control_group_are_read(files: dict[str, str], limits: dict[str, float]) -> None:
    assert limits_of(files) == limits
