"""Provides real container engines for the tests: `python tests/engine up | status | down`.

Finds a Docker engine or starts one, starts a podman beside it, makes the test images without a registry, and stops only
what it started. It uses only the standard library, because it runs before the virtualenv exists. watchtest itself never
uses it.
"""
