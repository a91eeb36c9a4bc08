"""A pattern that text must match, with the words its writer reads when it does not.

pydantic's own `pattern` would do, but its message shows the regular expression; nobody mends a config by reading one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

SHAPE = "shape"  # the error type by which problems.py knows that the message is already ours
NOT_TEXT = "must be valid UTF-8 text"


@dataclass(frozen=True, slots=True)
class Shape:
    pattern: str  # anchored, because JSON Schema searches
    demand: str

    def check(self, value: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:  # bytes of an environment variable that are no text
            raise PydanticCustomError(SHAPE, "{demand}", {"demand": NOT_TEXT}) from None
        if re.fullmatch(self.pattern, value) is None:  # `$` alone would let a line break through
            raise PydanticCustomError(SHAPE, "{demand}", {"demand": self.demand})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return handler(schema) | {"pattern": self.pattern}
