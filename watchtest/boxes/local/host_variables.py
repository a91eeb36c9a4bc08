"""Which variables of the host's environment a local box has. Everything else stays out: tokens, keys, agents' sockets.

Carried are the language, the clock, the terminal and the programs with what they need, and the host's way to the
package index, because the local box goes that same way. Names are spelled out: a prefix such as UV_ would also let its
tokens in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from watchtest.boxes.local.zz_boxes_local_toolchains import installations, toolchain_variables

PLAIN = ("LANG", "LANGUAGE", "TZ", "TERM", "COLORTERM", "NO_COLOR", "USER", "LOGNAME", "LD_LIBRARY_PATH")
CERTIFICATES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
)
FIND_LINKS = ("PIP_FIND_LINKS", "UV_FIND_LINKS")
PACKAGE_INDEX = (
    *FIND_LINKS,
    "PIP_CONFIG_FILE",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_TRUSTED_HOST",
    "PIP_PROXY",
    "PIP_TIMEOUT",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_RETRIES",
    "PIP_CONSTRAINT",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_NATIVE_TLS",
    "UV_OFFLINE",
    "UV_HTTP_TIMEOUT",
)
PIP_SETTINGS = (".config/pip/pip.conf", "Library/Application Support/pip/pip.conf", ".pip/pip.conf")


def carried(environ: Mapping[str, str], *, certificates: str, is_sandboxed: bool) -> dict[str, str]:
    """`certificates` as in box.ca: auto (the host's variables), off, or the path of a bundle."""
    names = [*PLAIN, *PACKAGE_INDEX, *(CERTIFICATES if certificates == "auto" else ())]
    if not is_sandboxed:
        names.append("TMPDIR")  # else /tmp is the box's own
    kept = {name: environ[name] for name in names if name in environ}
    kept |= {name: value for name, value in environ.items() if name.startswith("LC_")}
    kept |= toolchain_variables(environ, is_sandboxed=is_sandboxed)
    kept["PATH"] = _path_without_virtualenv(environ)
    if certificates not in ("auto", "off"):
        bundle = str(Path(certificates).expanduser().absolute())
        kept |= dict.fromkeys((name for name in CERTIFICATES if name != "SSL_CERT_DIR"), bundle)
    settings = _pip_settings(environ)
    if settings and "PIP_CONFIG_FILE" not in kept:
        # The home in the box is another one, and pip would not find them there.
        kept["PIP_CONFIG_FILE"] = settings
    return kept


def files_named(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Files and folders of the host that these variables point at."""
    single = [variables.get(name, "") for name in (*CERTIFICATES, "PIP_CONFIG_FILE", "PIP_CONSTRAINT")]
    several = [path for name in FIND_LINKS for path in variables.get(name, "").replace(",", " ").split()]
    named = [path for path in (*single, *several) if path.startswith("/")]
    return tuple(dict.fromkeys([*named, *installations(variables)]))


def _pip_settings(environ: Mapping[str, str]) -> str:
    home, configuration = environ.get("HOME"), environ.get("XDG_CONFIG_HOME")
    candidates = [Path(configuration, "pip", "pip.conf")] if configuration else []
    candidates += [Path(home, name) for name in PIP_SETTINGS] if home else []
    return next((str(file) for file in candidates if file.is_file()), "")


def _path_without_virtualenv(environ: Mapping[str, str]) -> str:
    """The user's activated virtualenv must not leak into the box's own."""
    folders = (environ.get("PATH") or os.defpath).split(os.pathsep)
    active = environ.get("VIRTUAL_ENV")
    if active:
        folders = [folder for folder in folders if Path(active) not in (Path(folder), *Path(folder).parents)]
    return os.pathsep.join(folders)
