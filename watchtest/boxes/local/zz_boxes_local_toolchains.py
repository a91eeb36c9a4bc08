"""What the host's toolchains for Go, Rust and JavaScript need to be of use in a local box, whose home is another one.

What they build and download belongs to the box. Where they themselves lie, and their way to the packages, is the
host's; names are spelled out, because files and variables beside these hold tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

PACKAGES = (
    *("GOPROXY", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOSUMDB", "GOINSECURE", "GOVCS"),
    *("CARGO_NET_OFFLINE", "CARGO_HTTP_CAINFO", "CARGO_HTTP_PROXY", "CARGO_NET_GIT_FETCH_WITH_CLI"),
    *("npm_config_registry", "NPM_CONFIG_REGISTRY", "npm_config_cafile", "NPM_CONFIG_CAFILE"),
    *("YARN_NPM_REGISTRY_SERVER", "COREPACK_NPM_REGISTRY"),
)
VERSIONS = ("GOROOT", "GOTOOLCHAIN", "CGO_ENABLED", "CC", "CXX", "RUSTUP_TOOLCHAIN", "RUSTUP_AUTO_INSTALL", "JAVA_HOME")
CACHES = ("GOCACHE", "GOMODCACHE")
"""Written by every build: of use only where there is no wall around them."""
HOMES = {"RUSTUP_HOME": ".rustup", "NVM_DIR": ".nvm", "VOLTA_HOME": ".volta", "ASDF_DATA_DIR": ".asdf"}
"""Where programs on PATH look for what they start, and where in a home that is unless the variable says otherwise."""
REGISTRY = re.compile(r"^\s*registry\s*=\s*(\S+)\s*$", re.MULTILINE)


def toolchain_variables(environ: Mapping[str, str], *, is_sandboxed: bool) -> dict[str, str]:
    names = (*PACKAGES, *VERSIONS, *(() if is_sandboxed else CACHES))
    kept = {name: environ[name] for name in names if name in environ}
    home = environ.get("HOME", "")
    for name, folder in HOMES.items():
        place = environ.get(name) or (str(Path(home, folder)) if home else "")
        if place and Path(place).is_dir():
            kept[name] = place
    if home and not {"npm_config_registry", "NPM_CONFIG_REGISTRY"} & kept.keys():
        kept |= _registry(Path(home, ".npmrc"))
    return kept


def installations(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Folders of the host that programs on this PATH cannot do without, beside those they lie in."""
    found = [variables[name] for name in (*HOMES, "GOROOT", "JAVA_HOME") if name in variables]
    for folder in map(Path, variables.get("PATH", "").split(os.pathsep)):
        packages = folder.parent / "lib" / "node_modules"
        if packages.is_dir():
            found.append(str(packages))  # npm and its kin are links into it
        if (folder.parent / "src" / "runtime").is_dir() and (folder / "go").exists():
            found.append(str(folder.parent))
    return tuple(dict.fromkeys(path for path in found if path.startswith("/")))


def _registry(settings: Path) -> dict[str, str]:
    """Of the user's settings only this line: the others may be tokens."""
    try:
        found = REGISTRY.search(settings.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}
    return {"npm_config_registry": found[1]} if found else {}
