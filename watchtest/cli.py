"""The entry point: runs the command that the arguments name, and turns every error into a message and an exit code.

Only the module of that command is imported, so that commands start fast. Shell prompts call `watchtest status --line`
all the time, so it does not even import argparse.
"""

from __future__ import annotations

import os
import sys

from watchtest import __version__, exit_codes
from watchtest.errors import BY_ITSELF, WatchtestError, WorkspaceError

TYPE_CHECKING = False  # importing typing would take longer than all of `watchtest status --line`
if TYPE_CHECKING:
    import argparse

DEFAULT = "watch"
SEARCH_PATHS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
"""The variables that say where programs, modules and libraries are looked for."""
OPTIONS_WITH_VALUE = ("-C", "--workspace", "--config")
EPILOG = """\
words:
  box   the container in which your tests run; it stays between runs
  lane  a trigger (save, stage or commit) with the code it tests and its own box
  gate  the command that a git hook calls to get the verdict on a commit

`watchtest COMMAND --help` shows the options of a command.
`watchtest help` lists the topics of the reference."""


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code. Raises nothing but the SystemExit of argparse."""
    words = sys.argv[1:] if argv is None else argv
    if argv is None:
        _protect_process()
    try:
        match words:
            case ["status", "--line"] | ["-C" | "--workspace", _, "status", "--line"]:
                from watchtest.client.status_file import print_status_line

                return print_status_line(words[1] if len(words) > 2 else ".")
            case _:
                words = _with_command(words)
                start = _after_global_options(words)
                command = next((word for word in words[start:] if not word.startswith("-")), None)
                arguments = _parser(command).parse_args(words)
                return _run(arguments)
    except WatchtestError as error:
        from watchtest.core.text import clean

        if error.hint == BY_ITSELF:
            error.hint = "try again in a moment"
        print(f"watchtest: {clean(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it. Without this, Python would fail again when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  a bug must not show the user a traceback
        from contextlib import suppress

        from watchtest.core.text import clean

        details = _crash_file(error)
        with suppress(OSError):  # the terminal may be gone; the file has it all
            print(f"watchtest: bug: {type(error).__name__}: {clean(str(error))}", file=sys.stderr)
            print(f"  the details are in {details}; please report it", file=sys.stderr)
        return exit_codes.BUG


def _run(arguments: argparse.Namespace) -> int:
    """Run the command; once more if it needs the user's consent and gets it on the terminal."""
    try:
        return int(arguments.run(arguments))
    except WorkspaceError as error:
        if error.code != "consent":
            raise
        from watchtest.commands.trust import is_granted_now

        if not is_granted_now(error):
            raise
    return int(arguments.run(arguments))


def _protect_process() -> None:
    """Let nothing of the current folder, which may be a hostile repository, run or reach the terminal unchecked."""
    from watchtest.core.text import CleanStream

    if sys.stdout is not None:
        sys.stdout = CleanStream(sys.stdout)
    if sys.stderr is not None:
        sys.stderr = CleanStream(sys.stderr)
    # A relative entry, also an empty one, is another folder for each process that has another current folder.
    relative = [""]
    for name in SEARCH_PATHS:
        entries = os.environ.pop(name, "").split(os.pathsep)
        relative += [entry for entry in entries if not os.path.isabs(entry)]
        if kept := [entry for entry in entries if os.path.isabs(entry)]:
            os.environ[name] = os.pathsep.join(kept)
    try:
        unsafe = set(map(os.path.abspath, relative))
    except FileNotFoundError:  # the current folder is gone
        return
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.path[:] = [entry for entry in sys.path if entry == own or entry not in unsafe]


def _parser(command: str | None) -> argparse.ArgumentParser:
    """Return the parser with the command that is needed; with all commands for the help and for an unknown one."""
    import argparse
    from pathlib import Path

    from watchtest.commands import COMMANDS, CommandHelp, add_module

    parser = argparse.ArgumentParser(
        prog="watchtest",
        description="Reruns the tests your change can affect, in a persistent container that mirrors your code.",
        epilog=EPILOG,
        formatter_class=CommandHelp,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"watchtest {__version__}")
    project = "the project (default: the git repository around the current folder)"
    parser.add_argument("-C", "--workspace", type=Path, metavar="FOLDER", help=project)
    config = "use this file instead of the project's config files"
    parser.add_argument("--config", type=Path, metavar="FILE", help=config)
    parser.set_defaults(main=main)  # for `watchtest help COMMAND`, which is `watchtest COMMAND --help`
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in [command] if command in COMMANDS else COMMANDS:
        add_module(subparsers, name)
    return parser


def _after_global_options(argv: list[str]) -> int:
    """Return the position of the command: behind -C, --workspace and --config."""
    start = 0
    while start < len(argv) and argv[start].startswith(("-C", "--workspace", "--config")):
        start += 2 if argv[start] in OPTIONS_WITH_VALUE else 1
    return start


def _with_command(argv: list[str]) -> list[str]:
    """Insert the default command: `watchtest --plain` means `watchtest watch --plain`."""
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
    prefix = f"watchtest-crash-{time.strftime('%Y%m%d-%H%M%S')}-"
    with tempfile.NamedTemporaryFile("wb", prefix=prefix, suffix=".txt", delete=False) as file:
        file.write(text.encode("utf-8", "replace"))
    return file.name
