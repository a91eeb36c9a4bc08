"""What a command such as `pip install -e .[test]` or `uv sync --group test` installs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from watchtest.boxes.recipe.languages.python.requirement_lists import distribution

SELF = re.compile(r"\.{1,2}/?|\.?/?\[(?P<bare>[^\]]*)\]|(?:\./?|\S*toxinidir\S*|\S*tox_root\S*)\[(?P<extras>[^\]]*)\]")
OPTIONS = {
    **dict.fromkeys(("-r", "--requirement", "--requirements"), "files"),
    **dict.fromkeys(("--extra", "--extras", "-E"), "extras"),
    **dict.fromkeys(("--group", "-G", "--with", "--only-group", "--only"), "groups"),
}
IGNORED_OPTIONS = frozenset(
    {"-c", "--constraint", "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-p", "--python", "-t"}
    | {"--target", "--prefix", "--root", "--resolution", "--index", "--directory", "--project", "-C", "--no-group"}
    | {
        "--no-binary",
        "--only-binary",
        "--timeout",
        "--log",
        "--cache-dir",
        "--package",
        "--without",
        "--upgrade-package",
    }
)
"""Options whose value is not something to install."""


@dataclass(slots=True)
class InstallRequest:
    """What is installed, and by what."""

    origin: str
    extras: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    requirements: list[str] = field(default_factory=list)
    has_all_extras: bool = False

    def add(self, words: Sequence[str]) -> None:
        """Add the arguments of an installation."""
        waiting = list(words)
        while waiting:
            word = waiting.pop(0)
            option, equals, value = word.partition("=")
            if word[:2] in ("-r", "-e") and len(word) > 2:
                option, equals, value = word[:2], "=", word[2:].strip()
            if option == "--all-extras":
                self.has_all_extras = True
            elif option in ("-e", "--editable"):
                waiting[:0] = [value] if equals else []
            elif option in OPTIONS or option in IGNORED_OPTIONS:
                value = value if equals else waiting.pop(0) if waiting else ""
                self._add_option(OPTIONS.get(option, ""), value)
            elif not word.startswith("-"):
                self._add_requirement(word)

    def _add_option(self, what: str, value: str) -> None:
        if what == "files":
            self.files.append(value)
        elif what:
            named = [name for name in re.split(r"[,\s]+", value) if re.fullmatch(r"[\w.-]+", name)]
            (self.extras if what == "extras" else self.groups).extend(name for name in named if name != ":all")
            self.has_all_extras |= what == "extras" and ":all" in value

    def _add_requirement(self, word: str) -> None:
        if found := SELF.fullmatch(word):
            self.extras += re.findall(r"[\w.-]+", found["extras"] or found["bare"] or "")
        elif distribution(word) and not re.search(r"[{}$*]|\.(whl|gz|zip|txt)$", word):
            self.requirements.append(word)

    def add_lines(self, lines: Iterable[str]) -> None:
        """Add lines such as those of a requirements file."""
        for line in lines:
            text = re.sub(r"(^|\s)#.*", "", line).strip()
            self.add([text] if not text.startswith("-") else split(text))


def split(line: str) -> list[str]:
    """Return the words of a shell command, as far as it can be read."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()
