"""The program that runs inside the box. Standard library only, Python >= 3.8; its source arrives over its own stdin.

main, bootstrap      the serving loop, and the few lines that unpack and start it
frames, messages     the protocol with the host, and the one between our own processes
rows, failures       what a test process reports, and how it describes an exception; the host reads the same rows
mirror, owned_paths  the tree in the box: which paths are ours, whether they are unchanged, how a delta is applied
box_lock             locks that the system frees when their holder dies
agent_error          the exception that the agent reports to its host
jobs/                one supervised process at a time: limits, output, results, how it is stopped
services/            the service manager, a process that keeps services running between jobs
warm/                the zygote that warm runs are forked from
record/              what each test touches: functions, files, child processes
code/                fingerprints of Python files, and what can be read from their code objects
in_pytest/, in_unittest/   what runs inside the project's own test process
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
"""Source that loads this package from `folder` as `watchtest_agent`, without adding a folder to the tests' sys.path."""
