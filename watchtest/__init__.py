"""watchtest: save, and know. The map of the house:

    files, git ──> sources/watch ──> loop (inbox) ──> core/step(state, event) ──> effects
                                                                  │
        boxes: ensure ─> sync ─> runners: select, execute ─> history: record        (pipeline.py, then running.py)
                                                                  │
                              state ──> views: dashboard · plain · statusfile · notify · control (socket)

core/ decides and touches nothing; pipeline.py says how one run goes; loop.py is the only place that starts tasks.
agent/ is shipped into the box: standard library only, Python >= 3.8. Everything concrete is put together in app.py.
"""

__version__ = "0.1.0"
