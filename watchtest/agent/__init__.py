"""The program inside the box. Standard library only, Python >= 3.8, sent over its own stdin; nothing is installed.

main      the serving loop: frames in, frames out
frames    how a message looks on the wire (the host reads with the same code)
mirror    the tree in the box: what is ours, whether it is still so, applying a delta
job       one supervised process: limits, output, results, the ladder that stops it; launch starts it,
          jobs has one at a time
supervise the small process around a job that leaves no descendant behind
holding   locks that a dead holder frees, and processes known by their environment
steward   the process that keeps services as they were ordered; stewardlink and servicerelay are the agent's line to it
service   one service: its states, its restarts and their limit; with supervised, ready, servicelog
pytest_plugin   what runs inside the project's own pytest, with pytest_failure; workers has worker_plugin run in those
          of pytest-xdist
zygote    the process that warm runs are forked from: warmup makes it fit, parking begins runs ahead of their save;
          zygotelink is the agent's line to it, parked that to a run which waits; learned is what it preloads
recorder  what tests touch: by listeners, forks and opened it hears of it, scopes own it, askers and keeping judge it;
          recording is the plugin that begins and ends scopes; prints, with leaving, are what is compared after a change
unittest_runner, unittest_loader, unittest_result   the same inside unittest; testrows is what both write
"""

import os

PROTOCOL = 1
FOLDER = os.path.dirname(os.path.abspath(__file__))
LOADER = """\
spec = importlib.util.spec_from_file_location(
    'watchtest_agent', os.path.join(folder, '__init__.py'), submodule_search_locations=[folder])
package = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = package
spec.loader.exec_module(package)
"""
"""Source that loads this package from `folder` under its own name, so that no folder of ours is on the tests' path."""
