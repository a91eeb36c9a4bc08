"""What may happen in one step: edits, git commands, links and requests. Each returns words for the journal."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from support.git_repo import stage_one_hunk

from chaos import sample
from chaos.world import NotNow, World

Step = Callable[[World], str]
STEPS: dict[Step, int] = {}
"""Each step and how often it is drawn."""


def step(weight: int) -> Callable[[Step], Step]:
    def register(function: Step) -> Step:
        STEPS[function] = weight
        return function

    return register


# -- edits -----------------------------------------------------------------------------------------


def edit(world: World, path: str, text: str | None) -> str:
    if text is None or text == world.read(path):
        raise NotNow
    return world.write(path, text)


def any_file(world: World, suffix: str = ".py") -> str:
    files = world.files(suffix)
    if not files:
        raise NotNow
    return world.random.choice(files)


def any_test_file(world: World) -> str:
    files = [path for path in world.files() if "test_" in Path(path).name]
    if not files:
        raise NotNow
    return world.random.choice(files)


@step(24)
def change_a_number(world: World) -> str:
    path = any_file(world, world.random.choice((".py", ".py", ".py", ".txt")))
    return edit(world, path, sample.change_number(path, world.read(path), world.random))


def some_edits(world: World) -> str:
    """Save up to two files, while something else is going on."""
    words = []
    for _ in range(world.random.randrange(3)):
        with contextlib.suppress(NotNow):
            words.append(change_a_number(world))
    return ", ".join(words) or "no edits"


@step(8)
def restore_a_file(world: World) -> str:
    path = world.random.choice(sorted(sample.FILES))
    file = world.root / path
    if file.is_symlink() or (file.exists() and world.read(path) == sample.FILES[path]):
        raise NotNow
    return world.write(path, sample.FILES[path])


@step(3)
def swap_an_operator(world: World) -> str:
    path = any_file(world)
    return edit(world, path, sample.swap_operator(world.read(path), world.random))


@step(5)
def add_a_test(world: World) -> str:
    path = any_test_file(world)
    return edit(world, path, sample.add_test(world.read(path), world.number, world.random))


@step(5)
def add_a_test_file(world: World) -> str:
    path = world.random.choice(sample.NEW_NAMES)
    return world.write(path, sample.add_test("", world.number, world.random).lstrip())


@step(4)
def drop_a_test(world: World) -> str:
    path = any_test_file(world)
    return edit(world, path, sample.drop_last_test(world.read(path)))


@step(3)
def rename_a_test(world: World) -> str:
    path = any_test_file(world)
    return edit(world, path, sample.rename_test(world.read(path), world.number, world.random))


@step(2)
def mark_a_test(world: World) -> str:
    path = any_test_file(world)
    return edit(world, path, sample.mark_test(world.read(path), world.random))


@step(3)
def change_nothing_that_counts(world: World) -> str:
    path = any_file(world)
    return edit(world, path, sample.change_nothing_that_counts(world.read(path), world.number, world.random))


@step(2)
def break_a_file(world: World) -> str:
    path = any_file(world)
    broken = world.random.choice(("def broken(:\n", "raise RuntimeError('at import')\n", "import nothing_like_it\n"))
    return edit(world, path, broken + world.read(path))


@step(4)
def delete_a_file(world: World) -> str:
    path = any_file(world, world.random.choice((".py", ".txt", ".md", "")))
    (world.root / path).unlink()
    return repr(path)


@step(4)
def rename_a_file(world: World) -> str:
    path = any_file(world)
    name = Path(path).name
    new = world.random.choice((f"test_moved_{world.number}.py", f"moved_{name}", f"other/{name}"))
    target = world.root / Path(path).parent / new
    target.parent.mkdir(exist_ok=True)
    (world.root / path).rename(target)
    return f"{path!r} to {new!r}"


@step(2)
def copy_a_test_file(world: World) -> str:
    """Copy a file of tests to another folder: without an `__init__.py`, pytest refuses two modules of one name."""
    path = any_test_file(world)
    target = Path(world.random.choice(("tests/copied", "tests/words", "copied"))) / Path(path).name
    return f"{path!r} to {world.write(str(target), world.read(path))}"


@step(2)
def rename_a_folder(world: World) -> str:
    folder = world.random.choice(("tests/words", "tests/more", "shop/words", "data/parts"))
    source, target = world.root / folder, world.root / f"{folder}_moved"
    if target.is_dir() and not source.exists():
        source, target = target, source
    if not source.is_dir() or target.exists():
        raise NotNow
    source.rename(target)
    return f"{source.name} to {target.name}"


@step(2)
def edit_with_the_same_size_and_time(world: World) -> str:
    path = any_file(world)
    file = world.root / path
    text = world.read(path)
    changed = sample.change_number(path, text, world.random)
    if changed is None or changed == text or len(changed) != len(text):
        raise NotNow
    before = file.stat()
    file.write_text(changed, newline="")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    return repr(path)


@step(2)
def touch_files(world: World) -> str:
    path = any_file(world)
    when = world.random.choice((0, time.time(), time.time() + 1e6, 2**31))
    os.utime(world.root / path, (when, when))
    return f"{path!r} at {when:.0f}"


@step(2)
def change_a_mode(world: World) -> str:
    path = any_file(world, "")
    mode = world.random.choice((0o644, 0o755, 0o600, 0o700))
    (world.root / path).chmod(mode)
    return f"{path!r} to {mode:o}"


@step(4)
def write_another_file(world: World) -> str:
    path = world.random.choice(sample.OTHER_NAMES)
    if path == "big.bin":
        return world.write(path, world.random.randbytes(world.random.choice((0, 1, 5_000_000))))
    return world.write(path, f"{world.random.randrange(4)}\n")


@step(1)
def write_a_name_that_is_no_text(world: World) -> str:
    return world.write(os.fsdecode(b"docs/\xff\xfe.txt"), str(world.random.randrange(4)))


@step(2)
def make_or_remove_an_empty_folder(world: World) -> str:
    folder = world.root / world.random.choice(("empty", "empty/deep", "data/empty", "build/empty"))
    if folder.is_dir():
        shutil.rmtree(folder)
        return f"removed {folder.name}"
    if folder.exists() or folder.is_symlink():
        raise NotNow
    folder.mkdir(parents=True)
    return f"made {folder.name}"


@step(2)
def turn_a_file_into_a_folder_or_back(world: World) -> str:
    place = world.root / "docs" / "thing"
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
        place.write_text("a file\n")
        return "a file"
    place.unlink(missing_ok=True)
    place.mkdir(parents=True)
    (place / "inside.txt").write_text("1\n")
    return "a folder"


@step(2)
def change_pytests_settings(world: World) -> str:
    settings = world.random.choice(
        (
            "xfail_strict = true\n",
            "xfail_strict = false\n",
            "addopts = -q\n",
            "python_functions = test_a* test_t*\n",
            "python_files = test_*.py *_test.py\n",
            "testpaths = tests\n",
            "norecursedirs = words\n",
        )
    )
    return edit(world, "pytest.ini", f"[pytest]\n{settings}")


@step(2)
def add_a_conftest(world: World) -> str:
    folder = world.random.choice(("tests", "tests/more", "shop", "tests/words"))
    bodies = (
        "",
        "import pytest\n\n\n@pytest.fixture\ndef basket():\n    return [1, 1]\n",
        "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef always():\n    assert 1 == 2\n",
        "collect_ignore = ['test_plural.py', 'test_stock.py']\n",
        "raise RuntimeError('a broken conftest')\n",
    )
    return world.write(f"{folder}/conftest.py", world.random.choice(bodies))


@step(1)
def change_what_is_ignored(world: World) -> str:
    rule = world.random.choice(("", "docs/\n", "data/parts/three.txt\n", "*.bin\n", "tests/more/\n"))
    return edit(world, ".gitignore", sample.FILES[".gitignore"] + rule)


@step(2)
def change_many_files(world: World) -> str:
    for number in range(world.random.choice((20, 200))):
        file = world.root / "many" / str(number % 7) / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(world.random.randrange(9)))
    return "many/"


@step(1)
def remove_many_files(world: World) -> str:
    if not (world.root / "many").is_dir():
        raise NotNow
    shutil.rmtree(world.root / "many")
    return "many/"


@step(3)
def change_back_and_forth(world: World) -> str:
    """Save something, wait a little, and put back what was there."""
    path = any_file(world)
    text = world.read(path)
    changed = sample.change_number(path, text, world.random)
    words = edit(world, path, changed)
    time.sleep(world.random.choice((0, 0.05, 0.3)))
    world.write(path, text)
    return words


# -- links -----------------------------------------------------------------------------------------


LINK_TARGETS = ("nowhere", "../data/stock.txt", "one.txt", ".", "../shop", "loop", "/etc/hostname")


@step(3)
def link_something(world: World) -> str:
    link = world.root / world.random.choice(("docs/link", "data/parts/linked.txt", "docs/loop"))
    if link.is_dir() and not link.is_symlink():
        raise NotNow
    target = world.random.choice(LINK_TARGETS)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return f"{link.name} to {target}"


@step(1)
def turn_a_file_into_a_link(world: World) -> str:
    path = world.random.choice(("data/stock.txt", "shop/prices.py", "tests/words/conftest.py"))
    file = world.root / path
    if file.is_symlink() or not file.is_file():
        raise NotNow
    kept = file.with_name(f"real-{file.name}")
    file.replace(kept)
    file.symlink_to(kept.name)
    return path


LINKS_TO_TESTS = (
    ("alias", "tests"),
    ("alias", "tests/words"),
    ("tests/alias", "words"),
    ("tests/more/alias", "../words"),
    ("tests/test_alias.py", "test_limits.py"),
)
"""None leads back to itself: pytest would find each test dozens of times."""


@step(2)
def link_to_tests(world: World) -> str:
    """Give a file or folder of tests a second name, under which pytest finds its tests again."""
    path, target = world.random.choice(LINKS_TO_TESTS)
    link = world.root / path
    if link.exists() and not link.is_symlink():
        raise NotNow
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return f"{link.relative_to(world.root)} to {target}"


@step(2)
def remove_a_link(world: World) -> str:
    links = [path for path in sorted(world.root.rglob("*")) if path.is_symlink() and ".git" not in path.parts]
    if not links:
        raise NotNow
    link = world.random.choice(links)
    link.unlink()
    return link.name


# -- git -------------------------------------------------------------------------------------------


@step(6)
def stage_a_file(world: World) -> str:
    path = any_file(world)
    world.git("add", "--", path)
    return repr(path)


@step(5)
def stage_everything(world: World) -> str:
    world.git("add", "-A")
    return ""


@step(3)
def stage_one_part(world: World) -> str:
    path = any_file(world)
    stage_one_hunk(world.repo, path)
    return repr(path)


@step(8)
def commit(world: World) -> str:
    how = world.random.choice((("-a",), ("-a",), (), ("--amend",), ("--allow-empty",)))
    world.git("commit", "--quiet", *how, "-m", str(world.number))
    return " ".join(how)


@step(2)
def unstage(world: World) -> str:
    world.git("reset", "--quiet")
    return ""


@step(2)
def reset_hard(world: World) -> str:
    target = world.random.choice(("HEAD", "HEAD~1", "ORIG_HEAD"))
    world.git("reset", "--quiet", "--hard", target)
    return target


@step(2)
def reset_softly(world: World) -> str:
    how = world.random.choice(("--soft", "--mixed"))
    world.git("reset", "--quiet", how, "HEAD~1")
    return how


@step(3)
def check_out(world: World) -> str:
    branches = world.git("branch", "--format=%(refname:short)").split()
    branch = world.random.choice([*branches, f"branch-{len(branches)}"][:6])
    create = [] if branch in branches else ["-b"]
    force = ["-f"] if world.random.random() < 0.3 else []
    world.git("checkout", "--quiet", *force, *create, branch)
    return branch


@step(2)
def check_out_the_first_commit(world: World) -> str:
    first = world.git("rev-list", "--max-parents=0", "HEAD").split()[0]
    world.git("checkout", "--quiet", "-f", world.random.choice((first, "main")))
    return ""


@step(3)
def stash(world: World) -> str:
    how = world.random.choice((("push", "--quiet"), ("push", "--quiet", "-u"), ("pop", "--quiet"), ("pop", "--index")))
    world.git("stash", *how)
    return " ".join(how)


@step(2)
def remove_or_move_with_git(world: World) -> str:
    path = any_file(world)
    if world.random.random() < 0.5:
        world.git("rm", "--quiet", "-f", "--cached", "--", path)
        return f"rm --cached {path!r}"
    world.git("mv", path, f"{path[:-3]}_mv.py")
    return f"mv {path!r}"


@step(1)
def change_a_mode_in_the_index(world: World) -> str:
    path = any_file(world)
    world.git("update-index", f"--chmod={world.random.choice('+-')}x", "--", path)
    return repr(path)


@step(1)
def tidy_the_repository(world: World) -> str:
    how = world.random.choice((("gc", "--quiet"), ("pack-refs", "--all"), ("repack", "-adq"), ("status",)))
    world.git(*how)
    return " ".join(how)


@step(1)
def add_and_remove_a_worktree(world: World) -> str:
    folder = world.project.around / "worktree"
    world.git("worktree", "add", "--quiet", "--detach", str(folder))
    (folder / "test_elsewhere.py").write_text("def test_elsewhere():\n    assert False\n")
    subprocess.run(["git", "-C", str(folder), "add", "-A"], capture_output=True, timeout=30, check=False)
    world.git("worktree", "remove", "--force", str(folder))
    shutil.rmtree(folder, ignore_errors=True)
    world.git("worktree", "prune")
    return ""


def make_two_sides(world: World) -> str:
    """Commit different changes of one line on two branches; return the name of the other one."""
    if world.is_git_busy:
        raise NotNow
    world.git("add", "-A")
    world.git("commit", "--quiet", "--allow-empty", "-m", "before")
    here = world.git("rev-parse", "--abbrev-ref", "HEAD")
    if here == "HEAD":
        world.git("checkout", "--quiet", "-B", "here")
        here = "here"
    side = f"side-{world.number}"
    world.git("checkout", "--quiet", "-b", side)
    for branch, text in ((side, "first\n"), (here, "second\n")):
        world.git("checkout", "--quiet", branch)
        world.repo.save("shop/sides.txt", text)
        path = any_file(world)
        changed = sample.change_number(path, world.read(path), world.random)
        if changed is not None:
            world.repo.save(path, changed)
        world.git("add", "-A")
        world.git("commit", "--quiet", "-m", text.strip())
    return side


@step(2)
def merge(world: World) -> str:
    side = make_two_sides(world)
    verb = world.random.choice(("merge", "rebase", "cherry-pick"))
    world.git(verb, side)
    return f"{verb} {side}"


@step(2)
def stash_and_pop_with_a_conflict(world: World) -> str:
    if world.is_git_busy:
        raise NotNow
    world.repo.save("shop/stashed.txt", "first\n")
    world.git("add", "-A")
    world.git("stash", "push", "--quiet")
    world.repo.save("shop/stashed.txt", "second\n")
    world.git("add", "-A")
    world.git("commit", "--quiet", "-m", "second")
    world.git("stash", "pop", "--quiet")
    return ""


@step(6)
def end_a_conflict(world: World) -> str:
    if not world.is_git_busy:
        raise NotNow
    folder = world.root / ".git"
    verb = "rebase" if (folder / "rebase-merge").exists() else ""
    verb = verb or ("cherry-pick" if (folder / "CHERRY_PICK_HEAD").exists() else "merge")
    match world.random.randrange(3):
        case 0:
            world.git(verb, "--abort")
            how = "aborted"
        case 1:
            world.git("checkout", "--quiet", world.random.choice(("--ours", "--theirs")), "--", ".")
            world.git("add", "-A")
            world.git(verb, "--continue")
            how = "continued"
        case _:
            world.git(verb, "--quit")
            world.git("reset", "--quiet", "--hard")
            how = "reset"
    if world.git("ls-files", "--unmerged"):
        world.git("reset", "--quiet", "--hard")
    return f"{verb} {how}"


# -- requests --------------------------------------------------------------------------------------


@step(3)
def run_tests(world: World) -> str:
    lane = world.any_lane()
    tests = [failure["id"] for failure in (world.watcher.status.get("lanes", {}).get(lane) or {}).get("failures", ())]
    wishes: list[dict[str, object]] = [{"policy": policy} for policy in ("all", "failed", "failed", "affected")]
    wishes += [{"tests": ["tests/test_prices.py"]}, {"again": True}, {"tests": tests[:1] or ["tests"]}]
    wish = world.random.choice(wishes)
    answer = world.api("POST", "/runs", {"lane": lane, **wish})
    return f"{lane} {wish}: {answer.get('state') or answer.get('message')}"


@step(3)
def run_failed_in_the_middle_of_changes(world: World) -> str:
    """Save something and ask for the failed tests at once: the change must not stay pending."""
    lane = world.any_lane()
    words = some_edits(world)
    world.api("POST", "/runs", {"lane": lane, "policy": "failed"})
    return f"{lane} {words}"


@step(2)
def cancel(world: World) -> str:
    verb = world.random.choice(("cancel", "kill"))
    world.api("POST", f"/runs/current/{verb}", {})
    world.held |= world.lanes.keys()
    return verb


@step(1)
def pause_and_resume(world: World) -> str:
    world.api("POST", "/pause", {})
    words = some_edits(world)
    time.sleep(world.random.choice((0, 0.2)))
    world.api("POST", "/resume", {})
    return words


@step(1)
def change_the_policy_for_a_while(world: World) -> str:
    lane = world.any_lane()
    policy = world.random.choice(("failed", "all", "affected"))
    world.api("POST", "/policy", {"lane": lane, "policy": policy})
    words = some_edits(world)
    time.sleep(world.random.choice((0, 0.2, 1.0)))
    world.api("POST", "/policy", {"lane": lane, "policy": "configured"})
    world.held.add(lane)
    return f"{lane} {policy}, {words}"


@step(2)
def wait_a_little(world: World) -> str:
    seconds = world.random.choice((0.05, 0.3, 1.0))
    time.sleep(seconds)
    return f"{seconds} s"
