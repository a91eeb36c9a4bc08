"""A real repository, inspected with real git and without any code of watchtest."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

ENVIRON = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_EDITOR": "true",
    "HOME": os.devnull,
}
Tree = dict[str, tuple[str, int, bytes]]


class Repo:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str, check: bool = True, **environ: str) -> str:
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env={**ENVIRON, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, (arguments, done.stderr)
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def save(self, path: str, content: str | bytes = "") -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def commit(self, message: str = "x") -> str:
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def staged_tree(self, scratch: Path) -> str:
        """Return the result of `git write-tree` on a copy of the index, so that asking changes nothing."""
        copy = scratch / "index-copy"
        directory = self.root / self.git("rev-parse", "--git-dir")
        if (directory / "index").exists():
            shutil.copyfile(directory / "index", copy)
        else:
            copy.unlink(missing_ok=True)
        return self.git("write-tree", GIT_INDEX_FILE=str(copy))

    def exported(self, tree: str, to: Path) -> Tree:
        """Return what a checkout of that tree contains."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        index = to.with_suffix(".index")
        index.unlink(missing_ok=True)
        self.git("read-tree", tree, GIT_INDEX_FILE=str(index))
        self.git("checkout-index", "-a", f"--prefix={to}/", GIT_INDEX_FILE=str(index))
        return tree_of(to)


def tree_of(folder: Path) -> Tree:
    """Return the files and links of a folder: kind, mode as git stores it, content."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        name = path.relative_to(folder).as_posix()
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("symlink", 0o777, os.fsencode(path.readlink()))
        elif stat.S_ISREG(status.st_mode):
            found[name] = ("file", 0o755 if status.st_mode & 0o100 else 0o644, path.read_bytes())
    return found


OPERATIONS = (
    "save",
    "save",
    "save",
    "add",
    "add all",
    "patch",
    "rm",
    "mv",
    "commit",
    "amend",
    "reset",
    "hard",
    "stash",
)


def operate(repo: Repo, chance: random.Random, number: int) -> None:
    """Do one thing that a developer does; git may refuse it."""
    names = ["a.py", "b c.py", "d/e.py", "d/f/g.py", "ü.txt", "link"]
    path = chance.choice(names)
    file = repo.root / path
    match chance.choice([*OPERATIONS, "switch", "chmod"]):
        case "save" if path == "link":
            file.unlink(missing_ok=True)
            file.symlink_to(chance.choice(["a.py", "d", "nowhere"]))
        case "save":
            if file.is_symlink() or not file.parent.is_dir():
                return
            file.write_text("".join(f"{chance.randint(0, 9)}\n" for _ in range(chance.randint(0, 20))))
        case "add":
            repo.git("add", "--", path, check=False)
        case "add all":
            repo.git("add", "-A")
        case "patch":
            # Take the first hunk of a difference, as `add -p` would.
            stage_one_hunk(repo, path)
        case "rm":
            repo.git("rm", "--quiet", "-f", "--", path, check=False)
        case "mv":
            repo.git("mv", path, f"moved-{number}.py", check=False)
        case "chmod":
            repo.git("update-index", f"--chmod={chance.choice('+-')}x", path, check=False)
        case "commit":
            repo.git("commit", "--quiet", "-m", str(number), check=False)
        case "amend":
            repo.git("commit", "--quiet", "--amend", "--no-edit", "--allow-empty", check=False)
        case "reset":
            repo.git("reset", "--quiet", check=False)
        case "hard":
            repo.git("reset", "--quiet", "--hard", chance.choice(["HEAD", "HEAD~1"]), check=False)
        case "stash":
            repo.git("stash", "--quiet", check=False)
            repo.git("stash", "pop", "--quiet", "--index", check=False)
        case "switch":
            repo.git("checkout", "--quiet", "-f", chance.choice(["main", "other"]), check=False)
    if repo.git("ls-files", "--unmerged"):
        repo.git("reset", "--quiet", "--hard")


def stage_one_hunk(repo: Repo, path: str) -> None:
    answers = b"y\nn\nn\nn\nn\nn\nn\nn\n"
    subprocess.run(
        ["git", "add", "-p", "--", path], cwd=repo.root, env=ENVIRON, input=answers, capture_output=True, timeout=30
    )
