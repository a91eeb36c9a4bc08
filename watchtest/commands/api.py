"""`watchtest api`: show how programs reach the watcher.

Print the addresses and the token of the running watcher's HTTP API, or its OpenAPI document.

    watchtest api show
    curl -H "Authorization: Bearer $(watchtest api token)" "$(watchtest api url)/status"
"""

from __future__ import annotations

import argparse

from watchtest import __version__
from watchtest.client.watcher import Watcher
from watchtest.commands import add_command, print_json
from watchtest.errors import ControlError
from watchtest.workspace.folder import find_workspace

TURN_ON = 'set api.listen = "127.0.0.1:7357" (port 0 picks a free one) and restart the watcher'


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="api_action", metavar="show|url|token|openapi", required=True)
    show = add_command(verbs, "show", _show, _show.__doc__)
    show.add_argument("--json", action="store_true", help="print JSON, with versions and limits")
    add_command(verbs, "url", _url, _url.__doc__)
    token = add_command(verbs, "token", _token, _token.__doc__)
    token.add_argument("--file", action="store_true", help="print the path of the file that holds it")
    add_command(verbs, "openapi", _openapi, _openapi.__doc__)


def _show(arguments: argparse.Namespace) -> int:
    """`watchtest api show`: print socket, URL and token file of the running watcher.

    Print socket, URL and token file of the running watcher, and a command to try them with.

        watchtest api show
    """
    info = Watcher(arguments).get("/info")
    if arguments.json:
        print_json(info)
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
    """`watchtest api url`: print its TCP address.

    Print the URL at which the watcher listens on TCP. It does so only if api.listen is set.

        watchtest api url
    """
    url = Watcher(arguments).get("/info")["url"]
    if url is None:
        raise ControlError("the watcher does not listen on TCP", hint=TURN_ON)
    print(url)
    return 0


def _token(arguments: argparse.Namespace) -> int:
    """`watchtest api token`: print the token to send as `Authorization: Bearer TOKEN`.

    Print the token that requests over TCP must send as `Authorization: Bearer TOKEN`.

        watchtest api token
        watchtest api token --file
    """
    from watchtest.control.address import read_token, token_file
    from watchtest.workspace.user_dirs import state_dir

    file = token_file(state_dir(), find_workspace(arguments.workspace))
    token = read_token(file)
    if not token:
        raise ControlError(f"{file} holds no token yet", hint=TURN_ON)
    print(file if arguments.file else token)
    return 0


def _openapi(_arguments: argparse.Namespace) -> int:
    """`watchtest api openapi`: print the OpenAPI document.

    Print the OpenAPI document of the API. Needs no watcher.

        watchtest api openapi > openapi.json
    """
    from watchtest.control.api.openapi import document

    print_json(document(__version__))
    return 0
