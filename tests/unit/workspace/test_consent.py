"""Consents: what is stored for whom, when they hold, and when the user is asked again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from watchtest.errors import WorkspaceError
from watchtest.workspace.consent import ConsentFile, HostRequest, NeedsConsent, require_consent

ENGINE = HostRequest("box.engine", '"local"', "watchtest.toml:3", "it runs on your machine")
PORTS = HostRequest("box.ports", "[8000]", "watchtest.toml:4", "they lead into the box")


@pytest.fixture
def file(tmp_path: Path) -> ConsentFile:
    return ConsentFile(tmp_path / "state", tmp_path / "shop")


def missing(file: ConsentFile, *requests: HostRequest) -> list[str]:
    try:
        require_consent(file, requests, "watchtest trust")
    except NeedsConsent as error:
        return [request.key for request in error.requests]
    return []


def test_without_a_consent_every_request_is_missing_and_named(file: ConsentFile) -> None:
    with pytest.raises(NeedsConsent) as caught:
        require_consent(file, [ENGINE, PORTS], "watchtest -C shop trust")
    assert caught.value.exit_code == 2
    told = str(caught.value)
    for part in ('watchtest.toml:3: box.engine = "local"', "it runs on your machine", "`watchtest -C shop trust`"):
        assert part in told
    assert missing(file) == []


def test_a_consent_is_to_one_content_and_not_to_its_place(file: ConsentFile) -> None:
    file.grant([ENGINE, PORTS], 0.0)
    assert missing(file, ENGINE, PORTS) == []
    assert missing(file, replace(ENGINE, origin="pyproject.toml:9", why="other words")) == []
    assert missing(file, PORTS) == [], "a request less is no reason to ask"
    changed = replace(PORTS, value="[8000, 22]")
    assert missing(file, ENGINE, changed) == ["box.ports"]
    file.grant([changed], 0.0)
    assert missing(file, ENGINE, changed) == [], "an earlier consent stays"


def test_the_value_of_one_key_is_no_consent_to_another(file: ConsentFile) -> None:
    file.grant([PORTS], 0.0)
    assert missing(file, replace(PORTS, key="watch.include")) == ["watch.include"]


def test_a_consent_holds_in_one_workspace(file: ConsentFile) -> None:
    file.grant([ENGINE], 0.0)
    other = replace(file, workspace=file.workspace.with_name("other"))
    assert missing(other, ENGINE) == ["box.engine"]
    other.path.write_bytes(file.path.read_bytes())
    other.path.chmod(0o600)
    assert missing(other, ENGINE) == ["box.engine"], "a copied file names another workspace"


def test_what_is_revoked_is_asked_again(file: ConsentFile) -> None:
    assert file.revoke() == 0
    file.grant([ENGINE, PORTS], 0.0)
    assert file.revoke() == 2
    assert missing(file, ENGINE) == ["box.engine"]


def test_the_file_is_private(file: ConsentFile) -> None:
    before = os.umask(0)
    try:
        file.grant([ENGINE], 0.0)
    finally:
        os.umask(before)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in file.path.parent.iterdir()] == [file.path.name]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620])
def test_a_file_that_others_can_read_or_write_counts_for_nothing(file: ConsentFile, mode: int) -> None:
    """git never creates a file with the mode 600, so none comes out of a repository."""
    file.grant([ENGINE], 0.0)
    file.path.chmod(mode)
    assert missing(file, ENGINE) == ["box.engine"]


def test_a_link_counts_for_nothing_and_is_never_written_through(file: ConsentFile, tmp_path: Path) -> None:
    file.grant([ENGINE], 0.0)
    kept = tmp_path / "kept"
    file.path.rename(kept)
    file.path.symlink_to(kept)
    content = kept.read_bytes()
    assert missing(file, ENGINE) == ["box.engine"]
    file.grant([PORTS], 0.0)
    assert kept.read_bytes() == content
    assert missing(file, PORTS) == []


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "[" * 10_000, "null", '{"schema_version": 2}', '{"schema_version": 1, "granted": []}', "\udcff"],
)
def test_a_damaged_file_counts_for_nothing(file: ConsentFile, content: str) -> None:
    file.grant([ENGINE], 0.0)
    file.path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert missing(file, ENGINE) == ["box.engine"]
    file.grant([ENGINE], 0.0)
    assert missing(file, ENGINE) == []


def test_the_file_says_what_was_allowed_and_when(file: ConsentFile) -> None:
    file.grant([ENGINE], 0.0)
    document = json.loads(file.path.read_text())
    assert document["workspace"] == str(file.workspace)
    assert document["granted"][ENGINE.digest] == {
        "key": "box.engine",
        "value": '"local"',
        "at": "1970-01-01T00:00:00.000Z",
    }


def test_a_state_folder_that_cannot_be_written_is_an_error_with_a_way_out(file: ConsentFile) -> None:
    file.state.write_text("a file")
    with pytest.raises(WorkspaceError, match="cannot be written") as caught:
        file.grant([ENGINE], 0.0)
    assert "--trust" in caught.value.hint
