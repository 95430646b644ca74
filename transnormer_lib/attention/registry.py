"""The mechanisms by name: ``register`` on a class, ``names``, ``kind``, ``config_class``, ``about`` and ``build``.

There are two kinds. An **attention** maps q, k, v [B, H, N, D] to o [B, H, N, D]; a **block** maps x [B, N, dim] to
y [B, N, dim] and replaces attention and feed-forward together.
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from transnormer_lib.attention.block import AttentionBlock, BlockConfig
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.checks import nearest

Kind = Literal["attention", "block"]
Config = AttentionConfig | BlockConfig
M = TypeVar("M", bound=type[Attention] | type[AttentionBlock])

_ENTRIES: dict[str, tuple[type[Config], type[Attention] | type[AttentionBlock]]] = {}  # config and module


@dataclass(frozen=True)
class About:
    """One row of mechanisms.csv. Costs are the fast form's orders, per head and sequence."""

    title: str  # the name a reader knows it by
    time: str  # for example "N·w·D"
    memory: str  # beside its inputs and output
    source: str  # authors, year, and where it is defined
    oracle: str  # the independent source that the tests compare it with


def register(name: str, config: type[Config]) -> Callable[[M], M]:
    """Class decorator: registers the mechanism as ``name``, built from ``config``."""

    def enter(mechanism: M) -> M:
        if name in _ENTRIES:
            raise ValueError(f"name={name!r}: already registered by {_ENTRIES[name][1].__qualname__}")
        mechanism.name = name
        _ENTRIES[name] = config, mechanism
        return mechanism

    return enter


def names(kind: Kind | None = None) -> tuple[str, ...]:
    """Every registered mechanism, or those of one kind, in alphabetical order."""
    return tuple(sorted(name for name, (_, mechanism) in _ENTRIES.items() if kind in (None, _kind(mechanism))))


def kind(name: str) -> Kind:
    """Whether a mechanism is an attention on q, k, v or a whole block. Raises ValueError for an unknown name."""
    return _kind(classes(name)[1])


def classes(name: str) -> tuple[type[Config], type[Attention] | type[AttentionBlock]]:
    """The config and the module of the mechanism ``name``, as classes; ValueError naming the nearest if unknown."""
    if not isinstance(name, str) or name not in _ENTRIES:
        raise ValueError(f"name={name!r}: no such attention mechanism{nearest(str(name), names())}")
    return _ENTRIES[name]


def config_class(name: str) -> type[Config]:
    """The dataclass that configures a mechanism. Raises ValueError for an unknown name."""
    return classes(name)[0]


def about(name: str) -> About:
    """A mechanism's title, costs, source and oracle. Raises ValueError for an unknown name."""
    classes(name)
    return _table()[name]


@cache
def _table() -> dict[str, About]:
    with Path(__file__).with_name("mechanisms.csv").open(encoding="utf-8", newline="") as file:
        return {row.pop("name"): About(**row) for row in csv.DictReader(file)}


def is_recurrent(name: str) -> bool:
    """Whether a mechanism has ``prefill`` and ``step``. Raises ValueError for an unknown name."""
    return classes(name)[1].is_recurrent()


def build(name: str, config: Config | Mapping[str, Any]) -> Attention | AttentionBlock:
    """The mechanism ``name`` from its config dataclass or a mapping of that dataclass's fields.

    The names are bigbird, cosformer, diag, flash, flash-quad, gau, informer, kernelized, lara, linear, linear-unscaled,
    linformer, longformer, norm, nystromformer, performer, polynomial, reformer, rela, rfa, scattered, skyformer,
    softmax and transformer-ls. :func:`about` says what one is, :func:`config_class` which fields it has. Raises
    ValueError for an unknown name or field (naming the nearest), a missing field or a bad value, and TypeError for a
    config of another mechanism.

    >>> import torch
    >>> norm = build("norm", {"heads": 2, "head_dim": 8, "causal": True, "phi": "elu"})  # NormAttention, Eq. 14
    >>> q, k, v = torch.randn(3, 1, 2, 100, 8)  # each [batch, heads, length, head_dim]
    >>> norm(q, k, v).shape
    torch.Size([1, 2, 100, 8])
    >>> build("nrom", {})
    Traceback (most recent call last):
    ValueError: name='nrom': no such attention mechanism; did you mean 'norm'?
    """
    kind_of_config, mechanism = classes(name)
    if isinstance(config, Mapping):
        config = _config_from(name, kind_of_config, config)
    if type(config) is not kind_of_config:
        raise TypeError(f"config={type(config).__name__}: {name!r} takes {kind_of_config.__name__} or its fields")
    return mechanism(config)  # type: ignore[arg-type]  # the line above has checked it


def build_attention(name: str, config: AttentionConfig | Mapping[str, Any]) -> Attention:
    """:func:`build` for an attention; ValueError if ``name`` is a block."""
    built = build(name, config)
    if not isinstance(built, Attention):
        raise ValueError(f"name={name!r}: is a block on [B, N, dim], not an attention on q, k, v")
    return built


def _kind(mechanism: type[Attention] | type[AttentionBlock]) -> Kind:
    return "attention" if issubclass(mechanism, Attention) else "block"


def _config_from(name: str, config: type[Config], values: Mapping[str, Any]) -> Config:
    known = {field.name: field for field in fields(config)}
    for key in values:
        if key not in known:
            raise ValueError(f"{key}={values[key]!r}: {name!r} has no such field{nearest(str(key), known)}")
    missing = [key for key, field in known.items() if key not in values and field.default is MISSING]
    if missing:
        raise ValueError(f"config={dict(values)!r}: {name!r} also needs {', '.join(missing)}")
    return config(**values)
