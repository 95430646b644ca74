"""The block-wise causal form is the plain composition: in values, in derivatives, and where PyTorch transforms it."""

import itertools

import pytest
import torch
from attention_cases import PHIS, draw_mask, draw_qkv, shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.attention import blockwise, build, chunked, feature_map
from transnormer_lib.attention.blockwise import Product

FINISHES = {
    "product": {},
    "rms": {"finish": "rms", "eps": 1e-3},
    "rms-outside": {"finish": "rms", "eps": 1e-3, "eps_inside": False},
    "rms-per-head": {"finish": "rms", "eps": 1e-3, "dims": (3,)},
    "denominator": {"finish": "denominator", "floor": 0.5},
}
each_finish = pytest.mark.parametrize("finish", FINISHES)


def product(finish: str, chunk: int = 3, phi: str = "elu") -> Product:
    return Product(chunk, phi, **FINISHES[finish])


@pytest.fixture(params=[1, 40, 2**20], ids=["a-chunk-per-block", "a-few-per-block", "one-block"])
def block_numbers(request, monkeypatch):
    monkeypatch.setattr(blockwise, "_BLOCK_NUMBERS", request.param)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@each_finish
@pytest.mark.usefixtures("block_numbers")
@settings(deadline=None, max_examples=25)
@given(shape=shapes, phi=st.sampled_from(PHIS), masked=st.booleans())
def test_values_and_gradients_are_those_of_the_plain_form(finish, shape, phi, masked):
    b, h, n, d = (shape[x] for x in "bhnd")
    inputs = [x.requires_grad_() for x in draw_qkv(b, h, n, d, shape["seed"])]
    g = draw_qkv(b, h, n, d, shape["seed"] + 1)[0]
    mask = draw_mask(b, n, shape["seed"]) if masked else None
    what = product(finish, shape["chunk"], phi)
    found = chunked.causal_attention(*inputs, mask, what)
    assert type(found.grad_fn).__name__ == "_BlockwiseBackward"
    expected = chunked._plain(*inputs, mask, what)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    of_found, of_expected = (torch.autograd.grad(o, inputs, g) for o in (found, expected))
    largest = max(x.abs().max().item() for x in of_expected)
    torch.testing.assert_close(of_found, of_expected, rtol=1e-9, atol=1e-10 * (1 + largest))


@each_finish
def test_second_derivatives_equal_finite_differences(finish):
    inputs = [x.requires_grad_() for x in draw_qkv(1, 2, 7, 2, seed=0)]
    assert torch.autograd.gradgradcheck(lambda *x: chunked.causal_attention(*x, None, product(finish)), inputs)


@each_finish
def test_one_tensor_as_query_key_and_value_gets_the_sum_of_their_gradients(finish):
    x = draw_qkv(1, 2, 7, 3, seed=1)[0].requires_grad_()
    for create_graph in (False, True):
        together, plain = (
            torch.autograd.grad(form(x, x, x, None, product(finish)).sin().sum(), x, create_graph=create_graph)
            for form in (chunked.causal_attention, chunked._plain)
        )
        torch.testing.assert_close(together, plain)


@each_finish
def test_a_graph_can_be_gone_through_twice(finish):
    inputs = [x.requires_grad_() for x in draw_qkv(2, 2, 10, 3, seed=2)]
    total = chunked.causal_attention(*inputs, None, product(finish)).sin().sum()
    first = torch.autograd.grad(total, inputs, retain_graph=True)
    assert all(torch.equal(x, y) for x, y in zip(first, torch.autograd.grad(total, inputs), strict=True))


@each_finish
def test_gradients_of_some_inputs_are_those_of_all(finish):
    inputs = draw_qkv(1, 2, 10, 3, seed=3)
    everything = [x.clone().requires_grad_() for x in inputs]
    expected = torch.autograd.grad(chunked.causal_attention(*everything, None, product(finish)).sin().sum(), everything)
    for i in range(3):
        some = [x.clone().requires_grad_(i == j) for j, x in enumerate(inputs)]
        (found,) = torch.autograd.grad(chunked.causal_attention(*some, None, product(finish)).sin().sum(), some[i])
        assert torch.equal(found, expected[i])


@each_finish
def test_transformed_by_torch_func_it_is_the_same_function(finish):
    q, k, v = draw_qkv(2, 2, 7, 3, seed=4)

    def total(x):
        return chunked.causal_attention(x, k, v, None, product(finish)).sin().sum()

    x = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(total(x), x)
    torch.testing.assert_close(torch.func.grad(total)(q), expected)
    _, along = torch.func.jvp(total, (q,), (k,))
    torch.testing.assert_close(along, (expected * k).sum())
    each = torch.func.vmap(lambda *x: chunked.causal_attention(*(y[None] for y in x), None, product(finish))[0])
    torch.testing.assert_close(each(q, k, v), chunked.causal_attention(q, k, v, None, product(finish)))


@each_finish
@pytest.mark.usefixtures("block_numbers")
def test_what_is_not_finite_stays_with_the_tokens_after_it(finish):
    q, k, v = draw_qkv(1, 2, 11, 3, seed=5)
    clean = chunked.causal_attention(q, k, v, None, product(finish))
    for x in (q, k, v):
        x[:, :, 7:] = torch.nan
    # within a chunk a value meets the weight zero, and zero times NaN is NaN: the chunk before is what must be clean
    assert torch.equal(chunked.causal_attention(q, k, v, None, product(finish))[:, :, :6], clean[:, :, :6])


@pytest.mark.parametrize(
    ("name", "phi", "rotary"),
    [
        *itertools.product(["linear-unscaled", "norm"], ["elu", "1+elu"], ["none", "lrpe"]),
        ("linear", "1+elu", "none"),  # rotated, its sums stay in float32
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bfloat16_products_err_at_most_twice_as_much_as_the_eager_form_in_bfloat16(
    name, phi, rotary, seed, monkeypatch
):
    """Nearly everywhere; at the worst place, a small multiple of what rounding the largest value costs.

    The worst place is a row with one or two terms that cancel: there both forms magnify whatever rounding comes first,
    which differs between CPUs, and their ratio says nothing.
    """
    monkeypatch.setattr(blockwise, "_BFLOAT16_PRODUCTS", True)  # PyTorch multiplies it on every CPU, if slowly
    attention = build(
        name, {"heads": 2, "head_dim": 16, "causal": True, "chunk_size": 32, "phi": phi, "rotary": rotary}
    )
    half = [x.bfloat16() for x in draw_qkv(1, 2, 200, 16, seed)]
    g = draw_qkv(1, 2, 200, 16, seed + 100)[0].bfloat16()

    def eager(q, k, v):
        phi_q, phi_k = (feature_map(phi)(x) for x in (q, k))
        rotated_q, rotated_k = attention.rotated(phi_q, phi_k)
        s = (rotated_q.to(q.dtype) @ rotated_k.to(q.dtype).mT).tril()
        if name == "linear":
            s = s / s.sum(-1, keepdim=True).clamp(min=attention.config.denominator_floor)
        return attention.finish(s @ v)

    def values_and_gradients(form, inputs):
        leaves = [x.detach().requires_grad_() for x in inputs]
        o = form(*leaves)
        return [o.detach(), *torch.autograd.grad(o, leaves, g.to(o.dtype))]

    exact = values_and_gradients(eager, [x.double() for x in half])
    for own, low, true in zip(
        values_and_gradients(attention, half), values_and_gradients(eager, half), exact, strict=True
    ):
        assert own.dtype == torch.bfloat16
        errors, eager_errors = ((x.double() - true).abs().flatten() for x in (own, low))
        for share in (0.5, 0.9, 0.99):
            assert errors.quantile(share) <= 2 * eager_errors.quantile(share), f"{share:.0%} of the numbers"
        assert errors.max() <= 16 * torch.finfo(torch.bfloat16).eps * true.abs().max()
