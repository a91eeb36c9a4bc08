"""The certificates that the host trusts beyond the usual ones: users behind a proxy need them in the box, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from watchtest.errors import ConfigError

BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")
"""Variables of the host that name a whole bundle, the most important first."""
CA_VARIABLES = (*BUNDLE_VARIABLES, "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
"""Variables that make the tools in a box trust a bundle."""


def ca_bundle(setting: str, environ: Mapping[str, str]) -> bytes:
    """Return the bundle that `box.ca` stands for: a path, `auto` (the host's variables) or `off`."""
    if setting == "off":
        return b""
    file = setting if setting != "auto" else next((environ[name] for name in BUNDLE_VARIABLES if environ.get(name)), "")
    if not file:
        return b""
    try:
        return Path(file).expanduser().read_bytes()
    except OSError as error:
        if setting == "auto":
            return b""
        raise ConfigError(
            f'box.ca = "{setting}": cannot be read: {error.strerror}', hint='name a file of certificates, or use "off"'
        ) from error
