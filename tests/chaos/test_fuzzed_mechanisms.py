"""Any config and any input of every mechanism: its specification's result, or one line that names argument and rule."""

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from chaos_trials import Tried, cases
from hypothesis import given
from hypothesis import strategies as st
from mechanism_cases import CAUSAL, draw, holes, make
from refusals import Refused, outcome
from torch import Tensor

from transnormer_lib.attention import about, build, build_attention, config_class, is_recurrent, kind, names

FORMS = [(name, causal) for name in names() for causal in ((False, True) if name in CAUSAL else (False,))]
each_form = pytest.mark.parametrize(
    ("name", "causal"), FORMS, ids=[f"{n}-{'causal' if c else 'all'}" for n, c in FORMS]
)
SIZES = {"heads", "head_dim", "dim", "max_length"}  # they fit the inputs
# A signed φ brings denominators near zero, where two right forms differ by their rounding.
TAME = {"linear": {"denominator_floor": 0.1}}


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a config field's type, small ones, some of which the config refuses."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    return {int: st.integers(1, 12), bool: st.booleans()}.get(kind, st.nothing())


def configs(name: str, causal: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Fields that differ from the tests' small settings."""
    hints = get_type_hints(config_class(name))
    drawn = {
        field.name: strategy(hints[field.name])
        for field in fields(config_class(name))
        if field.name not in SIZES | {"impl", "causal", "dropout"} and not strategy(hints[field.name]).is_empty
    }
    return st.fixed_dictionaries({}, optional=drawn).map(
        lambda found: {**TAME.get(name, {}), **found, "causal": causal}
    )


def masks(b: int, n: int, seed: int, kind: str) -> Tensor | None:
    """No padding, some anywhere, one sequence of padding alone, or nothing but padding."""
    if kind == "none":
        return None
    mask = holes(b, n, seed) if kind == "holes" else torch.zeros(b, n, dtype=torch.bool)
    if kind == "all":
        mask[:] = True
    elif kind == "one":
        mask[:1] = True
    return mask


def real(o: Tensor, mask: Tensor | None) -> Tensor:
    """The output where it means something."""
    if mask is None:
        return o
    return o.masked_fill(mask[:, None, :, None] if o.ndim == 4 else mask[..., None], 0.0)


@each_form
def test_any_config_and_length_gives_the_specification_or_a_rule(name: str, causal: bool, tried: Tried) -> None:
    count = 0

    @cases(4, 60, name, causal)
    @given(
        config=configs(name, causal),
        b=st.integers(0, 3),
        n=st.one_of(st.integers(0, 4), st.integers(0, 70)),
        kind=st.sampled_from(["none", "holes", "one", "all"]),
        seed=st.integers(0, 2**20),
    )
    def one(config: dict[str, Any], b: int, n: int, kind: str, seed: int) -> None:
        nonlocal count
        count += 1
        x, mask = draw(name, b, n, seed), masks(b, n, seed, kind)
        expected, actual = (
            outcome(lambda impl=impl: make(name, seed, impl=impl, **config)(*x, mask))
            for impl in ("reference", "chunked")
        )
        assert isinstance(expected, Refused) == isinstance(actual, Refused), (expected, actual)
        if isinstance(actual, Refused):
            assert actual == expected
            return
        assert actual.shape == x[0].shape
        torch.testing.assert_close(real(actual, mask), real(expected, mask), rtol=1e-7, atol=1e-7)

    one()
    tried("a mechanism's config, length, padding and batch", count)


NAMES: list[Any] = [None, True, 3, 2.5, "", "x", ["softmax"], {"softmax"}, {}, ("softmax",), b"softmax", object]
NAMES += [torch.tensor(3), np.array(["softmax", "norm"])]


@pytest.mark.parametrize("call", [build, build_attention, config_class, about, kind, is_recurrent])
def test_a_name_or_a_config_that_is_none_is_refused_by_name(call: Any, tried: Tried) -> None:
    for name in NAMES:
        found = outcome(lambda name=name: call(name, {}) if call in (build, build_attention) else call(name))
        assert isinstance(found, Refused), name
        assert found.startswith("name=")
    for config in (name for name in NAMES if call in (build, build_attention)):
        found = outcome(lambda config=config: call("softmax", config))
        assert isinstance(found, Refused), config
    for field in ("impl", "causal", "heads"):
        for value in NAMES if call is build else ():
            fields = {"heads": 2, "head_dim": 4, "causal": True} | {field: value}
            found = outcome(lambda fields=fields: build("softmax", fields))
            assert isinstance(found, Refused) or (field, value) in (("heads", 3), ("causal", True)), (field, value)
    tried("a mechanism's name or config", len(NAMES))


def _like(x: Tensor, **how: Any) -> Tensor:
    return torch.zeros(how.pop("shape", x.shape), dtype=how.pop("dtype", x.dtype), **how)


# What is put in the place of an argument.
SPOILED: dict[str, Any] = {
    "one dimension less": lambda x: x[0],
    "one dimension more": lambda x: x[None],
    "no token": lambda x: x[..., :0, :],
    "another width": lambda x: _like(x, shape=(*x.shape[:-1], x.shape[-1] + 1)),
    "another first dimension": lambda x: _like(x, shape=(x.shape[0] + 1, *x.shape[1:])),
    "another second dimension": lambda x: _like(x, shape=(x.shape[0], x.shape[1] + 3, *x.shape[2:])),
    "whole numbers": lambda x: x.long(),
    "truth values": lambda x: x > 0,
    "complex numbers": lambda x: x.to(torch.complex64),
    "eight bits": lambda x: x.to(torch.float8_e4m3fn),
    "half precision": lambda x: x.half(),
    "single precision": lambda x: x.float(),
    "another device": lambda x: x.to("meta"),
    "a list": lambda x: x.tolist(),
    "an array": lambda x: x.numpy(),
    "nothing": lambda x: None,
    "a number": lambda x: 3,
    "a scalar": lambda x: x.sum(),
}
SPOILED_MASKS: dict[str, Any] = {
    "numbers": lambda mask: mask.float(),
    "bytes": lambda mask: mask.to(torch.uint8),
    "transposed": lambda mask: mask.mT.contiguous(),
    "one row": lambda mask: mask[0],
    "a square": lambda mask: mask[:, None, :] & mask[:, :, None],
    "another device": lambda mask: mask.to("meta"),
    "a list": lambda mask: mask.tolist(),
    "a number": lambda mask: 1,
}


@each_form
def test_an_argument_that_does_not_fit_is_named_with_its_rule(name: str, causal: bool, tried: Tried) -> None:
    count = 0
    arguments = ["x"] if len(draw(name, 1, 1, 0)) == 1 else ["q", "k", "v"]

    @cases(6, 80, name, causal)
    @given(
        which=st.sampled_from([*arguments, "all", "key_padding_mask"]),
        how=st.sampled_from(list(SPOILED)),
        how_mask=st.sampled_from(list(SPOILED_MASKS)),
        impl=st.sampled_from(["reference", "chunked"]),
        b=st.integers(1, 3),
        n=st.integers(1, 20),
        weights=st.booleans(),
    )
    def one(which: str, how: str, how_mask: str, impl: str, b: int, n: int, weights: bool) -> None:
        nonlocal count
        count += 1
        mechanism, x, mask = make(name, 0, causal=causal, impl=impl), draw(name, b, n, 0), holes(b, n, 0)
        call = mechanism.weights if weights else mechanism
        if which == "key_padding_mask":
            found = outcome(lambda: call(*x, SPOILED_MASKS[how_mask](mask)))
            fits = how_mask == "transposed" and b == n
        elif which == "all":
            spoiled = [SPOILED[how](t) for t in x]
            found = outcome(lambda: call(*spoiled))
            fits = _fits_all(how, spoiled[0])
        else:
            place = arguments.index(which)
            found = outcome(lambda: call(*x[:place], SPOILED[how](x[place]), *x[place + 1 :]))
            fits = len(arguments) == 1 and _fits_all(how, SPOILED[how](x[0]))
        if isinstance(found, Refused):
            named = arguments if which == "all" else [which, *arguments[:1], *arguments[1:]]
            assert found.startswith(tuple(named)), found
        else:
            assert fits, "was accepted"

    one()
    tried("an argument of a mechanism that does not fit", count)


def _fits_all(how: str, x: Any) -> bool:
    """Whether a mechanism may serve all its inputs changed so: other batches, lengths, precisions, and shapes only."""
    if how in ("half precision", "single precision", "another device", "another first dimension"):
        return True
    return how == "another second dimension" and x.ndim == 3  # a block's length
