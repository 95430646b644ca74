"""How a bad value is refused: one line that names the argument, the value and the rule.

Every config dataclass checks its fields with these functions, in ``__post_init__``.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

MOST = 10**9  # no size, count or seed of a study is greater
MOST_LAYERS = 1_000  # nor a number of layers: as many as DeepNet has (2022)


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a value that is not among ``choices``, a tuple or a ``Literal``."""
    options = get_args(choices) or tuple(choices)
    # An array would compare element by element.
    if not any(isinstance(value, type(option)) and value == option for option in options):
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(map(repr, options))}")


def check_count(name: str, value: object, least: int = 1, most: int = 2**63 - 1) -> None:
    """Refuse anything but a whole number of at least ``least`` and at most ``most``: all that torch takes."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least {least}")
    if value > most:
        raise ValueError(f"{name}={value!r}: must be at most {most}")


def check_amounts(name: str, value: object) -> None:
    """Refuse numbers, within lists and mappings too, that are negative, not finite, or beyond a billion.

    ``…layers`` are at most ``MOST_LAYERS``.
    """
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        check_amounts(name, part)
    if isinstance(value, int):
        check_count(name, int(value), 0, MOST_LAYERS if name.endswith("layers") else MOST)
    elif isinstance(value, float):
        check_not_negative(name, value)
        if value > MOST:
            raise ValueError(f"{name}={value!r}: must be at most {MOST}")


def check_flag(name: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: must be True or False")


def check_positive(name: str, value: object) -> None:
    """Refuse anything but a positive finite number."""
    if not (is_number(value) and 0.0 < value < math.inf):  # type: ignore[operator]
        raise ValueError(f"{name}={value!r}: must be a positive finite number")


def check_not_negative(name: str, value: object) -> None:
    """Refuse anything but a finite number of at least zero."""
    if not (is_number(value) and 0.0 <= value < math.inf):  # type: ignore[operator]
        raise ValueError(f"{name}={value!r}: must be a finite number and not negative")


def check_probability(name: str, value: object) -> None:
    """Refuse anything but a probability below one, as dropout takes it."""
    if not (is_number(value) and 0.0 <= value < 1.0):  # type: ignore[operator]
        raise ValueError(f"{name}={value!r}: must be in [0, 1)")


def check_distinct(name: str, values: Iterable[object]) -> None:
    """Refuse a list in which a value occurs twice."""
    found = list(values)
    if len(set(found)) != len(found):
        raise ValueError(f"{name}={found!r}: must differ from each other")


def check_fields(config: Any) -> None:
    """Check each field of a config dataclass by its type.

    A Literal must be one of its choices, an int at least 1, a float positive and finite, a ``…dropout`` a probability.
    ``field(metadata={"least": 0, "most": 9})`` sets other bounds; None passes if the type includes it.
    """
    hints = get_type_hints(type(config))
    for field in fields(config):
        name, value, kind = field.name, getattr(config, field.name), hints[field.name]
        if NoneType in get_args(kind):
            if value is None:
                continue
            kind = get_args(kind)[0]
        if get_origin(kind) is Literal:
            check_choice(name, value, kind)
        elif kind is bool:
            check_flag(name, value)
        elif kind is int:
            check_count(name, value, field.metadata.get("least", 1), field.metadata.get("most", MOST))
        elif name.endswith("dropout"):
            check_probability(name, value)
        elif kind is float:
            (check_not_negative if "least" in field.metadata else check_positive)(name, value)
            if value > field.metadata.get("most", math.inf):
                raise ValueError(f"{name}={value!r}: must be at most {field.metadata['most']}")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: ``; did you mean 'x'?``, else the names there are."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; must be one of {', '.join(names) or 'nothing'}"


def is_number(value: object) -> bool:
    """Whether a value is a whole number or a float, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)
