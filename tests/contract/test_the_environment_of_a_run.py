"""No kind of box passes the host's environment on to what runs in it."""

from __future__ import annotations

import pytest
from support.box_bench import Bench, Tree

from watchtest.boxes.protocols import ExecMode

SECRETS = {"AWS_SECRET_ACCESS_KEY": "the-secret-of-the-host", "SSH_AUTH_SOCK": "/the-secret-of-the-host"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set secrets in the environment before the box is made."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def test_a_secret_of_the_host_is_seen_neither_by_a_job_nor_by_a_command(bench: Bench) -> None:
    bench.sync(Tree({"a": b"1"}))
    assert "the-secret-of-the-host" not in bench.said("env")
    assert bench.provider.execute(["sh", "-c", "env | grep -q the-secret-of-the-host"], {}, ()) == 1
    script = "env | grep -c the-secret-of-the-host > said; touch done"
    assert bench.provider.execute(["sh", "-c", script], {}, (), ExecMode.DETACHED) == 0
    assert bench.said("while [ ! -e done ]; do sleep 0.05; done; cat said") == "0\n"


def test_a_run_has_a_home_without_the_users_files(bench: Bench) -> None:
    assert bench.said("ls -A ~/.ssh ~/.aws ~/.docker ~/.config 2>/dev/null || true") == ""
