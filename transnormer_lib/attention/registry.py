"""The mechanisms by name: ``register`` on a class, ``names``, ``config_class`` and ``build``."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple, TypeVar

from transnormer_lib.attention.interface import Attention, AttentionConfig

A = TypeVar("A", bound=type[Attention])


class _Entry(NamedTuple):
    config: type[AttentionConfig]
    attention: type[Attention]


_ENTRIES: dict[str, _Entry] = {}


def register(name: str, config: type[AttentionConfig]) -> Callable[[A], A]:
    """Class decorator: makes the mechanism known as ``name``, built from ``config``."""

    def enter(attention: A) -> A:
        if name in _ENTRIES:
            raise ValueError(f"name={name!r}: already registered by {_ENTRIES[name].attention.__qualname__}")
        attention.name = name
        _ENTRIES[name] = _Entry(config, attention)
        return attention

    return enter


def names() -> tuple[str, ...]:
    """Every registered mechanism, in alphabetical order."""
    return tuple(sorted(_ENTRIES))


def config_class(name: str) -> type[AttentionConfig]:
    """The config dataclass of the mechanism ``name``."""
    return _entry(name).config


def build(name: str, config: AttentionConfig | Mapping[str, Any]) -> Attention:
    """The mechanism ``name`` from its config dataclass or a mapping of that dataclass's fields.

    Raises ValueError for an unknown name or field (naming the nearest), a missing field or a bad value, and
    TypeError for a config of another mechanism.
    """
    entry = _entry(name)
    if isinstance(config, Mapping):
        config = _config_from(name, entry.config, config)
    if type(config) is not entry.config:
        raise TypeError(
            f"config={type(config).__name__}: {name!r} takes {entry.config.__name__} or a mapping of fields"
        )
    return entry.attention(config)


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise ValueError(f"name={name!r}: no such attention mechanism{_nearest(name, names())}")
    return _ENTRIES[name]


def _config_from(name: str, config: type[AttentionConfig], values: Mapping[str, Any]) -> AttentionConfig:
    known = {field.name: field for field in fields(config)}
    for key in values:
        if key not in known:
            raise ValueError(f"{key}={values[key]!r}: {name!r} has no such field{_nearest(key, known)}")
    missing = [
        field.name
        for field in known.values()
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"config={dict(values)!r}: {name!r} also needs {', '.join(missing)}")
    return config(**values)


def _nearest(word: object, choices: Iterable[str]) -> str:
    choices = list(choices)
    near = difflib.get_close_matches(str(word), choices, n=1, cutoff=0.4)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(choices)}"
