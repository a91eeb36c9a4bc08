"""Real container engines for the tests, from nothing: `python tests/engine up | status | down`.

Finds a Docker engine or starts one, starts a podman beside it, makes the test images without a registry, stops only
what it started. Standard library alone: it runs before the virtualenv exists. Never used by watchtest itself.
"""
