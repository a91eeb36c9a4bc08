"""Check what an engine can do and which limits it enforces, by its own description and from inside a running box."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from docker.errors import ImageNotFound

from watchtest.boxes.docker.container_limits import ConfiguredLimits, ignored_limits, is_rootless
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine

GROUPS = "/sys/fs/cgroup"
FILES = ("memory.max", "memory/memory.limit_in_bytes", "pids.max", "pids/pids.max", "cpu.max")
QUOTA, PERIOD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"
NO_LIMIT = 1 << 60
"""cgroup v1 writes "no limit" as a huge number."""


@dataclass(frozen=True, slots=True)
class Remark:
    """A line about the engine for the user."""

    text: str
    is_warning: bool = False
    hint: str = ""


def examine(engine: Engine, configured: ConfiguredLimits) -> list[Remark]:
    """Describe the engine and warn about limits that it ignores."""
    with explained_api(engine.address.url):
        info = engine.client.info()
    groups = f"cgroup v{info.get('CgroupVersion') or 1} ({info.get('CgroupDriver') or 'no driver'})"
    storage = f"storage {info.get('Driver') or 'unknown'}"
    found = [Remark(str(engine))]
    found += [Remark(f"skipped: {reason}", is_warning=True) for reason in engine.skipped]
    found.append(Remark(f"{'rootless' if is_rootless(info) else 'not rootless'}, {groups}, {storage}"))
    ignored = ignored_limits(info)
    kept = [name for name in ("memory", "cpus", "pids") if name not in ignored]
    if kept:
        found.append(Remark(f"limits that it enforces: {', '.join(kept)}"))
    for name, value in asdict(configured).items():
        if name in ignored:
            effect = "has no effect" if value else "would have no effect"
            hint = "rootless engines enforce limits only with cgroup v2 and its controllers delegated to the user"
            found.append(Remark(f"box.{name} {effect} here", is_warning=bool(value), hint=hint if value else ""))
    if "InitBinary" in info and not info["InitBinary"] and engine.kind == "docker":
        found.append(Remark("it has no init process for containers: zombies may remain in a box", is_warning=True))
    return found


def has_image(engine: Engine, name: str) -> bool:
    with explained_api(engine.address.url):
        try:
            engine.client.inspect_image(name)
        except ImageNotFound:
            return False
        return True


def examine_container(engine: Engine, container: str, configured: ConfiguredLimits) -> list[Remark]:
    """Describe the privileges of an existing box and, while it runs, check its limits from inside."""
    with explained_api(container):
        found = engine.client.inspect_container(container)
        host = found["HostConfig"]
        networks = ", ".join(found["NetworkSettings"].get("Networks") or ()) or host.get("NetworkMode") or "none"
        init = "an init" if host.get("Init") else "no init"
        remarks = [
            Remark(f"it has {init}, network {networks}, dropped {', '.join(host.get('CapDrop') or ()) or 'none'}")
        ]
        if not found["State"].get("Running") or found["State"].get("Paused"):
            return remarks
        seen = _limits_inside(engine, container)
        wanted = configured.on_engine(engine.client.info())
    for name, value in asdict(wanted).items():
        if value and name in seen and seen[name] != value:
            shown = _shown(name, seen[name])
            hint = "a box that was created with other settings gets the new ones at the next start of the watcher"
            remarks.append(
                Remark(f"box.{name} is {_shown(name, value)}, but the box sees {shown}", is_warning=True, hint=hint)
            )
        elif value and name in seen:
            remarks.append(Remark(f"box.{name} is enforced: the box sees {_shown(name, value)}"))
    return remarks


def _shown(name: str, value: float) -> str:
    if not value:
        return "no limit"
    return f"{value / 2**20:g} MB" if name == "memory" else f"{value:g}"


def _limits_inside(engine: Engine, container: str) -> dict[str, float]:
    """Read the limits from the box's own control group; 0 means no limit. Unreadable limits are missing."""
    names = " ".join((*FILES, QUOTA, PERIOD))
    script = f'cd {GROUPS} && for f in {names}; do if [ -r $f ]; then echo "$f $(cat $f)"; fi; done'
    created = engine.client.exec_create(container, ["/bin/sh", "-c", script])
    output = engine.client.exec_start(created["Id"]).decode("ascii", "replace")
    return limits_of(dict(line.split(" ", 1) for line in output.splitlines() if " " in line))


def limits_of(files: Mapping[str, str]) -> dict[str, float]:
    """Parse the limits in the files of a control group, of either cgroup version."""
    names = {"memory": ("memory.max", "memory/memory.limit_in_bytes"), "pids": ("pids.max", "pids/pids.max")}
    seen = {limit: _number(files[name]) for limit, either in names.items() for name in either if name in files}
    quota, _, period = files.get("cpu.max", f"{files.get(QUOTA, '')} {files.get(PERIOD, '')}").partition(" ")
    if quota and period:
        seen["cpus"] = max(0.0, _number(quota)) / (_number(period) or 1)
    return seen


def _number(text: str) -> float:
    try:
        value = int(text)
    except ValueError:
        return 0  # "max"
    return 0 if value >= NO_LIMIT else value
