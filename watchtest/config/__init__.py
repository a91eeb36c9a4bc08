"""The settings of one workspace: what they may be, where they came from, and what is wrong with them.

    model     every key with its type, limits, default and description; the JSON Schema
    load      flag > environment > workspace file > user file > default, each value with its origin
    layers    what one file, the environment or the command line says by itself
    shape     a pattern that text must match, and the words for when it does not
    problems  pydantic's findings in our words, one line each
    tables    the same for what is special about [[runners]] and [[services]]
    lines     the line of a file on which a key stands
    literal   a value as TOML would write it
    explain   `config show`

Nothing here reads the environment, the home folder or the current folder by itself: they come in as arguments.
"""

from watchtest.config.keys import (
    Api,
    Box,
    Config,
    History,
    Network,
    Notify,
    Policy,
    Ready,
    Runner,
    RunnerChoice,
    Service,
    Triggers,
    Watch,
    json_schema,
    keys,
)
from watchtest.config.layers import Origin
from watchtest.config.loader import Loaded, load

__all__ = [
    "Api",
    "Box",
    "Config",
    "History",
    "Loaded",
    "Network",
    "Notify",
    "Origin",
    "Policy",
    "Ready",
    "Runner",
    "RunnerChoice",
    "Service",
    "Triggers",
    "Watch",
    "json_schema",
    "keys",
    "load",
]
