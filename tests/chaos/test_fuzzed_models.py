"""Any ids, frames, targets, prompts and settings of models and of generation: the defined result or one clear line."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from chaos_trials import Tried, cases, trials
from hypothesis import given
from hypothesis import strategies as st
from refusals import Refused, outcome
from torch import Tensor

from transnormer_lib.models.architectures import architecture, names
from transnormer_lib.models.classifier import build_classifier, with_head
from transnormer_lib.models.config import ClassifierHead, ModelConfig
from transnormer_lib.models.generation import generate
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.models.sampling import Sampling
from transnormer_lib.models.transcriber import build_transcriber

V, LONGEST = 19, 24
SHAPE: dict[str, Any] = {"vocab_size": V, "max_length": LONGEST, "dim": 16, "heads": 2, "layers": 2, "block_size": 5}
ROWS = ("vanilla", "linear", "transnormer-t1", "transnormer-t2", "flash", "gau", "roformer-v1", "transformer-ls")


@cache
def decoder(name: str) -> LanguageModel:
    return build_model(architecture(name, kind="decoder", **SHAPE), seed=1).double().eval()


@cache
def reading(kind: str) -> Any:
    """A model of each kind that reads [B, N] ids, groups of them, or frames."""
    if kind in names():
        return decoder(kind)
    encoder = architecture("transnormer-t2", kind="encoder", **SHAPE)
    if kind == "encoder":
        return build_model(encoder, seed=1).double().eval()
    if kind == "frames":
        fields = {"kind": "encoder", "vocab_size": 7, "max_length": LONGEST, "dim": 16, "heads": 2, "features": 3}
        return build_transcriber(ModelConfig(**fields, attention=("norm",)), 1).double().eval()
    head = {"label": {"classes": 3}, "pairs": {"classes": 3, "pairs": True}}
    head |= {"choice": {"classes": 4, "kind": "choice"}, "span": {"classes": 2, "kind": "span"}}
    return build_classifier(with_head(encoder, ClassifierHead(**head[kind], head_width=8)), 1).double().eval()


def fitting(kind: str, b: int, n: int) -> Tensor:
    """An input that fits a model: b sequences of n tokens, or groups of two of them, or frames."""
    if kind == "frames":
        return torch.randn(b, n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    shape = (b, 2, n) if kind in ("pairs", "choice", "span") else (b, n)
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(n))


def _with(x: Tensor, value: int) -> Tensor:
    x = x.clone()
    x.view(-1)[-1:] = value
    return x


# What is put in the place of an input that fits.
SPOILED: dict[str, Callable[[Tensor], Any]] = {
    "as it is": lambda x: x,
    "an id beyond the vocabulary": lambda x: _with(x, V),
    "an id far beyond": lambda x: _with(x, 2**40),
    "a negative id": lambda x: _with(x, -1),
    "the id that marks no target": lambda x: _with(x, -100),
    "other numbers": lambda x: x.float() if not x.is_floating_point() else x.long(),
    "truth values": lambda x: x > 0,
    "bytes": lambda x: x.to(torch.uint8),
    "half precision": lambda x: x.half(),
    "32 bits": lambda x: x.int() if not x.is_floating_point() else x.float(),
    "one dimension less": lambda x: x[0] if len(x) else x.sum(0),
    "one dimension more": lambda x: x[None],
    "no token": lambda x: x[..., :0] if not x.is_floating_point() else x[:, :0],
    "no sequence": lambda x: x[:0],
    "another device": lambda x: x.to("meta"),
    "a list": lambda x: x.tolist(),
    "an array": lambda x: x.numpy(),
    "nothing": lambda x: None,
    "a text": lambda x: "once",
}
SPOILED_MASKS: dict[str, Callable[[Tensor], Any]] = {
    "none": lambda mask: None,
    "all padding": lambda mask: torch.ones_like(mask),
    "no padding": lambda mask: torch.zeros_like(mask),
    "numbers": lambda mask: mask.float(),
    "one token more": lambda mask: torch.cat([mask, mask[..., :1]], -1),
    "one row": lambda mask: mask[0],
    "another device": lambda mask: mask.to("meta"),
    "a list": lambda mask: mask.tolist(),
}
FITS = ("as it is", "32 bits", "no sequence")  # what a model must take
KINDS = (*ROWS, "encoder", "label", "pairs", "choice", "span", "frames")


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_of_a_model_is_read_or_refused_by_name(kind: str, tried: Tried) -> None:
    count = 0

    @cases(15, 150, kind)
    @given(
        how=st.sampled_from(list(SPOILED)),
        mask_as=st.sampled_from(list(SPOILED_MASKS)),
        b=st.integers(1, 3),
        n=st.one_of(st.integers(1, LONGEST), st.sampled_from([LONGEST, LONGEST + 1, 60])),
    )
    def one(how: str, mask_as: str, b: int, n: int) -> None:
        nonlocal count
        count += 1
        model, x = reading(kind), fitting(kind, b, n)
        decodes = kind in ROWS
        mask_of = torch.zeros(x.shape[:2] if kind == "frames" else x.shape, dtype=torch.bool)
        mask_of[..., n // 2 + 1 :] = True
        mask = None if decodes and mask_as == "none" else SPOILED_MASKS[mask_as](mask_of)
        if decodes and mask is None:
            outcome(lambda: model.prefill(SPOILED[how](x)))
        found = outcome(lambda: model(SPOILED[how](x), mask))
        right = how in FITS and mask_as in ("none", "all padding", "no padding") and n <= LONGEST
        if how == "32 bits" and kind == "frames":
            right = False  # the weights' dtype is another
        if right and not (how == "no sequence" and mask is not None):
            assert not isinstance(found, Refused), found
            assert found.isfinite().all() or kind == "span" or mask_as == "all padding"
        if isinstance(found, Tensor) and how == "as it is" and mask_as == "no padding":
            torch.testing.assert_close(found, model(x))

    one()
    tried("an input of a model", count)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("span",)])
def test_targets_of_a_model_are_counted_or_refused_by_name(kind: str, tried: Tried) -> None:
    count = 0

    @cases(6, 60, kind)
    @given(how=st.sampled_from(list(SPOILED)), b=st.integers(1, 3), n=st.integers(4, LONGEST))
    def one(how: str, b: int, n: int) -> None:
        nonlocal count
        count += 1
        model, x = reading(kind), fitting(kind, b, n)
        if kind == "frames":
            targets = torch.ones(b, 2, dtype=torch.int64)
        else:
            targets = x if x.ndim == 2 and kind not in ("label",) else torch.zeros(b, dtype=torch.int64)
        found = outcome(lambda: model(x, None, SPOILED[how](targets)))
        if how == "as it is":
            assert found.isfinite()
            assert found.shape == ()
        elif how == "nothing":
            assert found.ndim > 0

    one()
    tried("targets of a model", count)


# An argument of a generation, and values for it. All others are as in ``call`` below.
ids = st.lists(st.integers(0, V - 1), min_size=1, max_size=8).map(torch.tensor)
anything = st.sampled_from(
    [None, True, -1, 0, 2.5, float("nan"), "x", [], [[]], [1, 2], {}, torch.tensor(3), np.array([1, 2]), object]
)
PROMPTS = st.one_of(
    st.lists(ids, max_size=3),
    st.lists(st.one_of(ids, anything), max_size=3),
    st.sampled_from(
        [
            torch.zeros(2, 3, dtype=torch.int64),
            torch.zeros(2, 0, dtype=torch.int64),
            torch.zeros(2, 3),
            torch.zeros(3, dtype=torch.int64),
            [torch.tensor([True, False])],
            [torch.tensor([0.5])],
            [torch.tensor([V])],
            [torch.tensor([-1])],
            [torch.zeros(LONGEST + 1, dtype=torch.int64)],
            [torch.zeros(2, dtype=torch.int64, device="meta")],
            [torch.zeros(1, 2, dtype=torch.int64)],
        ]
    ),
    anything,
)
STOPS = st.one_of(
    st.lists(st.one_of(st.integers(-2, V + 1), st.lists(st.integers(-1, V), max_size=3), anything), max_size=3),
    anything,
)
ARGUMENTS = ["prompts", "new", "stop", "form", "sampling", "temperature", "top_k", "top_p", "generator"]
NUMBERS = st.one_of(st.integers(-2, LONGEST + 3), anything, st.just(2**70))


@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t2", "gau", "reformer"])
def test_a_generation_writes_or_refuses_by_name(name: str, tried: Tried) -> None:
    count = 0

    @cases(15, 200, name)
    @given(
        prompts=PROMPTS,
        new=NUMBERS,
        stop=STOPS,
        form=st.one_of(st.sampled_from(["recurrent", "parallel", "recurrent", "x"]), anything),
        wrong=st.one_of(anything, st.sampled_from([torch.Generator(), Sampling(), Sampling, torch.Generator])),
        temperature=st.one_of(
            st.sampled_from([0.0, 1e-300, 1.0, 1e300, -1.0, float("nan"), float("inf"), 5e-324]), anything
        ),
        top_k=st.one_of(st.integers(-1, V + 2), anything),
        top_p=st.one_of(st.floats(0, 1.1), anything),
        dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
        bad=st.sets(st.sampled_from(ARGUMENTS), max_size=2),
    )
    def one(
        prompts: Any,
        new: Any,
        stop: Any,
        form: Any,
        wrong: Any,
        temperature: Any,
        top_k: Any,
        top_p: Any,
        dtype: torch.dtype,
        bad: set[str],
    ) -> None:
        nonlocal count
        count += 1
        model = decoder(name).to(dtype)
        prompts = prompts if "prompts" in bad else [torch.tensor([1, 2]), torch.tensor([3])]
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}

        def call() -> list[Tensor]:
            chosen = Sampling(**{field: value for field, value in sampling.items() if field in bad})
            return generate(
                model,
                prompts,
                new if "new" in bad else 3,
                sampling=wrong if "sampling" in bad else chosen,
                stop=stop if "stop" in bad else (),
                form=form if "form" in bad else ("parallel" if name == "reformer" else "recurrent"),
                generator=wrong if "generator" in bad else torch.Generator().manual_seed(0),
            )

        found = outcome(call)
        if isinstance(found, Refused):
            assert bad, found
            return
        assert "sampling" not in bad or wrong is None or isinstance(wrong, Sampling)
        assert "generator" not in bad or wrong is None or isinstance(wrong, torch.Generator)
        assert len(found) == len(prompts)
        for made in found:
            assert len(made) <= (new if "new" in bad else 3)
            assert all(0 <= int(token) < V for token in made)

    one()
    tried("the arguments of a generation", count)


def test_both_forms_of_a_generation_write_the_same(tried: Tried) -> None:
    count = 0

    @cases(10, 100)
    @given(name=st.sampled_from(ROWS), prompts=st.lists(ids, min_size=1, max_size=3), new=st.integers(0, 12))
    def one(name: str, prompts: list[Tensor], new: int) -> None:
        nonlocal count
        count += 1
        greedy = Sampling(temperature=0.0)
        recurrent, parallel = (
            generate(decoder(name), prompts, new, sampling=greedy, form=form) for form in ("recurrent", "parallel")
        )
        assert [made.tolist() for made in recurrent] == [made.tolist() for made in parallel]

    one()
    tried("a generation in both forms", count)


@pytest.mark.parametrize("form", ["recurrent", "parallel"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t2", "gau"])
def test_a_model_with_weights_that_are_no_numbers_writes_nothing(
    name: str, value: float, form: Any, tried: Tried
) -> None:
    parameters = [key for key, _ in decoder(name).named_parameters()]
    for key in parameters[:: max(1, len(parameters) // trials(1, 8))]:
        model = build_model(architecture(name, kind="decoder", **SHAPE), seed=1).eval()
        with torch.no_grad():
            model.get_parameter(key).fill_(value)
            broken = not model(torch.tensor([[1, 2]])).isfinite().all()
        found = outcome(lambda model=model: generate(model, [torch.tensor([1, 2])], 3, form=form), FloatingPointError)
        assert isinstance(found, Refused) == bool(broken)
        assert not broken or "not finite" in found
        tried("weights that are no numbers")
