"""Derivatives of every order, vmap, autocast, copies and compilation: what the specification gives, in every form."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from chaos_trials import Tried, cases, first_or_all, trials
from hypothesis import given
from hypothesis import strategies as st
from mechanism_cases import CAUSAL, draw, holes, make
from torch import Tensor
from torch.autograd import forward_ad

from transnormer_lib.attention import AttentionBlock, build, names

FORMS = [(name, causal) for name in names() for causal in ((False, True) if name in CAUSAL else (False,))]
FORM_IDS = [f"{name}-{'causal' if causal else 'bidirectional'}" for name, causal in FORMS]
COMPILED = ("norm", True, "chunked")  # the one that ``make test`` compiles; the others are slow
each_form = pytest.mark.parametrize(("name", "causal"), FORMS, ids=FORM_IDS)

Form = Callable[..., Tensor]  # o of q, k, v, or y of x; what stands on padding is zero
# Further options under which an attention takes other ways; a block has its own.
OPTIONS: list[dict[str, Any]] = [{}, {}, {"rotary": "lrpe"}, {"norm_after": "embedding"}, {"chunk_size": 3}]


def first(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor], create: bool = False) -> list[Tensor]:
    """The gradient of Σ o² / 2 in each input."""
    return list(torch.autograd.grad(form(*x).square().sum() / 2, x, create_graph=create, materialize_grads=True))


def second(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of how fast the loss grows along ``directions``."""
    along = sum((g * d).sum() for g, d in zip(first(form, x, directions, create=True), directions, strict=True))
    assert isinstance(along, Tensor)
    return list(torch.autograd.grad(along, x, materialize_grads=True))


def forward(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    """How fast the output changes along ``directions``, by forward-mode derivatives."""
    with forward_ad.dual_level():
        o = form(*(forward_ad.make_dual(t.detach(), d) for t, d in zip(x, directions, strict=True)))
        tangent = forward_ad.unpack_dual(o).tangent
    return [torch.zeros_like(o) if tangent is None else tangent]


def forward_by_reverse(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    """The same by two reverse passes: the gradient in u of the derivative of u·o along ``directions``."""
    o = form(*x)
    u = torch.zeros_like(o, requires_grad=True)
    gradients = torch.autograd.grad(o, x, u, create_graph=True, materialize_grads=True)
    along = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    return (
        list(torch.autograd.grad(along, [u], materialize_grads=True)) if along.requires_grad else [torch.zeros_like(o)]
    )


def jvp(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    return [torch.func.jvp(form, tuple(t.detach() for t in x), tuple(directions))[1]]


def mapped(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    return [
        torch.func.vmap(form)(*(torch.stack([t.detach(), d, -t.detach()]) for t, d in zip(x, directions, strict=True)))
    ]


def one_by_one(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    cases = [[t.detach() for t in x], list(directions), [-t.detach() for t in x]]
    return [torch.stack([form(*case) for case in cases])]


def gradients_mapped(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    def gradient(*one: Tensor) -> tuple[Tensor, ...]:
        return torch.func.grad(lambda *y: form(*y).square().sum() / 2, argnums=tuple(range(len(x))))(*one)

    return list(torch.func.vmap(gradient)(*(torch.stack([t.detach(), d]) for t, d in zip(x, directions, strict=True))))


def gradients_one_by_one(form: Form, x: Sequence[Tensor], directions: Sequence[Tensor]) -> list[Tensor]:
    each = [first(form, [t.detach().requires_grad_() for t in case], directions) for case in (x, directions)]
    return [torch.stack(pair) for pair in zip(*each, strict=True)]


Way = Callable[[Form, Sequence[Tensor], Sequence[Tensor]], list[Tensor]]
# What is asked of the fast form, and how the specification answers it.
WAYS: dict[str, tuple[Way, Way]] = {
    "first derivative": (first, first),
    "second derivative": (second, second),
    "forward-mode derivative": (forward, forward_by_reverse),
    "torch.func.jvp": (jvp, forward_by_reverse),
    "vmap": (mapped, one_by_one),
    "vmap of gradients": (gradients_mapped, gradients_one_by_one),
}
COPIES: dict[str, Callable[[Any], Any]] = {
    "as built": lambda mechanism: mechanism,
    "deepcopy": copy.deepcopy,
    "pickle": lambda mechanism: pickle.loads(pickle.dumps(mechanism)),
}


@each_form
def test_derivatives_maps_and_copies_of_the_fast_form_are_those_of_the_specification(
    name: str, causal: bool, tried: Tried
) -> None:
    count = 0

    @cases(3, 60, name, causal)
    @given(
        way=st.sampled_from(list(WAYS)),
        copied=st.sampled_from(list(COPIES)),
        impl=st.sampled_from(["chunked", "chunked", "reference"]),
        more=st.sampled_from(OPTIONS),
        b=st.integers(1, 2),
        n=st.integers(1, 24),
        masked=st.booleans(),
        seed=st.integers(0, 2**20),
    )
    def one(way: str, copied: str, impl: str, more: dict[str, Any], b: int, n: int, masked: bool, seed: int) -> None:
        nonlocal count
        count += 1
        x = [t.requires_grad_() for t in draw(name, b, n, seed)]
        directions, mask = draw(name, b, n, seed + 1), holes(b, n, seed) if masked else None

        def form(impl: str) -> Form:
            mechanism = make(name, seed, causal=causal, impl=impl, **({} if len(x) == 1 else more))
            mechanism = COPIES[copied](mechanism) if impl != "reference" else mechanism

            def masked_form(*x: Tensor) -> Tensor:
                o = mechanism(*x, mask)
                if mask is None:
                    return o
                return o.masked_fill(mask[:, None, :, None] if o.ndim == 4 else mask[..., None], 0.0)

            return masked_form

        asked, answered = WAYS[way]
        actual, expected = asked(form(impl), x, directions), answered(form("reference"), x, directions)
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)

    one()
    tried("a derivative, vmap or copy of a mechanism", count)


@each_form
@pytest.mark.parametrize("more", [{}, {"rotary": "lrpe", "norm_after": "embedding"}], ids=["plain", "rotated"])
def test_a_gradient_that_can_be_differentiated_is_the_gradient(name: str, causal: bool, more: dict[str, Any]) -> None:
    found = []
    for graph in (False, True):
        x = [t.requires_grad_() for t in draw(name, 2, 19, 0)]
        mechanism = make(name, 0, causal=causal, impl="chunked", **({} if len(x) == 1 else more))
        of = [*x, *(parameter for parameter in mechanism.parameters() if parameter.requires_grad)]
        loss = mechanism(*x, holes(2, 19, 0)).square().sum()
        found.append(torch.autograd.grad(loss, of, create_graph=graph, materialize_grads=True))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-8, atol=1e-8)


@each_form
def test_autocast_around_and_in_a_mechanism_changes_no_result_of_half_precision(
    name: str, causal: bool, tried: Tried
) -> None:
    count = 0

    @cases(1, 12, name, causal)
    @given(
        dtype=st.sampled_from([torch.bfloat16, torch.float16]),
        forward_in=st.booleans(),
        backward_in=st.booleans(),
        n=st.integers(1, 40),
        seed=st.integers(0, 2**20),
    )
    def one(dtype: torch.dtype, forward_in: bool, backward_in: bool, n: int, seed: int) -> None:
        nonlocal count
        count += 1
        mechanism = make(name, seed, torch.float32, causal=causal, impl="chunked")
        block = isinstance(mechanism, AttentionBlock)  # its linear layers are autocast's
        forward_in = forward_in or block
        # In a backward pass inside its context autocast rounds intermediate gradients, which float16 has no room for:
        # then a gradient may be not finite, but is never finite and wrong.
        narrow = backward_in and dtype == torch.float16
        x = [t.requires_grad_() for t in draw(name, 1, n, seed, 1.0, torch.float32 if block else dtype)]
        exact = [t.detach().float().requires_grad_() for t in x]
        expected = mechanism(*exact)
        with torch.autocast("cpu", dtype, enabled=forward_in):
            o = mechanism(*x)
        assert block or o.dtype == dtype
        w = torch.randn(expected.shape, generator=torch.Generator().manual_seed(seed))
        with torch.autocast("cpu", dtype, enabled=backward_in):
            (o.float() * w).sum().backward()
        (expected * w).sum().backward()
        eps = torch.finfo(dtype).eps
        assert (o.float() - expected).norm() <= 16 * eps * expected.norm() + eps
        largest = max(float(t.grad.norm()) for t in exact if t.grad is not None)  # of one token that of q is zero
        for ours, theirs in zip(x, exact, strict=True):
            if theirs.grad is not None:
                assert ours.grad is not None
                assert ours.grad.dtype == ours.dtype
                if narrow and not ours.grad.isfinite().all():
                    continue
                assert (ours.grad - theirs.grad).norm() <= 64 * eps * largest + eps

    one()
    tried("autocast around forward and backward", count)


@pytest.mark.parametrize(
    ("name", "causal", "impl"),
    [
        pytest.param(*form, impl, id=f"{impl}-{name}", marks=() if (*form, impl) == COMPILED else pytest.mark.slow)
        for form, name in zip(FORMS, FORM_IDS, strict=True)
        for impl in ("chunked", "reference")
    ],
)
def test_a_compiled_mechanism_computes_what_it_computes(name: str, causal: bool, impl: str, tried: Tried) -> None:
    torch._dynamo.reset()
    mechanism = make(name, 0, torch.float32, causal=causal, impl=impl)
    # With the decompositions of torch.compile's own backend, without its compiler. Bare "aot_eager" mistakes the layout
    # of LayerNorm's gradient (PyTorch 2.13).
    compiled = torch.compile(mechanism, backend="aot_eager_decomp_partition")
    for length in first_or_all(19, 1, 2, 40):  # from the second on with a shape that may change
        x, mask = draw(name, 2, length, 0, dtype=torch.float32), holes(2, length, 0)
        for padding in (None, mask):
            o, expected = compiled(*x, padding), mechanism(*x, padding)
            if padding is not None:
                place = mask[:, None, :, None] if o.ndim == 4 else mask[..., None]
                o, expected = o.masked_fill(place, 0.0), expected.masked_fill(place, 0.0)
            torch.testing.assert_close(o, expected, rtol=1e-5, atol=1e-5)
        ours, theirs = ([t.clone().requires_grad_() for t in x] for _ in range(2))
        compiled(*ours).square().sum().backward()
        mechanism(*theirs).square().sum().backward()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    tried("a mechanism that is compiled")


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("name", "scale", "n"), [("linear-unscaled", 2.0, 2048), ("performer", 3000.0, 512)])
def test_half_precision_has_room_for_the_inputs_that_the_documentation_names(
    name: str, scale: float, n: int, causal: bool, tried: Tried
) -> None:
    mechanism = build(name, {"heads": 2, "head_dim": 64, "causal": causal}).eval()
    for seed in range(trials(1, 5)):
        generator = torch.Generator().manual_seed(seed)
        mechanism.reset_parameters(generator)
        q, k, v, g = (torch.randn(1, 2, n, 64, generator=generator) for _ in range(4))
        x = [(scale * t).half().requires_grad_() for t in (q, k, v)]
        o = mechanism(*x)
        o.backward(g.half())
        assert all(t.isfinite().all() for t in (o, *(t.grad for t in x)))
        tried("half precision at a scale that is named")


def test_a_gradient_in_half_precision_overflows_only_where_the_exact_one_does(tried: Tried) -> None:
    count, most = 0, torch.finfo(torch.float16).max

    @cases(30, 300)
    @given(
        form=st.sampled_from(FORMS),
        scale=st.sampled_from([1.0, 4.0, 12.0, 40.0, 200.0]),
        n=st.sampled_from([1, 5, 64, 300]),
        seed=st.integers(0, 2**20),
    )
    def one(form: tuple[str, bool], scale: float, n: int, seed: int) -> None:
        nonlocal count
        name, causal = form
        mechanism = make(name, seed, torch.float32, causal=causal, impl="chunked", max_length=512)
        if isinstance(mechanism, AttentionBlock):  # an x in half precision is for autocast, whose layers round first
            return
        count += 1
        x = [t.requires_grad_() for t in draw(name, 1, n, seed, scale, torch.float16)]
        exact = [t.detach().float().requires_grad_() for t in x]
        g = torch.randn(x[0].shape, generator=torch.Generator().manual_seed(seed)).half()
        mechanism(*x).backward(g)
        mechanism(*exact).backward(g.float())
        for ours, theirs in zip(x, exact, strict=True):
            if theirs.grad is not None and ours.grad is not None:
                assert ours.grad[theirs.grad.abs() < 0.99 * most].isfinite().all()

    one()
    tried("a gradient in float16", count)
