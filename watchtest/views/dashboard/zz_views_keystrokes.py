"""Bytes of a terminal as keys: a printable character is itself, the others have names. Pure, but for its memory.

What is no key that anybody uses here (function keys, answers of the terminal, pastes' brackets) is left out, whole: the
letters that such a sequence is made of are not keys.
"""

from __future__ import annotations

import codecs
import re

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "up", "down", "enter", "escape", "backspace"
NAMES = {
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1bOB": DOWN,
    "\r": ENTER,
    "\n": ENTER,
    "\x7f": BACKSPACE,
    "\x08": BACKSPACE,
    "\x1b": ESCAPE,
}
_KEY = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # arrows and most function keys
    r"|\x1bO."  # the same in another mode
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # answers of the terminal
    r"|\x1b"
    r"|.",
    re.DOTALL,
)


_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
"""The beginning of a sequence; or the key Escape, which is the beginning of them all."""


class Keystrokes:
    """Takes bytes as they come; what is cut in two is told once it is whole.

    A slow line cuts sequences, too: while `is_waiting`, `rest` takes what has come for all there is.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._begun = ""

    @property
    def is_waiting(self) -> bool:
        return bool(self._begun)

    def told(self, typed: bytes) -> list[str]:
        text = self._begun + self._decoder.decode(typed)
        begun = _BEGUN.search(text)
        self._begun = begun.group() if begun else ""
        return self._keys(text.removesuffix(self._begun))

    def rest(self) -> list[str]:
        begun, self._begun = self._begun, ""
        return self._keys(begun if begun == "\x1b" else "")

    def _keys(self, text: str) -> list[str]:
        found = []
        for match in _KEY.finditer(text):
            said = match.group()
            if said in NAMES:
                found.append(NAMES[said])
            elif len(said) == 1 and said.isprintable():
                found.append(said)
        return found
