"""Nyströmformer against transformers and against lucidrains' nystrom-attention, weights copied, in float64.

Both project to q, k and v themselves (the test takes their layers) and both start the iteration from the largest norm
of the whole batch, which ours does with ``norms_of="batch"``. transformers has the norms of each matrix too, by an
option whose name in the config it misspells: the test sets the attribute. Its mask reaches one softmax of three and no
landmark, so only lengths without padding are compared with it.

nystrom-attention fills the softmax of a landmark without tokens with equal numbers instead of leaving it out. Then its
matrix of landmarks is block triangular, and the inverse of the block that matters is ours: the iterations go on until
it is found, and its other iterates are not compared. Its segments are of places, ours of real tokens: they are the
same where the padding is one whole segment at the end.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from transnormer_lib.attention import build

HEADS, HEAD_DIM = 2, 8
DIM = HEADS * HEAD_DIM
each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])
each_kernel = pytest.mark.parametrize("conv_kernel", [None, 5])


def our(**options: Any) -> torch.nn.Module:
    return build("nystromformer", {"heads": HEADS, "head_dim": HEAD_DIM, **options}).double()


def copy_kernel(ours: torch.nn.Module, conv: torch.nn.Conv2d) -> None:
    with torch.no_grad():
        ours.conv_HW.copy_(conv.weight[:, 0, :, 0])


def split(y: Tensor) -> Tensor:
    return y.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2)


@each_impl
@each_kernel
@pytest.mark.parametrize("norms_of", ["batch", "matrix"])
def test_it_computes_what_transformers_computes(impl, conv_kernel, norms_of):
    pytest.importorskip("transformers")
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    torch.manual_seed(0)
    config = NystromformerConfig(
        hidden_size=DIM,
        num_attention_heads=HEADS,
        num_landmarks=4,
        segment_means_seq_len=24,
        conv_kernel_size=conv_kernel or 1,
        attention_probs_dropout_prob=0.0,
        inv_coeff_init_option=False,
    )
    theirs = NystromformerSelfAttention(config).double().eval()
    theirs.conv_kernel_size = conv_kernel  # None is no convolution, but the config wants a number
    theirs.init_option = "original" if norms_of == "batch" else "exact"
    ours = our(landmarks=4, conv_kernel=conv_kernel, norms_of=norms_of, impl=impl)
    if conv_kernel:
        copy_kernel(ours, theirs.conv)
    x = 3.0 * torch.randn(3, 24, DIM, dtype=torch.float64)
    o = ours(split(theirs.query(x)), split(theirs.key(x)), split(theirs.value(x)))
    torch.testing.assert_close(o.transpose(1, 2).flatten(2), theirs(x)[0], rtol=1e-11, atol=1e-11)


@each_impl
@each_kernel
def test_it_computes_what_nystrom_attention_computes(impl, conv_kernel):
    theirs, ours = lucidrains(6, conv_kernel), our(landmarks=6, conv_kernel=conv_kernel, norms_of="batch", impl=impl)
    if conv_kernel:
        copy_kernel(ours, theirs.res_conv)
    x = 3.0 * torch.randn(3, 24, DIM, dtype=torch.float64)
    q, k, v = (split(y) for y in theirs.to_qkv(x).chunk(3, dim=-1))
    actual = theirs.to_out(ours(q, k, v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(actual, theirs(x), rtol=1e-11, atol=1e-11)


@each_impl
@each_kernel
def test_it_computes_what_nystrom_attention_computes_of_padding(impl, conv_kernel):
    iterations = 40
    theirs = lucidrains(6, conv_kernel, iterations)
    ours = our(landmarks=5, conv_kernel=conv_kernel, iterations=iterations, impl=impl)
    if conv_kernel:
        copy_kernel(ours, theirs.res_conv)
    x = 6.0 * torch.randn(3, 24, DIM, dtype=torch.float64)
    mask = (torch.arange(24) >= 20).expand(3, -1)
    q, k, v = (split(y) for y in theirs.to_qkv(x).chunk(3, dim=-1))
    actual = theirs.to_out(ours(q, k, v, mask).transpose(1, 2).flatten(2))
    expected = theirs(x, mask=~mask)
    torch.testing.assert_close(actual[~mask], expected[~mask], rtol=1e-8, atol=1e-8)


def lucidrains(landmarks: int, conv_kernel: int | None, iterations: int = 6) -> torch.nn.Module:
    nystrom_attention = pytest.importorskip("nystrom_attention")
    torch.manual_seed(0)
    return (
        nystrom_attention.NystromAttention(
            DIM,
            dim_head=HEAD_DIM,
            heads=HEADS,
            num_landmarks=landmarks,
            pinv_iterations=iterations,
            residual=conv_kernel is not None,
            residual_conv_kernel=conv_kernel or 1,
        )
        .double()
        .eval()
    )
