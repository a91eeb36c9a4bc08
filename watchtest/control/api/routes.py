"""The handlers of the control API, one for each of its operations, and what becomes of what is refused.

Reads requests and writes answers; what they mean is the desk's. Whatever is refused is answered by
{code, message, hint}.

A client that listens to the feed, as a response that ends when the client leaves or the feed lets go of it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import platform
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from watchtest.config import json_schema
from watchtest.config.loader import check_text
from watchtest.control.api import requests as wishes
from watchtest.control.api.openapi import document
from watchtest.control.api.operations import OPERATIONS
from watchtest.control.api.requests import BODY_LIMIT, CONFIG_LIMIT, Refusal
from watchtest.control.feed import EVENTS_LIMIT, LISTENERS_LIMIT, Listener
from watchtest.control.gateway import Desk
from watchtest.control.guard import REQUESTS_LIMIT
from watchtest.control.metrics import Metrics
from watchtest.control.run_reports import RunReport
from watchtest.core.model import Lane
from watchtest.core.state import SettleStatus
from watchtest.errors import WatchtestError
from watchtest.views.dashboard.watcher_screen import Screens
from watchtest.views.status.status_document import activity, result_document
from watchtest.views.status.status_schema import status_schema

# Its end is the end of the connection, too: a client that waits for more would wait in vain.
HEADERS = {"cache-control": "no-store", "connection": "close", "x-accel-buffering": "no"}


class EventStream(Response):
    """Server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, listener: Listener) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]  # nobody knows it
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._listener:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._stream(receive, send)
            await send({"type": "http.response.body", "body": b""})

    async def _stream(self, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(self._until_it_leaves(receive), name="a listener of events")
        try:
            while told := await self._listener.read():
                await send({"type": "http.response.body", "body": told, "more_body": True})
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _until_it_leaves(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._listener.leave()


log = logging.getLogger(__name__)
BODY_TIMEOUT_S = 5.0
DRAIN_LIMIT = 16 * 1024 * 1024
"""So much of a body that is too long is read and thrown away, so that its sender hears why it is refused."""
VALIDATIONS_LIMIT = 4
"""Texts that are checked or wait to be: each is work."""

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Served:
    """All that the API tells of. `status` gives the status document, `about` says who answers, `reach` where."""

    desk: Desk
    status: Callable[[], dict[str, Any]]
    about: dict[str, Any]
    reach: Callable[[], dict[str, Any]]
    started_at: str
    screens: Screens


class Answer(Response):
    """JSON in ASCII: whatever a test or a path is called, nothing in it steers a terminal, and no byte is wrong."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def application(served: Served) -> Starlette:
    """The API over a desk."""
    handlers = Handlers(served)
    return Starlette(
        routes=[
            Route(operation.path, getattr(handlers, operation.name), methods=[operation.method])
            for operation in OPERATIONS
        ],
        exception_handlers={
            Refusal: _refused,
            WatchtestError: _unable,
            HTTPException: _not_served,
            Exception: _failed,
        },
    )


class Handlers:
    """A method for each operation, of the same name."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._desk = served.desk
        self._openapi: dict[str, Any] | None = None
        self._validating = asyncio.Lock()
        self._validations = 0
        self._metrics = Metrics(
            lambda: served.desk.state,
            served.desk.tally,
            activity=activity,
            feed=served.desk.feed,
            version=str(served.about.get("version", "")),
        )

    # -- who and what ------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        _no_query(request)
        return Answer({"status": "ok", **self._served.about})

    async def info(self, request: Request) -> Response:
        _no_query(request)
        served = self._served
        lanes = {lane.lane.value: lane.policy.value for lane in self._desk.state.ranked}
        return Answer(
            {
                **served.about,
                "started_at": served.started_at,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "lanes": dict.fromkeys(("save", "stage", "commit")) | lanes,
                **served.reach(),
                "limits": {
                    "body_bytes": BODY_LIMIT,
                    "config_bytes": CONFIG_LIMIT,
                    "events_kept": EVENTS_LIMIT,
                    "event_clients": LISTENERS_LIMIT,
                    "requests": REQUESTS_LIMIT,
                },
            }
        )

    async def schema(self, request: Request) -> Response:
        _no_query(request)
        return Answer({"status": status_schema(), "config": json_schema()})

    async def openapi(self, request: Request) -> Response:
        _no_query(request)
        if self._openapi is None:
            version = str(self._served.about.get("version", ""))
            self._openapi = await asyncio.to_thread(document, version)
        return Answer(self._openapi)

    async def status(self, request: Request) -> Response:
        _no_query(request)
        return Answer(self._served.status())

    async def metrics(self, request: Request) -> Response:
        _no_query(request)
        text, media_type = self._metrics.exposed(request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media_type})

    async def events(self, request: Request) -> Response:
        _no_query(request)
        return EventStream(self._desk.feed.listen(request.headers.get("last-event-id", "").strip()))

    # -- runs --------------------------------------------------------------------------------------

    async def runs(self, request: Request) -> Response:
        reports, following = await self._desk.runs(wishes.runs_wish(_query(request)))
        return Answer({"runs": [report.document for report in reports], "next": following or None})

    async def run(self, request: Request) -> Response:
        _no_query(request)
        return _report(await self._desk.run(wishes.run_wish(await _body(request))))

    async def report(self, request: Request) -> Response:
        _no_query(request)
        return Answer((await self._desk.report(_id(request))).document)

    async def results(self, request: Request) -> Response:
        report, page = await self._desk.results(_id(request), wishes.results_wish(_query(request)))
        about = {"run": report.id, "state": report.state.value, "ended": report.has_ended}
        return Answer({**about, **page.document(result_document)})

    async def cancel(self, request: Request) -> Response:
        return await self._stop(request, is_kill=False)

    async def kill(self, request: Request) -> Response:
        return await self._stop(request, is_kill=True)

    async def _stop(self, request: Request, *, is_kill: bool) -> Response:
        _no_query(request)
        wishes.no_wish(await _body(request))
        return _report(await self._desk.stop(_id(request), is_kill=is_kill))

    # -- the rest ----------------------------------------------------------------------------------

    async def pause(self, request: Request) -> Response:
        return await self._pause(request, is_paused=True)

    async def resume(self, request: Request) -> Response:
        return await self._pause(request, is_paused=False)

    async def _pause(self, request: Request, *, is_paused: bool) -> Response:
        _no_query(request)
        lanes = await self._desk.pause(wishes.lane_wish(await _body(request)), is_paused=is_paused)
        return Answer({"lanes": {lane.value: {"paused": paused} for lane, paused in lanes.items()}})

    async def look(self, request: Request) -> Response:
        _no_query(request)
        return _rest(*await self._desk.look(wishes.lane_wish(await _body(request))))

    async def rest(self, request: Request) -> Response:
        return _rest(*self._desk.rest(wishes.lane_query(_query(request))))

    async def policy(self, request: Request) -> Response:
        _no_query(request)
        lane = await self._desk.policy(wishes.policy_wish(await _body(request)))
        policies = {"policy": lane.effective_policy.value, "configured": lane.policy.value}
        return Answer({"lane": lane.lane.value, **policies})

    async def screen(self, request: Request) -> Response:
        return Answer(await self._served.screens.document(wishes.screen_wish(_query(request))))

    async def output(self, request: Request) -> Response:
        return Answer({"text": await self._served.screens.text(wishes.screen_wish(_query(request)))})

    async def why(self, request: Request) -> Response:
        return Answer(await self._desk.why(*wishes.why_wish(_query(request))))

    async def validate(self, request: Request) -> Response:
        _no_query(request)
        wish = wishes.config_wish(await _body(request, CONFIG_LIMIT))
        if self._validations >= VALIDATIONS_LIMIT:
            raise Refusal(429, "busy", f"{self._validations} texts are being checked", "try again in a moment")
        self._validations += 1
        try:
            async with self._validating:
                problems = await asyncio.to_thread(check_text, wish.text, wish.file)
        finally:
            self._validations -= 1
        return Answer({"valid": not problems, "problems": problems})


def _query(request: Request) -> wishes.Query:
    return request.query_params.multi_items()


def _no_query(request: Request) -> None:
    wishes.no_query(_query(request))


def _id(request: Request) -> str:
    return wishes.run_id(request.path_params["id"])


def _rest(lane: Lane, rest: SettleStatus) -> Response:
    return Answer({"lane": lane.value, "settled": rest.is_settled, "waits_for": rest.waits_for or None})


def _report(report: RunReport) -> Response:
    return Answer(report.document, status_code=200 if report.has_ended else 202)


async def _body(request: Request, limit: int = BODY_LIMIT) -> bytes:
    content, size = b"", 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= limit:
                    content += chunk
                elif size > DRAIN_LIMIT:
                    break
    except TimeoutError:
        raise Refusal(408, "too_slow", f"the body has not come within {BODY_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise Refusal(400, "bad_request", "the body ended before its end") from None
    if size > limit:
        hint = "name folders or files instead of tests" if limit == BODY_LIMIT else ""
        raise Refusal(413, "too_large", f"a body may have {limit} bytes", hint)
    return content


def _answer(status: int, code: str, message: str, hint: str) -> Response:
    return Answer({"code": code, "message": message, "hint": hint}, status_code=status)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _answer(error.status, error.code, error.message, error.hint)


async def _unable(_request: Request, error: Exception) -> Response:
    """What the watcher needs for an answer cannot be had: a history that is damaged."""
    assert isinstance(error, WatchtestError)
    log.warning("a control request could not be answered: %s", error)
    return _answer(503, error.code, error.message, error.hint)


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no_such_route", 405: "wrong_method"}.get(error.status_code, "bad_request")
    answer = _answer(error.status_code, code, f"{request.method} is not served here: {error.detail}", "")
    answer.headers.update(error.headers or {})
    return answer


async def _failed(_request: Request, error: Exception) -> Response:
    log.error("a control request failed by a bug", exc_info=error)
    return _answer(500, "bug", f"internal error: {type(error).__name__}: {error}", "the log has the details")
