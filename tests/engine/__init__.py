"""A real container engine for the tests, from nothing: `python tests/engine up | status | down`.

Finds an engine or starts one, makes the test images without a registry, stops only what it started. Standard
library alone: it runs before the virtualenv exists. Never used by watchtest itself.
"""
