"""Names of local images, and progress of pulling or building one: few lines, and signs of life when it is slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from watchtest.boxes.docker.images import BuildProgress, ImageOwner, Images, PullProgress, bar


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def downloading(layer: str, current: int, total: int) -> dict[str, Any]:
    return {"status": "Downloading", "id": layer, "progressDetail": {"current": current, "total": total}}


def test_layers_are_added_up_and_a_line_is_said_for_each_tenth() -> None:
    said: list[str] = []
    progress = PullProgress("python:3.13", said.append, Clock())
    for percent in range(101):
        for layer in ("a", "b"):
            progress.feed(downloading(layer, percent * 250_000, 25_000_000))
    assert 10 <= len(said) <= 12
    assert said[-1] == "pulling python:3.13 ━━━━━━━━━━━━━━━━━━━━ 100% of 50 MB"


def test_a_pull_that_crawls_is_seen_to_live() -> None:
    said: list[str] = []
    clock = Clock()
    progress = PullProgress("big", said.append, clock)
    for second in range(60):
        clock.now = float(second)
        progress.feed(downloading("a", second, 1_000_000))
    assert 8 <= len(said) <= 13


def test_lines_without_numbers_say_nothing_and_harm_nothing() -> None:
    said: list[str] = []
    progress = PullProgress("x", said.append, Clock())
    for line in (
        {"status": "Pulling from library/python", "id": "3.13"},
        {"status": "Already exists", "id": "a", "progressDetail": {}},
        {"status": "Downloading", "id": "b"},
        {"status": "Downloading", "id": "b", "progressDetail": {"current": 5}},
        {"status": "Pull complete", "id": "never heard of"},
    ):
        progress.feed(line)
    assert said == []


def test_a_complete_layer_counts_as_a_whole() -> None:
    said: list[str] = []
    progress = PullProgress("x", said.append, Clock())
    progress.feed(downloading("a", 1, 10_000_000))
    progress.feed({"status": "Pull complete", "id": "a"})
    assert said[-1].endswith("100% of 10 MB")


def test_the_steps_of_a_build_are_shown_as_docker_and_as_podman_number_them() -> None:
    said: list[str] = []
    progress = BuildProgress("Dockerfile", said.append)
    for text in (
        "Step 2/4 : RUN make\n",
        " ---> Running in 123\n",
        "compiling\n",
        "STEP 4/4: COPY . /src\n",
        "Step by step\n",
    ):
        progress.feed({"stream": text})
    assert said == [
        "building Dockerfile ━━━━━─────────────── Step 2/4 : RUN make",
        "building Dockerfile ━━━━━━━━━━━━━━━───── STEP 4/4: COPY . /src",
    ]
    assert progress.tail[-1] == "Step by step"


def test_a_bar_stays_within_its_bounds() -> None:
    assert {len(bar(share)) for share in (-1.0, 0.0, 0.5, 1.0, 2.0)} == {20}


def test_local_names_are_the_same_on_docker_and_podman() -> None:
    listed = [
        {"RepoTags": ["python:3.13-slim", "mine:1"]},
        {"RepoTags": ["docker.io/library/python:3.12-slim", "docker.io/someone/tool:2", "localhost/own:3"]},
        {"RepoTags": None},
        {},
    ]
    client = cast(Any, SimpleNamespace(images=lambda: listed))
    assert Images(client, ImageOwner("/w", "host", "watchtest/w")).local_names() == {
        *("python:3.13-slim", "mine:1", "python:3.12-slim", "someone/tool:2", "localhost/own:3")
    }
