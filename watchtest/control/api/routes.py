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
from watchtest.control.api import models
from watchtest.control.api.openapi import document
from watchtest.control.api.operations import OPERATIONS, Operation
from watchtest.control.api.requests import BODY_LIMIT, CONFIG_LIMIT, Refusal, read_body, read_query, run_id
from watchtest.control.feed import EVENTS_LIMIT, LISTENERS_LIMIT, Listener
from watchtest.control.gateway import Desk
from watchtest.control.guard import REQUESTS_LIMIT
from watchtest.control.metrics import Metrics
from watchtest.control.run_reports import RunReport
from watchtest.core.model import Lane
from watchtest.core.state import SettleStatus
from watchtest.errors import WatchtestError
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.watcher_screen import ScreenRequest, ScreenServer
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


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose query and body were validated by the models of its operation."""

    request: Request
    query: Any
    body: Any

    @property
    def run_id(self) -> str:
        return run_id(self.request.path_params["id"])


Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Served:
    """All that the API tells of. `status` gives the status document, `about` says who answers, `reach` where."""

    desk: Desk
    status: Callable[[], dict[str, Any]]
    about: dict[str, Any]
    reach: Callable[[], dict[str, Any]]
    started_at: str
    screens: ScreenServer


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
            Route(operation.path, _endpoint(operation, getattr(handlers, operation.name)), methods=[operation.method])
            for operation in OPERATIONS
        ],
        exception_handlers={
            Refusal: _refused,
            WatchtestError: _unable,
            HTTPException: _not_served,
            Exception: _failed,
        },
    )


def _endpoint(operation: Operation, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        query = read_query(operation.query or models.Nothing, request.query_params.multi_items())
        body = None
        if operation.body is not None:
            body = read_body(operation.body, await _body(request, operation.body_limit))
        return await handle(Call(request, query, body))

    return endpoint


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

    async def health(self, call: Call) -> Response:
        return Answer({"status": "ok", **self._served.about})

    async def info(self, call: Call) -> Response:
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

    async def schema(self, call: Call) -> Response:
        return Answer({"status": status_schema(), "config": json_schema()})

    async def openapi(self, call: Call) -> Response:
        if self._openapi is None:
            version = str(self._served.about.get("version", ""))
            self._openapi = await asyncio.to_thread(document, version)
        return Answer(self._openapi)

    async def status(self, call: Call) -> Response:
        return Answer(self._served.status())

    async def metrics(self, call: Call) -> Response:
        text, media_type = self._metrics.exposed(call.request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media_type})

    async def events(self, call: Call) -> Response:
        return EventStream(self._desk.feed.listen(call.request.headers.get("last-event-id", "").strip()))

    # -- runs --------------------------------------------------------------------------------------

    async def runs(self, call: Call) -> Response:
        reports, following = await self._desk.runs(call.query)
        return Answer({"runs": [report.document for report in reports], "next": following or None})

    async def run(self, call: Call) -> Response:
        return _report(await self._desk.run(call.body))

    async def report(self, call: Call) -> Response:
        return Answer((await self._desk.report(call.run_id)).document)

    async def results(self, call: Call) -> Response:
        report, page = await self._desk.results(call.run_id, call.query)
        about = {"run": report.id, "state": report.state.value, "ended": report.has_ended}
        return Answer({**about, **page.document(result_document)})

    async def cancel(self, call: Call) -> Response:
        return await self._stop(call, is_kill=False)

    async def kill(self, call: Call) -> Response:
        return await self._stop(call, is_kill=True)

    async def _stop(self, call: Call, *, is_kill: bool) -> Response:
        return _report(await self._desk.stop(call.run_id, is_kill=is_kill))

    # -- the rest ----------------------------------------------------------------------------------

    async def pause(self, call: Call) -> Response:
        return await self._pause(call, is_paused=True)

    async def resume(self, call: Call) -> Response:
        return await self._pause(call, is_paused=False)

    async def _pause(self, call: Call, *, is_paused: bool) -> Response:
        lanes = await self._desk.pause(call.body.lane, is_paused=is_paused)
        return Answer({"lanes": {lane.value: {"paused": paused} for lane, paused in lanes.items()}})

    async def look(self, call: Call) -> Response:
        return _rest(*await self._desk.look(call.body.lane))

    async def rest(self, call: Call) -> Response:
        return _rest(*self._desk.rest(call.query.lane))

    async def policy(self, call: Call) -> Response:
        lane = await self._desk.policy(call.body)
        policies = {"policy": lane.effective_policy.value, "configured": lane.policy.value}
        return Answer({"lane": lane.lane.value, **policies})

    async def screen(self, call: Call) -> Response:
        return Answer(await self._served.screens.document(_screen_request(call.query)))

    async def output(self, call: Call) -> Response:
        return Answer({"text": await self._served.screens.output(_screen_request(call.query))})

    async def why(self, call: Call) -> Response:
        return Answer(await self._desk.why(call.query.what, call.query.lane))

    async def validate(self, call: Call) -> Response:
        if self._validations >= VALIDATIONS_LIMIT:
            raise Refusal(429, "busy", f"{self._validations} texts are being checked", "try again in a moment")
        self._validations += 1
        try:
            async with self._validating:
                problems = await asyncio.to_thread(check_text, call.body.text, call.body.file)
        finally:
            self._validations -= 1
        return Answer({"valid": not problems, "problems": problems})


def _screen_request(query: models.ScreenQuery) -> ScreenRequest:
    view = ViewState(query.panel, query.filter, bool(query.typing), query.chosen)
    return ScreenRequest(query.height, view, query.after)


def _rest(lane: Lane, rest: SettleStatus) -> Response:
    return Answer({"lane": lane.value, "settled": rest.is_settled, "waits_for": rest.waits_for or None})


def _report(report: RunReport) -> Response:
    return Answer(report.document, status_code=200 if report.has_ended else 202)


async def _body(request: Request, limit: int) -> bytes:
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
