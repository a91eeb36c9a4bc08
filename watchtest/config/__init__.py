"""The settings of a workspace: which keys exist, where values come from, and what is wrong with them.

    keys           every key with its type, limits, default and description; the JSON Schema
    loader         reads the layers and combines them: flag > environment > workspace file > user file > default
    problems       turns pydantic's errors into our messages
    toml_lines     finds the line of each key in a TOML file
    toml_literal   formats a value as TOML

Nothing here reads the environment, the home folder or the current folder by itself; they are arguments.
"""

from watchtest.config.keys import Config, ReadySettings, ServiceSettings, json_schema
from watchtest.config.loader import LoadedConfig, Project, load

__all__ = ["Config", "LoadedConfig", "Project", "ReadySettings", "ServiceSettings", "json_schema", "load"]
