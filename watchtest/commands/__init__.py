"""One file a command: `add_to(subparsers)` says its flags, `run(arguments)` answers with an exit code."""
