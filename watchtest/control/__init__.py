"""How commands and other programs speak with a running watcher: HTTP on a unix socket of the user's own, and on a port
of the loopback where that is asked for.

    address ──> listening (the watcher's ends) ──> server (its lifetime) ──> serving (uvicorn) ──> guard ──> routes
        │                                                                                                     │
        └─────> client (a command's end)      operations + models (described once) ──> openapi      wishes (checked)
                                                                                                              │
    loop ──> desk ──> reports · journal (results) · telling ──> feed ──> streaming (events) · tally ──> metrics

Everything is checked here and decided nowhere: a request becomes an event, and `step` decides what comes of it.
Only `serving`, `routes`, `streaming`, `metrics`, `models`, `operations` and `openapi` import what is heavy, and only
the watcher imports them, once its first tests run.
"""
