"""What a sandboxed box hides of the host, and what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from watchtest.boxes.local.bubblewrap import SandboxMounts, plan_mounts
from watchtest.errors import BoxError


class Host:
    """A home folder with an interpreter in it, and a box in its cache."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.box = self.home / ".cache" / "box"
        self.python = self.home / "versions" / "3.13.1"
        for made in (self.workspace, self.box / "tree", self.box / "home", self.box / "tmp", self.python / "bin"):
            made.mkdir(parents=True)
        (self.python / "bin" / "python").touch()

    def mounts(self, required: tuple[Path, ...] = (), optional: tuple[Path, ...] = ()) -> SandboxMounts:
        return plan_mounts(
            self.box,
            workspace=str(self.workspace),
            environ={"HOME": str(self.home)},
            required=map(str, required),
            optional=map(str, optional),
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path.resolve())


def test_only_tree_and_home_of_the_box_can_be_written(host: Host) -> None:
    assert host.mounts().writable == (str(host.box / "tree"), str(host.box / "home"))


def test_homes_and_sockets_are_hidden(host: Host) -> None:
    hidden = host.mounts().hidden
    assert {folder for folder in ("/home", "/root", "/run") if Path(folder).is_dir()} <= set(hidden)


def test_a_workspace_outside_of_all_homes_is_hidden_too(host: Host) -> None:
    mounts = plan_mounts(
        host.box,
        workspace="/usr/share",
        environ={"HOME": "/"},
        required=(),
        optional=(),
    )
    assert "/usr/share" in mounts.hidden
    assert "/" not in mounts.hidden


def test_an_interpreter_in_a_home_is_shown_with_every_link_on_the_way(host: Host) -> None:
    (host.home / "versions" / "3.13").symlink_to("3.13.1")
    (host.home / "python").symlink_to(host.home / "versions" / "3.13" / "bin" / "python")
    mounts = host.mounts(required=(host.home / "python", host.python))
    assert mounts.readable == (str(host.python),)
    assert dict(mounts.links) == {
        str(host.home / "python"): str(host.home / "versions" / "3.13" / "bin" / "python"),
        str(host.home / "versions" / "3.13"): "3.13.1",
    }


def test_links_inside_of_what_is_shown_anyway_are_not_made_again(host: Host) -> None:
    (host.python / "bin" / "python3").symlink_to("python")
    mounts = host.mounts(required=(host.python, host.python / "bin" / "python3"))
    assert (mounts.readable, mounts.links) == ((str(host.python),), ())


def test_links_that_lead_in_a_circle_end_the_search(host: Host) -> None:
    (host.home / "a").symlink_to("b")
    (host.home / "b").symlink_to("a")
    assert host.mounts(optional=(host.home / "a",)).readable == ()


def test_what_would_show_a_whole_home_is_an_error_if_needed_and_left_out_if_not(host: Host) -> None:
    assert host.mounts(optional=(host.home, host.home.parent)).readable == ()
    with pytest.raises(BoxError, match="would expose everything that bubblewrap should hide") as caught:
        host.mounts(required=(host.home,))
    assert "box.python" in caught.value.hint


def test_a_box_below_tmp_has_its_tmp_in_memory(host: Host) -> None:
    """A tmp folder of its own would have to be mounted inside a folder that the box can write, where it could set a
    trap."""
    is_below_tmp = str(host.box).startswith("/tmp/")
    assert host.mounts().temporary == (None if is_below_tmp else str(host.box / "tmp"))
