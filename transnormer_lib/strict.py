"""Config dataclasses from plain values (YAML, JSON); unknown fields and wrong types are refused.

Config classes are standard-library dataclasses, so the core needs no pydantic.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def from_plain(config: type[T], values: Mapping[str, Any]) -> T:
    """``config(**values)`` with every field checked.

    Raises ``ValueError`` in one line, ``field=value: rule``, for the first mistake.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        # Pydantic's JSON mode accepts lists for tuples and mappings for dataclasses, and is strict otherwise.
        return TypeAdapter(config).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        # The config's own checks name the field already.
        prefix = f"{where}: " if first["type"] == "value_error" else f"{where}={first['input']!r}: "
        raise ValueError((prefix if where else "") + message) from None
