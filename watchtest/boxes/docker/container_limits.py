"""The limits of a container: memory, processors and processes, as set by the user or derived from the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

AUTO: Literal["auto"] = "auto"
UNITS = "kmg"
MEBIBYTE = 1024 * 1024
MEMORY_SHARE = 0.75
PROCESSES, PROCESSES_PER_CPU, MOST_PROCESSES = 512, 128, 4096
"""Threads count as processes. Measured: pytest with as many xdist workers as processors stays far below."""


@dataclass(frozen=True, slots=True)
class EnforcedLimits:
    """The limits of a container in numbers; 0 means no limit. Memory is in bytes."""

    memory: int
    cpus: float
    pids: int


@dataclass(frozen=True, slots=True)
class ConfiguredLimits:
    """The limits from the settings. "auto" is derived from the machine of the engine; 0 and "" mean no limit."""

    memory: str = AUTO
    cpus: float | Literal["auto"] = AUTO
    pids: int | Literal["auto"] = AUTO

    def on_engine(self, info: Mapping[str, Any]) -> EnforcedLimits:
        """Return the limits for a container on the engine that describes itself by `info`.

        A derived limit that the engine would ignore is left out; an explicit one is always passed to it.
        """
        ignored = ignored_limits(info)
        cpus, memory = _whole(info.get("NCPU")), _whole(info.get("MemTotal"))
        derived = {"memory": _memory_of(memory), "cpus": _cpus_of(cpus), "pids": _pids_of(cpus)}

        def auto(name: str) -> float:
            return 0 if name in ignored else derived[name]

        return EnforcedLimits(
            memory=int(auto("memory")) if self.memory == AUTO else _bytes(self.memory),
            cpus=auto("cpus") if self.cpus == AUTO else float(self.cpus),
            pids=int(auto("pids")) if self.pids == AUTO else int(self.pids),
        )


def ignored_limits(info: Mapping[str, Any]) -> frozenset[str]:
    """Return the limits that the engine accepts but does not enforce."""
    if info.get("CgroupDriver") == "none" or (is_rootless(info) and str(info.get("CgroupVersion") or 1) == "1"):
        return frozenset({"memory", "cpus", "pids"})
    keys = {"memory": "MemoryLimit", "cpus": "CpuCfsQuota", "pids": "PidsLimit"}
    return frozenset(name for name, key in keys.items() if info.get(key) is False)


def is_rootless(info: Mapping[str, Any]) -> bool:
    return bool(info.get("Rootless")) or "rootless" in str(info.get("SecurityOptions") or ())


def _memory_of(total: int) -> int:
    """Leave a quarter of the memory to the machine."""
    return int(total * MEMORY_SHARE) // MEBIBYTE * MEBIBYTE


def _cpus_of(count: int) -> float:
    """Leave a part of the processors to the machine, so that it stays usable whatever the tests do."""
    if count <= 1:
        return 0.0
    return count - (0.5 if count < 4 else 1.0)


def _pids_of(cpus: int) -> int:
    return min(PROCESSES + PROCESSES_PER_CPU * max(1, cpus), MOST_PROCESSES)


def _bytes(size: str) -> int:
    return int(size[:-1]) << 10 * (UNITS.index(size[-1].lower()) + 1) if size else 0


def _whole(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
