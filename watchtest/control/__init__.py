"""The control API of a running watcher: HTTP on a unix socket of the user, and on a loopback port if configured.

    address ──> sockets ──> server (lifetime) ──> uvicorn_server ──> guard (access) ──> api.routes ──> gateway ──> loop
       │                                                                  │
       └──────> client (for commands)      api.operations + models (validate requests, make the OpenAPI document)

    loop ──> gateway ──> run_reports · result_log · event_messages ──> feed (events) · metric_counts ──> metrics

The API validates requests but decides nothing: a request becomes an event, and `step` decides what to do. The modules
that import pydantic, starlette, uvicorn or prometheus_client are loaded only by a watcher, when its first tests run.
"""
