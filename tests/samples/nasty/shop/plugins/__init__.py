"""Finds its plugins by looking."""

import importlib
import pkgutil


def load():
    modules = [importlib.import_module(__name__ + "." + found.name) for found in pkgutil.iter_modules(__path__)]
    return {module.__name__.rpartition(".")[2]: module.NAME for module in modules}
