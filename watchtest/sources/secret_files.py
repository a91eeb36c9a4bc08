"""Recognizes files that probably hold secrets by their names alone; reads none of them.

Meant for files that git does not track: a tracked file is public already, and tests often use committed certificates.
"""

from __future__ import annotations

import re

NAMES = (
    *(".env", ".env.*", ".env~", ".envrc", "*.env", "*.tfvars"),
    *("secrets.yml", "secrets.yaml", "secrets.json", "secrets.toml"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.ovpn"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
    *(".netrc", "_netrc", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd", ".pgpass", ".my.cnf", ".vault-token"),
    *("service-account*.json", "service_account*.json", "client_secret*.json", "credentials.json"),
)
PLACES = (".aws/credentials", ".docker/config.json", ".kube/config", ".streamlit/secrets.toml")
HARMLESS = re.compile(
    r"\.env\.(?:.*\.)?(?:example|sample|template|tmpl|dist|defaults?|schema|test)|id_.*\.(?:pub|py|md)"
)
REASON = "may hold secrets; to copy it into the box, track it with git or add it to watch.include"

GIT_PATTERNS = tuple(
    "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in pattern)
    for pattern in (*NAMES, *(f"**/{place}" for place in PLACES))
)
"""The same as git patterns: they match at least every path that may hold secrets."""

# Every path of a workspace is checked; these reject nearly all of them quickly.
_STARTS = tuple(name.partition("*")[0] for name in NAMES if not name.startswith("*"))
_ENDS = tuple(name.removeprefix("*") for name in NAMES if name.startswith("*"))
_LAST = frozenset(place.rpartition("/")[2] for place in PLACES)
_EXACTLY = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in NAMES), re.DOTALL)


def may_hold_secrets(path: str) -> bool:
    """Judge a file by its path, relative and POSIX."""
    name = path[path.rfind("/") + 1 :].lower()
    if name.startswith(_STARTS) or name.endswith(_ENDS):
        return _EXACTLY.fullmatch(name) is not None and HARMLESS.fullmatch(name) is None
    return name in _LAST and f"/{path.lower()}".endswith(tuple(f"/{place}" for place in PLACES))
