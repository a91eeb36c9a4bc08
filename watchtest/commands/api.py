"""`watchtest api`: where and how programs reach the running watcher, and what they may ask of it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from watchtest import __version__
from watchtest.client.watcher import Watcher
from watchtest.errors import ControlError
from watchtest.workspace.folder import find_workspace

TURN_ON = 'set api.listen = "127.0.0.1:7357" (or port 0 for any that is free) and start the watcher again'


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("api", help="where programs reach the running watcher, and what they may ask")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="api_action", metavar="show|url|token|openapi", required=True)
    show = actions.add_parser("show", help="socket, URL and token file of the running watcher")
    show.add_argument("--json", action="store_true", help="as JSON, with versions and limits")
    actions.add_parser("url", help="where it listens on TCP")
    token = actions.add_parser("token", help="the token for that, to be sent as `Authorization: Bearer TOKEN`")
    token.add_argument("--file", action="store_true", help="the file that holds it")
    actions.add_parser("openapi", help="print the OpenAPI document")


def run(arguments: argparse.Namespace) -> int:
    match arguments.api_action:
        case "show":
            return _show(arguments)
        case "url":
            return _url(arguments)
        case "token":
            return _token(arguments)
        case _:
            return _openapi()


def _show(arguments: argparse.Namespace) -> int:
    info = Watcher(arguments).get("/info")
    if arguments.json:
        print(json.dumps(info, indent=2))
        return 0
    print(f"socket  {info['socket']}")
    print(f"url     {info['url'] or f'none: {TURN_ON}'}")
    if info["url"]:
        print(f"token   {info['token_file']}")
        print(f'try     curl -H "Authorization: Bearer $(watchtest api token)" {info["url"]}/status')
    else:
        print(f"try     curl --unix-socket {info['socket']} http://localhost/status")
    return 0


def _url(arguments: argparse.Namespace) -> int:
    url = Watcher(arguments).get("/info")["url"]
    if url is None:
        raise ControlError("the watcher does not listen on TCP", hint=TURN_ON)
    print(url)
    return 0


def _token(arguments: argparse.Namespace) -> int:
    from watchtest.control.address import kept_token, token_file
    from watchtest.workspace.user_dirs import state_dir

    file = token_file(state_dir(), find_workspace(arguments.workspace or Path.cwd()))
    token = kept_token(file)
    if not token:
        raise ControlError(f"there is no token yet in {file}", hint=TURN_ON)
    print(file if arguments.file else token)
    return 0


def _openapi() -> int:
    from watchtest.control.api.openapi import document

    print(json.dumps(document(__version__), indent=2))
    return 0
