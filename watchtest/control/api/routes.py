"""The handlers of the control API, one for each operation. They read requests and write answers; the gateway acts.

Every error is answered with {code, message, hint}.
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

from watchtest import __version__
from watchtest.config import json_schema
from watchtest.config.loader import check_text
from watchtest.control.api.openapi import document
from watchtest.control.api.operations import BODY_LIMIT, CONFIG_LIMIT, OPERATIONS, Operation
from watchtest.control.api.request_models import RUN_ID, NothingModel, ScreenQuery, parse_body, parse_query
from watchtest.control.feed import CLIENTS_LIMIT, EVENTS_LIMIT, FeedClient
from watchtest.control.gateway import ApiContext
from watchtest.control.guard import REQUESTS_LIMIT
from watchtest.control.metrics import Metrics
from watchtest.control.refusal import Refusal
from watchtest.control.run_reports import RunReport
from watchtest.core.state import LaneState, settle_status
from watchtest.errors import WatchtestError
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.schemas import status_schema

log = logging.getLogger(__name__)
BODY_TIMEOUT_S = 5.0
DRAIN_LIMIT = 16 * 1024 * 1024
"""How much of a body that is too large is read and discarded, so that the client gets the refusal."""
VALIDATIONS_LIMIT = 4
"""How many configs are checked or wait to be checked; each costs time."""
# The connection ends with the stream, because a client that kept it would wait for more in vain.
STREAM_HEADERS = {"cache-control": "no-store", "connection": "close", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose query and body were validated by the models of its operation."""

    request: Request
    query: Any
    body: Any

    @property
    def run_id(self) -> str:
        run_id: str = self.request.path_params["id"]
        if not RUN_ID.fullmatch(run_id):
            raise Refusal(404, "no_such_run", "not a run id", "`watchtest history list` shows the runs")
        return run_id


Handler = Callable[[Call], Awaitable[Response]]


class JsonResponse(Response):
    """JSON in ASCII, so that no name of a test or path can send control sequences to a terminal."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class EventStream(Response):
    """Server-sent events, until the client disconnects or the feed ends."""

    media_type = "text/event-stream"

    def __init__(self, client: FeedClient) -> None:
        super().__init__(headers=STREAM_HEADERS)
        del self.headers["content-length"]
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._client:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] != "HEAD":
                await self._stream(receive, send)
            await send({"type": "http.response.body", "body": b""})

    async def _stream(self, receive: Receive, send: Send) -> None:
        disconnect = asyncio.create_task(self._wait_for_disconnect(receive), name="client of the event stream")
        try:
            while chunk := await self._client.read():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            disconnect.cancel()
            await asyncio.gather(disconnect, return_exceptions=True)

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._client.leave()


def application(context: ApiContext) -> Starlette:
    """Return the API as an ASGI application."""
    handlers = Handlers(context)
    return Starlette(
        routes=[
            Route(operation.path, _endpoint(operation, getattr(handlers, operation.name)), methods=[operation.method])
            for operation in OPERATIONS
        ],
        exception_handlers={
            Refusal: _refusal_response,
            WatchtestError: _error_response,
            HTTPException: _http_error_response,
            Exception: _bug_response,
        },
    )


def _endpoint(operation: Operation, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        query = parse_query(operation.query or NothingModel, request.query_params.multi_items())
        body = None
        if operation.body is not None:
            body = parse_body(operation.body, await _read_body(request, operation.body_limit))
        return await handle(Call(request, query, body))

    return endpoint


class Handlers:
    """A method for each operation, of the same name."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._gateway = gateway = context.gateway
        self._openapi: dict[str, Any] | None = None
        self._validating = asyncio.Lock()
        self._validations = 0
        self._metrics = Metrics(lambda: gateway.state, gateway.metric_counts, gateway.feed, __version__)

    # -- the watcher -------------------------------------------------------------------------------

    async def health(self, call: Call) -> Response:
        return JsonResponse({"status": "ok", **self._context.identity})

    async def info(self, call: Call) -> Response:
        context = self._context
        lanes = {lane.lane.value: lane.policy.value for lane in self._gateway.state.ranked}
        return JsonResponse(
            {
                **context.identity,
                "started_at": context.started_at,
                "python": platform.python_version(),
                "platform": platform.platform(),
                "lanes": dict.fromkeys(("save", "stage", "commit")) | lanes,
                **context.addresses,
                "limits": {
                    "body_bytes": BODY_LIMIT,
                    "config_bytes": CONFIG_LIMIT,
                    "events_kept": EVENTS_LIMIT,
                    "event_clients": CLIENTS_LIMIT,
                    "requests": REQUESTS_LIMIT,
                },
            }
        )

    async def schema(self, call: Call) -> Response:
        return JsonResponse({"status": status_schema(), "config": json_schema()})

    async def openapi(self, call: Call) -> Response:
        if self._openapi is None:
            self._openapi = await asyncio.to_thread(document, __version__)
        return JsonResponse(self._openapi)

    async def status(self, call: Call) -> Response:
        return JsonResponse(self._context.status())

    async def metrics(self, call: Call) -> Response:
        text, media_type = self._metrics.render(call.request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media_type})

    async def events(self, call: Call) -> Response:
        return EventStream(self._gateway.feed.connect(call.request.headers.get("last-event-id", "").strip()))

    # -- runs --------------------------------------------------------------------------------------

    async def runs(self, call: Call) -> Response:
        reports, next_id = await self._gateway.runs(call.query)
        return JsonResponse({"runs": [report.document() for report in reports], "next": next_id or None})

    async def run(self, call: Call) -> Response:
        return _run_response(await self._gateway.request_run(call.body))

    async def report(self, call: Call) -> Response:
        return JsonResponse((await self._gateway.report(call.run_id)).document())

    async def results(self, call: Call) -> Response:
        report, page = await self._gateway.results(call.run_id, call.query)
        run = {"run": report.id, "state": report.state.value, "ended": report.has_ended}
        return JsonResponse({**run, **page.document()})

    async def cancel(self, call: Call) -> Response:
        return _run_response(await self._gateway.stop(call.run_id, is_kill=False))

    async def kill(self, call: Call) -> Response:
        return _run_response(await self._gateway.stop(call.run_id, is_kill=True))

    # -- lanes -------------------------------------------------------------------------------------

    async def pause(self, call: Call) -> Response:
        return await self._pause(call, is_paused=True)

    async def resume(self, call: Call) -> Response:
        return await self._pause(call, is_paused=False)

    async def _pause(self, call: Call, *, is_paused: bool) -> Response:
        lanes = await self._gateway.pause(call.body.lane, is_paused=is_paused)
        return JsonResponse({"lanes": {lane.value: {"paused": paused} for lane, paused in lanes.items()}})

    async def look(self, call: Call) -> Response:
        return _settle_response(await self._gateway.rescan(call.body.lane))

    async def rest(self, call: Call) -> Response:
        return _settle_response(self._gateway.lane(call.query.lane))

    async def policy(self, call: Call) -> Response:
        lane = await self._gateway.set_policy(call.body)
        policies = {"policy": lane.effective_policy.value, "configured": lane.policy.value}
        return JsonResponse({"lane": lane.lane.value, **policies})

    # -- the rest ----------------------------------------------------------------------------------

    async def screen(self, call: Call) -> Response:
        query = call.query
        return JsonResponse(await self._context.screens.document(_view(query), query.height, query.after))

    async def output(self, call: Call) -> Response:
        return JsonResponse({"text": await self._context.screens.backend.output(_view(call.query))})

    async def why(self, call: Call) -> Response:
        return JsonResponse(await self._gateway.why(call.query.what, call.query.lane))

    async def validate(self, call: Call) -> Response:
        if self._validations >= VALIDATIONS_LIMIT:
            text = f"{self._validations} configs are being checked already"
            raise Refusal(429, "busy", text, "try again in a moment")
        self._validations += 1
        try:
            async with self._validating:
                problems = await asyncio.to_thread(check_text, call.body.text, call.body.file)
        finally:
            self._validations -= 1
        return JsonResponse({"valid": not problems, "problems": problems})


def _view(query: ScreenQuery) -> ViewState:
    return ViewState(query.panel, query.filter, bool(query.typing), query.chosen)


def _settle_response(lane: LaneState) -> Response:
    status = settle_status(lane)
    return JsonResponse({"lane": lane.lane.value, "settled": status.is_settled, "waits_for": status.waits_for or None})


def _run_response(report: RunReport) -> Response:
    return JsonResponse(report.document(), status_code=200 if report.has_ended else 202)


async def _read_body(request: Request, limit: int) -> bytes:
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
        raise Refusal(408, "too_slow", f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise Refusal(400, "bad_request", "the body is incomplete") from None
    if size > limit:
        hint = "name folders or files instead of tests" if limit == BODY_LIMIT else ""
        raise Refusal(413, "too_large", f"the body exceeds the limit of {limit} bytes", hint)
    return content


async def _refusal_response(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JsonResponse(error.document(), status_code=error.status)


async def _error_response(request: Request, error: Exception) -> Response:
    """Answer when something that the watcher needs is unavailable, such as a damaged history."""
    assert isinstance(error, WatchtestError)
    log.warning("a control request could not be answered: %s", error)
    return await _refusal_response(request, Refusal(503, error.code, error.message, error.hint))


async def _http_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no_such_route", 405: "wrong_method"}.get(error.status_code, "bad_request")
    text = f"{request.method} {request.scope['path']}: {error.detail}"
    response = await _refusal_response(request, Refusal(error.status_code, code, text))
    response.headers.update(error.headers or {})
    return response


async def _bug_response(request: Request, error: Exception) -> Response:
    log.error("a bug ended a control request", exc_info=error)
    text = f"internal error: {type(error).__name__}: {error}"
    return await _refusal_response(request, Refusal(500, "bug", text, "see the log for details"))
