"""How commands speak with a running watcher: HTTP on a unix socket of the user's own.

    address ──> listening (the watcher's end) ──> server (its lifetime) ──> serving (uvicorn) ──> routes (starlette)
        │                                                                                            │
        └─────> client (a command's end)                          wishes (checked bodies), desk (the loop's inbox)

Everything is checked here and decided nowhere: a request becomes an event, and `step` decides what comes of it.
Only `serving` and `routes` import what is heavy, and only the watcher imports them, once its first tests run.
"""
