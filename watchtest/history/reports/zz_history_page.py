"""The report page: one file, nothing from the network. Whatever tests are called or say is data, never markup. Pure."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from pathlib import Path

ASSETS = Path(__file__).with_name("assets")

# JSON knows these only inside of strings, where an escape says the same.
_HARMFUL = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def page(data: Mapping[str, object]) -> str:
    """The only script that runs is our own: the page's policy names its digest."""
    style, script = ((ASSETS / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"{data['name']} · watchtest"),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": embedded(data),
    }
    text = (ASSETS / "page.html").read_text(encoding="utf-8")
    before, *rest = text.split("{{")
    # One pass: what is put in is not looked at again.
    for part in rest:
        name, _, after = part.partition("}}")
        before += parts[name] + after
    return before


def embedded(data: object) -> str:
    """JSON that a script element can hold, whatever is in it."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).translate(_HARMFUL)
    return text.encode("utf-8", "replace").decode("utf-8")
