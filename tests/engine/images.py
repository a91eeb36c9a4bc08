"""The three images of the Docker tests, made by debootstrap and `import`, without a registry.

Each has its own recipe. A tarball of the result stays in the cache folder, and the image carries the digest of its
recipe as a label, so only a changed recipe is rebuilt. Debian's signatures are always checked.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from engine.command import EngineScriptError, kill_running, run
from engine.wire import Engine

PYTHON_311 = "watchtest-test/python:3.11"
PYTHON_313 = "watchtest-test/python:3.13"
BARE = "watchtest-test/bare:latest"
TEST_IMAGE = os.environ.get("WATCHTEST_TEST_IMAGE", "")
"""An image to run the contract and Docker tests with instead, for example with another Python."""

RECIPE_LABEL = "watchtest-test.recipe"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEBOOTSTRAP_TIMEOUT_S = 600.0
TAR_TIMEOUT_S = 120.0

# Files that only take up space, or that debootstrap copies from the host.
_LEFT_OUT = (
    "usr/share/doc/*",
    "usr/share/man/*",
    "usr/share/info/*",
    "usr/share/locale/*",
    "usr/share/lintian/*",
    "var/cache/apt/*.bin",
    "var/cache/apt/archives/*.deb",
    "var/cache/debconf/*-old",
    "var/lib/apt/lists/*",
    "var/log/*.log",
    "var/log/apt/*",
    "etc/hostname",
    "etc/resolv.conf",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    tag: str
    suite: str
    packages: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        text = repr((self.tag, self.suite, self.packages, _LEFT_OUT))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def tarball(self, cache: Path) -> Path:
        return cache / f"{self.tag.replace('/', '-').replace(':', '-')}-{self.digest}.tar"


# pytest comes from Debian, so that a run needs no network; venv brings its own pip.
_PYTHON = ("python3", "python3-venv", "python3-pytest", "ca-certificates")
RECIPES = (
    Recipe(PYTHON_311, "bookworm", _PYTHON),
    Recipe(PYTHON_313, "trixie", _PYTHON),
    Recipe(BARE, "bookworm"),
)


def lack(engine: Engine) -> str | None:
    """Return in one line what the Docker tests lack, or None."""
    if (absence := engine.absence()) is not None:
        return absence
    tags = ", ".join(recipe.tag for recipe in missing(engine))
    return f"the engine at {engine.host} lacks {tags}" if tags else None


def missing(engine: Engine) -> tuple[Recipe, ...]:
    return tuple(recipe for recipe in RECIPES if not _is_there(engine, recipe))


def unbuilt(recipes: tuple[Recipe, ...], cache: Path) -> tuple[Recipe, ...]:
    """Return the images that debootstrap must build because the cache has no tarball of them."""
    return tuple(recipe for recipe in recipes if not recipe.tarball(cache).exists())


def provide(engine: Engine, recipes: tuple[Recipe, ...], cache: Path, say: Callable[[str], None]) -> None:
    """Build all images in parallel, because downloads and unpacking overlap well."""
    _remove_leftovers(cache)
    with ThreadPoolExecutor(max_workers=len(recipes)) as pool:
        builds = [pool.submit(_provide, engine, recipe, cache, say) for recipe in recipes]
        try:
            for build in as_completed(builds):
                build.result()
        except BaseException:
            kill_running()
            raise


def _is_there(engine: Engine, recipe: Recipe) -> bool:
    labels = engine.image_labels(recipe.tag)
    # An image without our label was put there by a person; leave it alone.
    return labels is not None and labels.get(RECIPE_LABEL, recipe.digest) == recipe.digest


def _provide(engine: Engine, recipe: Recipe, cache: Path, say: Callable[[str], None]) -> None:
    tarball = recipe.tarball(cache)
    if not tarball.exists():
        began = time.monotonic()
        _build(recipe, tarball)
        say(f"{recipe.tag}: built from Debian {recipe.suite} in {time.monotonic() - began:.1f} s, kept in {tarball}")
    began = time.monotonic()
    engine.import_image(tarball, recipe.tag, {RECIPE_LABEL: recipe.digest})
    megabytes = tarball.stat().st_size / 1e6
    say(f"{recipe.tag}: {megabytes:.0f} MB imported in {time.monotonic() - began:.1f} s")


def _build(recipe: Recipe, tarball: Path) -> None:
    building = Path(tempfile.mkdtemp(prefix="building-", dir=tarball.parent))
    tree, unfinished = building / "tree", building / "image.tar"
    include = (f"--include={','.join(recipe.packages)}",) if recipe.packages else ()
    try:
        # Use separate mount and process namespaces, so that the /proc that debootstrap mounts in the tree, and every
        # process in the tree, end with the command however it ends.
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        debootstrap = ("debootstrap", "--variant=minbase", "--force-check-gpg", f"--keyring={KEYRING}", *include)
        run(
            (*apart, *debootstrap, recipe.suite, str(tree)),
            timeout_s=DEBOOTSTRAP_TIMEOUT_S,
            environment={"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
        )
        for pattern in _LEFT_OUT:
            for path in tree.glob(pattern):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        pack = ("tar", "--numeric-owner", "-C", str(tree), "-cf", str(unfinished), ".")
        run(pack, timeout_s=TAR_TIMEOUT_S)
        unfinished.rename(tarball)
    finally:
        _remove_tree(building)


def _remove_leftovers(cache: Path) -> None:
    """Remove what a killed `up` left behind. The caller holds the cache's lock, so no build is in progress."""
    for building in cache.glob("building-*"):
        _remove_tree(building)
    kept = {recipe.tarball(cache) for recipe in RECIPES}
    for tarball in cache.glob("watchtest-test-*.tar"):
        if tarball not in kept:
            tarball.unlink()


def _remove_tree(folder: Path) -> None:
    mounts = Path("/proc/self/mountinfo")
    points = [line.split()[4] for line in mounts.read_text().splitlines()] if mounts.exists() else []
    inside = [point for point in points if point.startswith(f"{folder.resolve()}{os.sep}")]
    if inside:
        # Removing through a mount would delete files of the host.
        raise EngineScriptError(f"{folder} is not removed: {', '.join(inside)} is mounted; `umount` it first")
    shutil.rmtree(folder)
