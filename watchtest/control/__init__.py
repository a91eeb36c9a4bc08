"""The control API of a running watcher: HTTP on a unix socket of the user, and on a loopback port if configured.

    address ──> sockets ──> server (lifetime) ──> uvicorn_server ──> guard (access) ──> api.routes ──> gateway ──> loop
       │                                                                  │
       └──────> watchtest.client.watcher   api.operations + models (validate requests, make the OpenAPI document)

    loop ──> gateway ──> run_reports · result_log ──> feed (events) · metrics

The API validates requests but decides nothing: a request becomes an event, and `step` decides what to do. A watcher
imports pydantic's models, starlette and uvicorn when its first tests run, and prometheus_client when asked for metrics.
"""
