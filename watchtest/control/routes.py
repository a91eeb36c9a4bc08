"""The routes of the control API. Reads requests and writes answers; what they mean is the desk's.

    GET  /health               who answers
    GET  /status               the status document, as of now
    POST /runs                 {lane?, tests? | policy?} → 202 and the report of a run that will reach an end
    GET  /runs/{id}            the report of a run, on its way or past; `current` is the one under way
    POST /runs/{id}/cancel     → 202 while it is being ended, 200 once it has ended; asking twice changes nothing
    POST /runs/{id}/kill       the same, at once
    GET  /why?what=W&lane=L    why a test ran or did not, or who depends on a file
    POST /look                 {lane?} → look at the source now, as if all of it had changed
    GET  /look?lane=L          → {lane, settled, waits_for}: settled once everything it was told of is judged
    POST /pause, /resume       {lane?} → the lanes, and which of them are paused

Whatever is refused is answered by {code, message, hint}.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from watchtest.control.desk import Desk
from watchtest.control.reports import RunReport
from watchtest.control.wishes import BODY_LIMIT, Refusal, lane_query, lane_wish, no_wish, run_id, run_wish, why_wish
from watchtest.core.model import Lane
from watchtest.core.resting import Rest

log = logging.getLogger(__name__)
BODY_TIMEOUT_S = 5.0
DRAIN_LIMIT = 16 * 1024 * 1024
"""So much of a body that is too long is read and thrown away, so that its sender hears why it is refused."""

Handler = Callable[[Request], Awaitable[Response]]


def application(desk: Desk, status: Callable[[], dict[str, Any]], about: dict[str, Any]) -> Starlette:
    """The API over this desk; `status` gives the status document, `about` says who answers."""

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok", **about})

    async def show_status(_request: Request) -> Response:
        return JSONResponse(status())

    async def ask(request: Request) -> Response:
        report = await desk.run(run_wish(await _body(request)))
        return _report(report)

    async def show_run(request: Request) -> Response:
        return JSONResponse((await desk.report(_id(request))).document)

    async def why(request: Request) -> Response:
        return JSONResponse(await desk.why(*why_wish(request.query_params.multi_items())))

    async def look(request: Request) -> Response:
        lane, rest = await desk.look(lane_wish(await _body(request)))
        return _rest(lane, rest)

    async def show_rest(request: Request) -> Response:
        return _rest(*desk.rest(lane_query(request.query_params.multi_items())))

    def stop(is_kill: bool) -> Handler:
        async def handle(request: Request) -> Response:
            no_wish(await _body(request))
            return _report(await desk.stop(_id(request), is_kill=is_kill))

        return handle

    def pause(is_paused: bool) -> Handler:
        async def handle(request: Request) -> Response:
            lanes = await desk.pause(lane_wish(await _body(request)), is_paused=is_paused)
            return JSONResponse({"lanes": {lane.value: {"paused": paused} for lane, paused in lanes.items()}})

        return handle

    return Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/status", show_status, methods=["GET"]),
            Route("/why", why, methods=["GET"]),
            Route("/look", look, methods=["POST"]),
            Route("/look", show_rest, methods=["GET"]),
            Route("/runs", ask, methods=["POST"]),
            Route("/runs/{id}", show_run, methods=["GET"]),
            Route("/runs/{id}/cancel", stop(is_kill=False), methods=["POST"]),
            Route("/runs/{id}/kill", stop(is_kill=True), methods=["POST"]),
            Route("/pause", pause(is_paused=True), methods=["POST"]),
            Route("/resume", pause(is_paused=False), methods=["POST"]),
        ],
        exception_handlers={Refusal: _refused, HTTPException: _not_served, Exception: _failed},
    )


def _id(request: Request) -> str:
    return run_id(request.path_params["id"])


def _rest(lane: Lane, rest: Rest) -> Response:
    return JSONResponse({"lane": lane.value, "settled": rest.is_settled, "waits_for": rest.waits_for or None})


def _report(report: RunReport) -> Response:
    return JSONResponse(report.document, status_code=200 if report.has_ended else 202)


async def _body(request: Request) -> bytes:
    content, size = b"", 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= BODY_LIMIT:
                    content += chunk
                elif size > DRAIN_LIMIT:
                    break
    except TimeoutError:
        raise Refusal(408, "too_slow", f"the body has not come within {BODY_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise Refusal(400, "bad_request", "the body ended before its end") from None
    if size > BODY_LIMIT:
        raise Refusal(413, "too_large", f"a body may have {BODY_LIMIT} bytes", "name folders or files instead of tests")
    return content


def _answer(status: int, code: str, message: str, hint: str) -> Response:
    return JSONResponse({"code": code, "message": message, "hint": hint}, status_code=status)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return _answer(error.status, error.code, error.message, error.hint)


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "no_such_route", 405: "wrong_method"}.get(error.status_code, "bad_request")
    answer = _answer(error.status_code, code, f"{request.method} is not served here: {error.detail}", "")
    answer.headers.update(error.headers or {})
    return answer


async def _failed(_request: Request, error: Exception) -> Response:
    log.error("a control request failed by a bug", exc_info=error)
    return _answer(500, "bug", f"internal error: {type(error).__name__}: {error}", "the log has the details")
