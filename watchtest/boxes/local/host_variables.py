"""Choose the variables of the host's environment that a local box gets; tokens, keys and agent sockets stay out.

The box gets the language, the time zone, the terminal, PATH, and the settings for package indexes and toolchains. What
toolchains build and download stays in the box, which has a home of its own. Every name is spelled out, because a
prefix such as UV_ would also let tokens in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from watchtest.boxes.ca_bundle import CA_VARIABLES

PACKAGES = (
    *("GOPROXY", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOSUMDB", "GOINSECURE", "GOVCS"),
    *("CARGO_NET_OFFLINE", "CARGO_HTTP_CAINFO", "CARGO_HTTP_PROXY", "CARGO_NET_GIT_FETCH_WITH_CLI"),
    *("npm_config_registry", "NPM_CONFIG_REGISTRY", "npm_config_cafile", "NPM_CONFIG_CAFILE"),
    *("YARN_NPM_REGISTRY_SERVER", "COREPACK_NPM_REGISTRY"),
)
VERSIONS = ("GOROOT", "GOTOOLCHAIN", "CGO_ENABLED", "CC", "CXX", "RUSTUP_TOOLCHAIN", "RUSTUP_AUTO_INSTALL", "JAVA_HOME")
CACHES = ("GOCACHE", "GOMODCACHE")
"""Every build writes to these, so they are useless in a sandbox."""
HOMES = {"RUSTUP_HOME": ".rustup", "NVM_DIR": ".nvm", "VOLTA_HOME": ".volta", "ASDF_DATA_DIR": ".asdf"}
"""Variables by which programs on PATH find their installation, and their default folders in the user's home."""
REGISTRY = re.compile(r"^\s*registry\s*=\s*(\S+)\s*$", re.MULTILINE)


def toolchain_variables(environ: Mapping[str, str], *, is_sandboxed: bool) -> dict[str, str]:
    names = (*PACKAGES, *VERSIONS, *(() if is_sandboxed else CACHES))
    variables = {name: environ[name] for name in names if name in environ}
    home = environ.get("HOME", "")
    for name, folder in HOMES.items():
        path = environ.get(name) or (str(Path(home, folder)) if home else "")
        if path and Path(path).is_dir():
            variables[name] = path
    if home and not {"npm_config_registry", "NPM_CONFIG_REGISTRY"} & variables.keys():
        variables |= _registry(Path(home, ".npmrc"))
    return variables


def _registry(settings: Path) -> dict[str, str]:
    """Return only the registry from the user's npm settings; other lines may be tokens."""
    try:
        found = REGISTRY.search(settings.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return {}
    return {"npm_config_registry": found[1]} if found else {}


GENERAL = ("LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "USER", "LOGNAME", "LD_LIBRARY_PATH")
CERTIFICATES = (*CA_VARIABLES, "SSL_CERT_DIR")
FIND_LINKS = ("PIP_FIND_LINKS", "UV_FIND_LINKS")
PACKAGE_INDEX = (
    *FIND_LINKS,
    *("PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_TRUSTED_HOST", "PIP_PROXY"),
    *("PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CONSTRAINT"),
    *("UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INSECURE_HOST", "UV_NATIVE_TLS"),
    *("UV_OFFLINE", "UV_HTTP_TIMEOUT"),
)
PIP_SETTINGS = (".config/pip/pip.conf", "Library/Application Support/pip/pip.conf", ".pip/pip.conf")


def box_environ(environ: Mapping[str, str], *, certificates: str, is_sandboxed: bool) -> dict[str, str]:
    """Return the environment of a local box. `certificates` is box.ca: auto, off, or the path of a bundle."""
    names = [*GENERAL, *PACKAGE_INDEX, *(CERTIFICATES if certificates == "auto" else ())]
    if not is_sandboxed:
        names.append("TMPDIR")  # in a sandbox, /tmp is private
    variables = {name: environ[name] for name in names if name in environ}
    variables |= {name: value for name, value in environ.items() if name.startswith("LC_")}
    variables |= toolchain_variables(environ, is_sandboxed=is_sandboxed)
    variables["PATH"] = _path_without_virtualenv(environ)
    if certificates not in ("auto", "off"):
        bundle = str(Path(certificates).expanduser().absolute())
        variables |= dict.fromkeys(CA_VARIABLES, bundle)
    settings = _pip_settings(environ)
    if settings and "PIP_CONFIG_FILE" not in variables:
        # pip would not find them in the home of the box.
        variables["PIP_CONFIG_FILE"] = settings
    return variables


def files_named(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files and folders of the host that these variables name, or that programs on their PATH need."""
    single = [variables.get(name, "") for name in (*CERTIFICATES, "PIP_CONFIG_FILE", "PIP_CONSTRAINT")]
    found = [*single, *(path for name in FIND_LINKS for path in variables.get(name, "").replace(",", " ").split())]
    found += [variables[name] for name in (*HOMES, "GOROOT", "JAVA_HOME") if name in variables]
    for folder in map(Path, variables.get("PATH", "").split(os.pathsep)):
        packages = folder.parent / "lib" / "node_modules"
        if packages.is_dir():
            found.append(str(packages))  # npm and similar tools are links into it
        if (folder.parent / "src" / "runtime").is_dir() and (folder / "go").exists():
            found.append(str(folder.parent))
    return tuple(dict.fromkeys(path for path in found if path.startswith("/")))


def _pip_settings(environ: Mapping[str, str]) -> str:
    home, configuration = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    candidates = [Path(configuration, "pip", "pip.conf")] if configuration else []
    candidates += [Path(home, name) for name in PIP_SETTINGS] if home else []
    return next((str(file) for file in candidates if file.is_file()), "")


def _path_without_virtualenv(environ: Mapping[str, str]) -> str:
    """Return PATH without the user's active virtualenv, which must not leak into the box."""
    folders = (environ.get("PATH") or os.defpath).split(os.pathsep)
    active = environ.get("VIRTUAL_ENV")
    if active:
        folders = [folder for folder in folders if Path(active) not in (Path(folder), *Path(folder).parents)]
    return os.pathsep.join(folders)
