"""Config validation over the API reports exactly what the command reports for a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import get_args

import pytest
from support.config_command import watchtest
from support.control_server import Bench, bench, play, short_folder

from watchtest.client.watcher import RequestRefused
from watchtest.config.loader import WORKSPACE_FILES, check_text
from watchtest.control.api.request_models import ConfigRequest
from watchtest.core.model import Policy

TEXTS = [
    "",
    '[box]\nengine = "docker"\n',
    '[box]\nengine = "dokcer"\npids = 1\n[bxo]\n',
    "[box",
    "[box]\nengine = 'a\n",
    "x = " + "[" * 2000,
    "n = " + "9" * 5000,
    "[watch]\ndebounce_ms = 500\ndebounce_cap_ms = 5\n",
    '[[services]]\nname = "A B"\n',
    '[api]\nlisten = "0.0.0.0:80"\n',
    '"a\\u001b[31m" = 1\n',
    "\ufeff[box]\r\npids = 0\r\n",
    "[tool.watchtest.box]\npids = 0\n",
    "[tool.other]\na = 1\n",
    "tool.watchtest = 3\n",
    "".join(f"wrong_{number} = 1\n" for number in range(205)),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("file", ["watchtest.toml", "pyproject.toml"])
def test_it_finds_what_the_command_finds(
    empty_workspace: Path,
    capsys: pytest.CaptureFixture[str],
    text: str,
    file: str,
) -> None:
    (empty_workspace / file).write_bytes(text.encode())
    code = watchtest(empty_workspace, "config", "validate", str(empty_workspace / file), "--json")
    told = json.loads(capsys.readouterr().out)
    problems = check_text(text, file)
    assert (problems, not problems) == (told["problems"], code == 0)


def test_it_answers_over_the_socket() -> None:
    async def story(watcher: Bench) -> None:
        assert await watcher.post("/config/validate", {"text": ""}) == {"valid": True, "problems": []}
        wrong = await watcher.post("/config/validate", {"text": "box.pids = 1", "file": ".watchtest/config.toml"})
        assert wrong == {"valid": False, "problems": [".watchtest/config.toml: box.pids = 1: must be at least 16"]}
        half = await watcher.post("/config/validate", {"text": "a = '\ud800'"})
        assert "not UTF-8" in half["problems"][0]

    play(story, policy=Policy.OFF)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, '"text" is missing'),
        ({"text": 3}, '"text": should be a valid string'),
        ({"text": "", "file": "../../etc/passwd"}, "no such file"),
        ({"text": "", "file": ["a"]}, "no such file"),
        ({"text": "", "path": "x"}, "unknown member 'path'"),
    ],
)
def test_what_is_no_text_is_refused(body: dict[str, object], words: str) -> None:
    async def story(watcher: Bench) -> None:
        with pytest.raises(RequestRefused, match=words):
            await watcher.post("/config/validate", body)

    play(story, policy=Policy.OFF)


def test_only_a_few_texts_are_checked_at_a_time() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, policy=Policy.OFF) as watcher:
                body: dict[str, object] = {"text": "".join(f"wrong_{number} = 1\n" for number in range(2000))}
                answers = await asyncio.gather(
                    *(watcher.post("/config/validate", body) for _ in range(12)), return_exceptions=True
                )
                refused = [answer for answer in answers if isinstance(answer, RequestRefused)]
                assert all(answer.reason == "busy" for answer in refused)
                assert 0 < len(refused) < 12

    asyncio.run(whole())


def test_files_are_those_of_a_workspace() -> None:
    assert get_args(ConfigRequest.model_fields["file"].annotation) == WORKSPACE_FILES
