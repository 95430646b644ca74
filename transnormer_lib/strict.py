"""Plain values (YAML, JSON) into the project's config dataclasses, strictly. A leaf, and the only use of its idea.

Config classes are standard-library dataclasses, so that the core needs no pydantic; where values come from outside,
pydantic builds them here: unknown fields and wrong types are refused.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def from_plain(config: type[T], values: Mapping[str, Any]) -> T:
    """``config(**values)`` with every field checked.

    Raises ``ValueError`` in one line, ``field=value: rule``, for the first fault.
    """
    from pydantic import TypeAdapter, ValidationError

    try:
        # pydantic's JSON mode lets lists become tuples and mappings dataclasses, and stays strict about the rest.
        return TypeAdapter(config).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        # A check of the config itself names its field already.
        prefix = f"{where}: " if first["type"] == "value_error" else f"{where}={first['input']!r}: "
        raise ValueError((prefix if where else "") + message) from None
