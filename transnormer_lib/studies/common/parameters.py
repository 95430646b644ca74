"""A notebook's parameters as one typed object.

A study declares a frozen dataclass ``Parameters``: the parameters that decide what it trains and measures. ``read``
fills it from a notebook's variables, ``read(study.Parameters, globals())``, or from a preset's values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar, get_args, get_type_hints

from transnormer_lib.strict import from_plain

P = TypeVar("P")


@dataclass(frozen=True)
class Prefix:
    """Marks a field that holds another study's parameters: ``encoders: Annotated[EncoderParameters, Prefix("base_")]``
    reads the variables ``base_dim``, ``base_heads``, ...
    """

    text: str


def names(kind: type) -> list[str]:
    """The variables that :func:`read` takes for ``kind``."""
    found = []
    for name, prefix, inner in _fields(kind):
        found += [name] if prefix is None else [prefix + one for one in names(inner)]
    return found


def read(kind: type[P], variables: Mapping[str, Any]) -> P:
    """``kind`` from the variables with its fields' names; others are ignored.

    Raises ValueError in one line for a missing variable, a wrong type or a value that ``kind`` refuses.
    """
    values: dict[str, Any] = {}
    for name, prefix, inner in _fields(kind):
        if prefix is not None:
            own = {one.removeprefix(prefix): value for one, value in variables.items() if one.startswith(prefix)}
            try:
                values[name] = asdict(read(inner, own))
            except ValueError as fault:
                raise ValueError(f"{prefix}{fault}") from None
        elif name in variables:
            values[name] = variables[name]
        else:
            raise ValueError(f"{name}: must be given; it is a parameter of {kind.__module__}")
    return from_plain(kind, values)


def _fields(kind: type) -> Iterator[tuple[str, str | None, Any]]:
    """Name, prefix (None for a plain field) and type of each field."""
    hints = get_type_hints(kind, include_extras=True)
    for one in fields(kind):
        inner, *marks = get_args(hints[one.name]) or (hints[one.name],)
        prefix = next((mark.text for mark in marks if isinstance(mark, Prefix)), None)
        yield one.name, prefix, inner
