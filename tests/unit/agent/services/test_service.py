"""The log of a service is bounded, keeps its last lines available, and never affects the service."""

from __future__ import annotations

from pathlib import Path

from watchtest.agent.services.service import ServiceLog


def test_a_full_log_is_kept_once_and_a_new_one_begun(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "kv.log"
    log = ServiceLog(str(file), limit=100)
    for number in range(30):
        log.add(b"line %03d\n" % number)
    log.close()
    old = file.with_name("kv.log.old")
    lines = (old.read_bytes() + file.read_bytes()).split()[1::2]
    assert max(file.stat().st_size, old.stat().st_size) <= 100
    assert sorted(path.name for path in file.parent.iterdir()) == ["kv.log", "kv.log.old"]
    assert lines == [b"%03d" % number for number in range(30)][-len(lines) :]
    assert len(lines) > 11


def test_a_log_that_was_left_full_is_bounded_by_the_next_start_too(tmp_path: Path) -> None:
    file = tmp_path / "kv.log"
    file.write_bytes(b"x" * 90)
    log = ServiceLog(str(file), limit=100)
    log.add(b"y" * 20)
    log.close()
    assert file.read_bytes() == b"y" * 20
    assert file.with_name("kv.log.old").read_bytes() == b"x" * 90


def test_the_tail_is_the_last_lines_of_the_service_alone(tmp_path: Path) -> None:
    log = ServiceLog(str(tmp_path / "kv.log"))
    log.add(b"old life\n")
    log.clear_tail()
    log.add_note("starting")
    log.add(b"".join(b"line %d\n\n" % number for number in range(100)) + b"\xff" * 1000)
    assert log.tail[:2] == ["line 86", "line 87"]
    assert log.tail[-1] == "�" * 300
    assert len(log.tail) == 15
    log.close()
    assert "starting" in (tmp_path / "kv.log").read_text(errors="replace")


def test_a_log_that_cannot_be_written_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file in the way")
    log = ServiceLog(str(tmp_path / "logs" / "kv.log"))
    log.add(b"words\n")
    log.add_note("starting")
    assert log.tail == ["words"]
    (tmp_path / "logs").unlink()
    log.add(b"more\n")
    log.close()
    assert (tmp_path / "logs" / "kv.log").read_text() == "more\n"
