"""Which files a service depends on, and that its key changes exactly with those."""

from __future__ import annotations

import pytest

from watchtest.boxes.service_restart import ReadyCheck, ServiceDefinition, ServiceDependencies, automatic
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.sources.globs import specification

FILES = (
    "server.py",
    "shop/__init__.py",
    "shop/web.py",
    "src/tool/__main__.py",
    "bin/serve",
    "web/index.js",
    "data.json",
    "tests/test_shop.py",
    "tests/conftest.py",
    "shop/web_test.py",
    "tests/README.md",
    "tests/requirements.txt",
)
OWN = [path for path in FILES if "test" not in path]
"""What a server of the project reads is unknown: everything except its tests, texts and dependency files."""


def snapshot(**changed: str) -> Snapshot:
    digests = dict.fromkeys(FILES, "0") | {name.replace("__dot__", "."): digest for name, digest in changed.items()}
    return Snapshot("tree", {path: Entry(EntryKind.FILE, 0o644, 1, digest) for path, digest in digests.items()})


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python server.py 80", OWN),
        ("cd . && exec python ./server.py", OWN),
        ("python -m shop.web", OWN),
        ("python -m tool", OWN),
        ("uvicorn shop.web:app --port 80", OWN),
        ("cd src && python server.py", OWN),
        ("npm start", OWN),
        ("bin/serve", OWN),
        ("python tests/test_shop.py", [*OWN, "tests/test_shop.py"]),
        ("echo 'unclosed", OWN),
        ("redis-server --port 80", []),
        ("exec /usr/bin/redis-server data.json", ["data.json"]),
        ("PGDATA=/x postgres -c a=b", []),
    ],
)
def test_auto_means_whatever_a_command_of_the_project_may_read(command: str, files: list[str]) -> None:
    matches = automatic(("/bin/sh", "-c", command), snapshot().entries)
    assert sorted(path for path in FILES if matches(path)) == sorted(files)


def test_a_command_without_a_shell_is_read_word_by_word() -> None:
    matches = automatic(("python", "server.py"), snapshot().entries)
    assert sorted(path for path in FILES if matches(path)) == sorted(OWN)


def inputs(definition: ServiceDefinition, of: Snapshot, variables: str = "") -> str:
    dependencies = ServiceDependencies(definition, lambda globs: specification(globs, "test").match_file)
    return dependencies.inputs(of, {"variables": variables}).key


def test_a_key_follows_the_content_of_its_files_and_nothing_else() -> None:
    one = ServiceDefinition("kv", ("python", "server.py"))
    before = inputs(one, snapshot())
    assert inputs(one, snapshot()) == before
    assert inputs(one, snapshot(test_new__dot__py="1")) == before
    assert inputs(one, snapshot(server__dot__py="1")) != before
    assert inputs(one, snapshot(data__dot__json="1")) != before
    assert inputs(one, snapshot(new__dot__py="1")) != before


def test_globs_in_the_settings_are_those_of_gitignore() -> None:
    one = ServiceDefinition("kv", ("python", "server.py"), restart_on=("*.json", "/shop/"))
    before = inputs(one, snapshot())
    assert inputs(one, snapshot(server__dot__py="1")) == before
    assert inputs(one, snapshot(data__dot__json="1")) != before


@pytest.mark.parametrize(
    "other",
    [
        ServiceDefinition("kv", ("python", "server.py", "--fast")),
        ServiceDefinition("kv", ("python", "server.py"), ReadyCheck("tcp", 80)),
        ServiceDefinition("kv", ("python", "server.py"), env={"A": "b"}),
    ],
)
def test_a_key_follows_what_is_started_and_how(other: ServiceDefinition) -> None:
    assert inputs(other, snapshot()) != inputs(ServiceDefinition("kv", ("python", "server.py")), snapshot())


def test_a_key_follows_the_environment_of_the_box_but_no_limit() -> None:
    one = ServiceDefinition("kv", ("python", "server.py"))
    assert inputs(one, snapshot(), "A=b") != inputs(one, snapshot(), "A=c")
    limited = ServiceDefinition("kv", ("python", "server.py"), restart_limit=99, grace_s=9, ready_timeout_s=9)
    assert inputs(limited, snapshot()) == inputs(one, snapshot())


def test_the_files_that_differ_are_named() -> None:
    dependencies = ServiceDependencies(
        ServiceDefinition("kv", ("python", "server.py")), lambda _globs: lambda _path: False
    )
    before = dependencies.inputs(snapshot(), {})
    after = dependencies.inputs(snapshot(server__dot__py="1", new__dot__py="1", data__dot__json="1"), {})
    assert before.difference(after) == ("data.json", "new.py", "server.py")
