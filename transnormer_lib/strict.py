"""Config dataclasses from plain values (YAML, JSON), where unknown fields and wrong types are refused, and back.

Config classes are standard-library dataclasses, so the core needs no pydantic.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

from transnormer_lib.checks import check_amounts

T = TypeVar("T")


def from_plain(config: type[T], values: Mapping[str, Any]) -> T:
    """``config(**values)`` with every field checked.

    Raises ``ValueError`` in one line with every mistake, ``field=value: rule``.
    """
    from pydantic import ValidationError

    adapter = _validator(config)  # type: ignore[arg-type]  # a class is hashable
    text = json.dumps(values)  # refuses what holds itself
    _check_keys("", values)
    try:
        # Pydantic's JSON mode accepts lists for tuples and mappings for dataclasses, and is strict otherwise.
        return adapter.validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError("; ".join(map(_line, error.errors()))) from None


def _check_keys(where: str, value: Any) -> None:
    """Refuse a mapping in which two keys are the same in JSON, 1 and "1", of which one would be lost."""
    if isinstance(value, Mapping):
        written: dict[str, Any] = {}
        for key, inner in value.items():
            text = key if isinstance(key, str) else json.dumps(key)
            if text in written:
                raise ValueError(f"{where or 'keys'}: {written[text]!r} and {key!r} are one key")
            written[text] = key
            _check_keys(f"{where}.{text}" if where else text, inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(where, inner)


@cache
def _validator(config: type) -> Any:
    """Pydantic's validator of a config class; to make one takes several times as long as to use it."""
    from pydantic import TypeAdapter

    return TypeAdapter(config)


def _line(mistake: Mapping[str, Any]) -> str:
    where, message = ".".join(map(str, mistake["loc"])), mistake["msg"].removeprefix("Value error, ")
    if mistake["type"] == "missing":
        return f"{where}: is missing"
    # The config's own checks name the field already.
    prefix = f"{where}: " if mistake["type"] == "value_error" else f"{where}={mistake['input']!r}: "
    return (prefix if where else "") + message


def differing(config: Any) -> Any:
    """The fields of a config that differ from their defaults, and so on in the configs that it holds."""
    if not is_dataclass(config):
        return config
    found = {}
    for item in fields(config):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        if (value := getattr(config, item.name)) != default:
            found[item.name] = differing(value)
    return found


def check_type(name: str, value: Any, kind: Any, written: str = "") -> None:
    """Refuse a value that is not of the type ``kind``, ``written`` so by its author, and what is no amount.

    Nothing is converted, but a whole number may be given for a float.
    """
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    written = written or (kind.__name__ if isinstance(kind, type) else str(kind))
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except PydanticUserError:
        raise ValueError(f"{name}: {written} is no type") from None
    except ValidationError as error:
        raise ValueError(f"{name}={value!r}: must be {written} ({error.errors()[0]['msg']})") from None
    check_amounts(name, value)
