"""Installs the packages of a JavaScript sample once into the user's cache and links them into each copy."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import platformdirs
from filelock import FileLock

INSTALL_S = 240


def link_packages(sample: Path, copy: Path) -> None:
    """Give `copy` a node_modules folder. Raises CalledProcessError with npm's output if the packages cannot be
    installed."""
    cache = Path(platformdirs.user_cache_dir("watchtest-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    manifest = (sample / "package.json").read_bytes()
    home = cache / f"{sample.name}-{hashlib.sha256(manifest).hexdigest()[:12]}"
    with FileLock(f"{home}.lock", timeout=INSTALL_S):
        if not home.exists():
            _install(manifest, home)
    (copy / "node_modules").symlink_to(home / "node_modules")


def _install(manifest: bytes, home: Path) -> None:
    """Install atomically: into a folder beside the target, which is then renamed."""
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        Path(folder, "package.json").write_bytes(manifest)
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S, capture_output=True)
        shutil.move(folder, home)
        Path(folder).mkdir()  # npm may need it for its own clean-up
