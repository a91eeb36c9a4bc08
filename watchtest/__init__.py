"""watchtest reruns the tests that a change can affect, in a persistent container that mirrors your code.

    files, git ──> sources ──> loop (inbox) ──> core/step(state, event) ──> effects
                                                        │
        boxes: ensure ─> sync ─> selection ─> runners: execute ─> history: record      (pipeline.py, execution.py)
                                                        │
                    state ──> views: dashboard, lines, status file, notifications ──> control: HTTP API

`core` makes every decision and has no side effects. `pipeline.py` describes one run, `loop.py` is the only module that
starts tasks, and `app.py` puts everything together. `agent` runs inside the box: standard library only, Python >= 3.8.
`watchtest help development` describes every package.
"""

__version__ = "0.1.0"
