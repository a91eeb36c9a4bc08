"""argv → command → exit code. The one error handler: what is expected is said in a line, a bug leaves a crash file.

Only the module of the command that was asked for is imported: `watchtest status` must not pay for the others. Prompts
ask `watchtest status --line` all the time: that does not even pay for argparse.
"""

from __future__ import annotations

import os
import sys

from watchtest import __version__
from watchtest.errors import BY_ITSELF, WatchtestError

TYPE_CHECKING = False  # typing would cost `watchtest status --line` more than all that it does
if TYPE_CHECKING:
    import argparse

BUG = 3
INTERRUPTED = 130
DEFAULT = "watch"
_WITH_VALUE = ("-C", "--workspace", "--config")


def main(argv: list[str] | None = None) -> int:
    """The exit code of a command line. Nothing but a SystemExit of argparse ever leaves it."""
    words = sys.argv[1:] if argv is None else argv
    try:
        glanced_at = _glanced_at(words)
        return _run(_with_command(words)) if glanced_at is None else _glance(glanced_at)
    except WatchtestError as error:
        from watchtest.core.text import clean

        if error.hint == BY_ITSELF:
            error.hint = "try again in a moment"
        print(f"watchtest: {clean(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  the last line of defence: no traceback reaches a user
        from contextlib import suppress

        from watchtest.core.text import clean

        details = _crash_file(error)
        with suppress(OSError):  # of a terminal that has gone: the file tells it
            print(f"watchtest: bug: {type(error).__name__}: {clean(str(error))}", file=sys.stderr)
            print(f"  the details are in {details}; please report it", file=sys.stderr)
        return BUG


def _glanced_at(words: list[str]) -> str | None:
    """The folder whose status a prompt asks for in the usual words; None: it is something else."""
    match words:
        case ["status", "--line"]:
            return "."
        case ["-C" | "--workspace", folder, "status", "--line"]:
            return folder
        case _:
            return None


def _glance(folder: str) -> int:
    from watchtest.client.status_file import glance

    return glance(folder)


def _run(argv: list[str]) -> int:
    arguments = _parser(_command_of(argv)).parse_args(argv)
    return int(arguments.run(arguments))


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The parser with the one command that is needed, or with all of them, for the help."""
    import argparse
    import importlib
    from pathlib import Path

    from watchtest.commands import COMMANDS

    parser = argparse.ArgumentParser(
        prog="watchtest",
        description="Reruns the tests your change can affect, in a persistent container that mirrors your code.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"watchtest {__version__}")
    parser.add_argument("-C", "--workspace", type=Path, metavar="FOLDER", help="the project (default: this folder's)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="read the settings from this file alone")
    parser.set_defaults(main=main)  # `watchtest help COMMAND` is `watchtest COMMAND --help`
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [command] if command in COMMANDS else COMMANDS:
        importlib.import_module(f"watchtest.commands.{name}").add_to(subparsers)
    return parser


def _after_global_options(argv: list[str]) -> int:
    """Where the command is, or should be: behind -C, --workspace and --config."""
    start = 0
    while start < len(argv):
        word = argv[start]
        if word in _WITH_VALUE:
            start += 2
        elif word.startswith(("-C", "--workspace=", "--config=")):
            start += 1
        else:
            break
    return start


def _command_of(argv: list[str]) -> str | None:
    return next((word for word in argv[_after_global_options(argv) :] if not word.startswith("-")), None)


def _with_command(argv: list[str]) -> list[str]:
    """`watchtest` and `watchtest --plain` mean `watchtest watch …`."""
    start = _after_global_options(argv)
    first = argv[start] if start < len(argv) else ""
    if (first and not first.startswith("-")) or first in ("-h", "--help", "--version"):
        return argv
    return [*argv[:start], DEFAULT, *argv[start:]]


def _crash_file(error: Exception) -> str:
    import tempfile
    import time
    import traceback

    text = f"watchtest {__version__}, Python {sys.version}\n{sys.platform}\nargv: {sys.argv}\n\n"
    text += "".join(traceback.format_exception(error))
    stamp = time.strftime("%Y%m%d-%H%M%S")
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"watchtest-crash-{stamp}-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
    ) as file:
        file.write(text)
    return file.name
