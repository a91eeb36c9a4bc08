"""Which files are likely to hold secrets, by their names. Reads none of them.

Only for files that git does not track: what is tracked is published already, and tests use committed certificates.
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
REASON = "may hold secrets: to have it in the box, track it with git or name it in watch.include"

GIT_PATTERNS = tuple(
    "".join(f"[{letter}{letter.upper()}]" if letter.isalpha() else letter for letter in pattern)
    for pattern in (*NAMES, *(f"**/{place}" for place in PLACES))
)
"""The same for git: at least every path that may hold secrets matches one."""

# Asked about every path of a workspace: nearly all of them are done with these, at the speed of C.
_STARTS = tuple(name.partition("*")[0] for name in NAMES if not name.startswith("*"))
_ENDS = tuple(name.removeprefix("*") for name in NAMES if name.startswith("*"))
_LAST = frozenset(place.rpartition("/")[2] for place in PLACES)
_EXACTLY = re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in NAMES), re.DOTALL)


def may_hold_secrets(path: str) -> bool:
    """By the path of a file, relative and POSIX."""
    name = path[path.rfind("/") + 1 :].lower()
    if name.startswith(_STARTS) or name.endswith(_ENDS):
        return _EXACTLY.fullmatch(name) is not None and HARMLESS.fullmatch(name) is None
    return name in _LAST and f"/{path.lower()}".endswith(tuple(f"/{place}" for place in PLACES))
