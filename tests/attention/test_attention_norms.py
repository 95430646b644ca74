"""RMSNorm, LayerNorm and ScaleNorm: definitions, the two places of eps, gains, half precision."""

from typing import get_args

import pytest
import torch
from attention_cases import draw_qkv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from transnormer_lib.attention import LayerNorm, RMSNorm, ScaleNorm, build_norm, layer_norm, rms_norm
from transnormer_lib.attention.norms import NormName

rows = st.tuples(st.integers(1, 5), st.integers(1, 17), st.integers(0, 2**32 - 1))


def draw(rows_):
    n, d, seed = rows_
    return draw_qkv(1, 1, n, d, seed)[0][0, 0]


@settings(deadline=None, max_examples=30)
@given(rows=rows, eps=st.floats(1e-10, 1.0))
def test_eps_inside_the_root_is_definition_d1(rows, eps):
    x = draw(rows)
    expected = x / (x.square().sum(-1, keepdim=True) / x.shape[-1] + eps).sqrt()
    torch.testing.assert_close(rms_norm(x, eps), expected, rtol=1e3 * torch.finfo(x.dtype).eps, atol=0)


@settings(deadline=None, max_examples=30)
@given(rows=rows, eps=st.floats(1e-10, 1.0))
def test_eps_outside_the_root_is_the_released_form(rows, eps):
    x = draw(rows)
    expected = x / (x.square().mean(-1, keepdim=True).sqrt() + eps)
    actual = rms_norm(x, eps, "outside")
    torch.testing.assert_close(actual, expected, rtol=1e3 * torch.finfo(x.dtype).eps, atol=0)


@settings(deadline=None, max_examples=20)
@given(rows=rows)
def test_layer_norm_with_gain_equals_pytorchs(rows):
    x = draw(rows)
    ours, theirs = LayerNorm(x.shape[-1], affine=True).double(), nn.LayerNorm(x.shape[-1]).double()
    with torch.no_grad():
        for gain, bias in ((ours.gain, ours.bias), (theirs.weight, theirs.bias)):
            gain.copy_(torch.linspace(0.5, 2, x.shape[-1]))
            bias.copy_(torch.linspace(-1, 1, x.shape[-1]))
    assert torch.equal(ours(x), theirs(x))


@settings(deadline=None, max_examples=20)
@given(rows=rows, placement=st.sampled_from(["inside", "outside"]))
def test_a_gain_multiplies_each_feature(rows, placement):
    x = draw(rows)
    norm = RMSNorm(x.shape[-1], 1e-6, placement, affine=True).double()
    assert torch.equal(norm(x), rms_norm(x, 1e-6, placement))  # it starts at one
    with torch.no_grad():
        norm.gain.copy_(torch.arange(1.0, x.shape[-1] + 1))
    torch.testing.assert_close(norm(x), rms_norm(x, 1e-6, placement) * torch.arange(1.0, x.shape[-1] + 1))


@settings(deadline=None, max_examples=30)
@given(rows=rows, eps=st.floats(1e-10, 10.0), gain=st.floats(0.01, 3.0))
def test_scale_norm_gives_every_row_the_length_of_its_gain_unless_it_is_shorter_than_eps(rows, eps, gain):
    x = draw(rows)
    norm = ScaleNorm(x.shape[-1], eps, affine=True).double()
    with torch.no_grad():
        norm.gain.fill_(gain)
    lengths = x.square().sum(-1, keepdim=True).sqrt()
    rtol = 1e3 * torch.finfo(x.dtype).eps
    torch.testing.assert_close(norm(x), gain * x / torch.where(lengths > eps, lengths, eps), rtol=rtol, atol=0)
    long = lengths[:, 0] > eps
    torch.testing.assert_close(norm(x)[long].norm(dim=-1), torch.full_like(x[long, 0], gain), rtol=rtol, atol=0)


@settings(deadline=None, max_examples=30)
@given(rows=rows)
@pytest.mark.parametrize("affine", [False, True], ids=["fixed", "at-its-start"])
def test_scale_norm_is_rms_norm_but_for_the_place_of_eps(affine, rows):
    x, tiny = draw(rows), 1e-200
    norm = ScaleNorm(x.shape[-1], tiny, affine).double()
    if affine:  # the parameter was made in float32
        assert norm.gain.item() == pytest.approx(x.shape[-1] ** 0.5, rel=torch.finfo(torch.float32).eps)
        with torch.no_grad():
            norm.gain.fill_(x.shape[-1] ** 0.5)
    for placement in ("inside", "outside"):
        expected = rms_norm(x, tiny, placement)
        torch.testing.assert_close(norm(x), expected, rtol=1e3 * torch.finfo(x.dtype).eps, atol=0)
    small = 1e-4 * x / x.norm(dim=-1, keepdim=True)  # below an ε of 1e-3 they part
    assert (ScaleNorm(x.shape[-1], 1e-3).double()(small).abs() < rms_norm(small, 1e-20).abs()).all()


def test_scale_norms_gradient_equals_finite_differences_in_input_and_gain():
    norm = ScaleNorm(5, 1e-3, affine=True).double()
    x = draw((3, 5, 0)).requires_grad_()
    gain = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y, g: torch.func.functional_call(norm, {"gain": g}, (y,)), [x, gain])


@pytest.mark.parametrize("norm", [RMSNorm(6), RMSNorm(6, 1e-8, "outside"), LayerNorm(6), ScaleNorm(6)], ids=str)
def test_a_row_of_zeros_gives_zeros_and_a_finite_gradient(norm):
    x = torch.zeros(2, 6, requires_grad=True)
    y = norm(x)
    (y * torch.arange(6.0)).sum().backward()
    assert not y.any()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("placement", ["inside", "outside"])
def test_rms_gradient_equals_finite_differences(placement):
    x = draw((3, 5, 0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: rms_norm(y, 1e-3, placement), [x])


@pytest.mark.parametrize("placement", ["inside", "outside"])
def test_rms_second_derivative_equals_finite_differences(placement):
    x = draw((3, 5, 0)).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda y: rms_norm(y, 1e-3, placement), [x])


@pytest.mark.parametrize("placement", ["inside", "outside"])
def test_rms_forward_mode_derivative_is_that_of_backward_mode(placement):
    x, along = draw((3, 5, 0)), draw((3, 5, 1))
    (_, forward), (_, backward) = (
        derivative(lambda y: rms_norm(y, 1e-3, placement), x, along)
        for derivative in (lambda f, x, u: torch.func.jvp(f, (x,), (u,)), torch.autograd.functional.jvp)
    )
    torch.testing.assert_close(forward, backward)


@pytest.mark.parametrize("placement", ["inside", "outside"])
def test_rms_norm_without_a_gradient_is_the_same(placement):
    x = draw((3, 5, 0)).requires_grad_()
    with torch.no_grad():
        unrecorded = rms_norm(x, 1e-3, placement)
    assert torch.equal(unrecorded, rms_norm(x, 1e-3, placement))


@pytest.mark.parametrize(
    "function",
    [rms_norm, lambda x: rms_norm(x, 1e-8, "outside"), layer_norm, ScaleNorm(512)],
    ids=["rms", "rms-outside", "layer", "scale"],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_inputs_are_normalised_in_float32(function, dtype):
    x = (300 * draw((4, 512, 1))).to(dtype)  # squares of 300 summed over 512 are beyond float16
    y = function(x)
    assert y.dtype == dtype
    assert torch.equal(y, function(x.float()).to(dtype))


@pytest.mark.parametrize("name", get_args(NormName))
@pytest.mark.parametrize("affine", [False, True])
def test_build_norm_makes_every_name_it_lists(name, affine):
    norm = build_norm(name, 8, 1e-5, affine=affine)
    assert norm(torch.ones(2, 8)).shape == (2, 8)
    assert bool(list(norm.parameters())) == affine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("batch", 4, 1e-5), "norm='batch': must be one of 'rms', 'layer', 'scale'"),
        (("rms", 4, 0.0), "eps=0.0: must be a positive finite number"),
        (("rms", 4, "1e-5"), "eps='1e-5': must be a positive finite number"),
        (("rms", 4, 1e-5, "beside"), "eps_placement='beside': must be one of 'inside', 'outside'"),
        (("layer", 4, 1e-5, "outside"), "eps_placement='outside': only norm='rms'"),
        (("scale", 4, 1e-5, "outside"), "eps_placement='outside': only norm='rms' has this form, not norm='scale'"),
    ],
)
def test_a_norm_that_does_not_exist_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        build_norm(*arguments)
