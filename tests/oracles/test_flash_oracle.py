"""FLASH, FLASH-quad and GAU against lucidrains' FLASH-pytorch, weights copied, in float64.

What differs there, and is made equal here: its layers hold norm and residual (an identity norm, the residual is
subtracted); the dense layer is two, with the values before the gate; b is T5's buckets times a scale, here the same
numbers in our table; its division is by the padded length, and by the chunk size in causal FLASH.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

flash_pytorch = pytest.importorskip("flash_pytorch")
rotary_embedding_torch = pytest.importorskip("rotary_embedding_torch")

from transnormer_lib.attention import AttentionBlock, build  # noqa: E402

DIM, S = 16, 8
both = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])
# Without padding, and with padding in unlike places of which each sequence has as much.
masked = pytest.mark.parametrize("padding", [(), (3, 4, 17)], ids=["whole", "padded"])


class Unchanged(nn.Module):
    """What stands in for the norm."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


def inputs(n: int, padding: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """(x [2, N, DIM], key_padding_mask [2, N])."""
    x = torch.randn(2, n, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(2, n, dtype=torch.bool)
    for i in padding:
        mask[0, i], mask[1, i + 2] = True, True
    return x, mask


def off_their_start(theirs: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    theirs = theirs.double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn_like(parameter)
    return theirs


def copied(name: str, theirs: Any, affine: Any, out: nn.Linear, **fields: Any) -> AttentionBlock:
    """Our block with the weights of ``theirs``."""
    block = build(name, {"dim": DIM, "s": S, "causal": theirs.causal, **fields}).double().eval()
    hidden, qk = theirs.to_hidden[0], theirs.to_qk[0]
    with torch.no_grad():
        for ours, v_gate, z in (
            (block.in_proj.weight, hidden.weight, qk.weight),
            (block.in_proj.bias, hidden.bias, qk.bias),
        ):
            if ours is not None:
                v, gate = v_gate.chunk(2)
                ours.copy_(torch.cat([gate, v, z]))
        block.out_proj.weight.copy_(out.weight)
        if block.out_proj.bias is not None:
            block.out_proj.bias.copy_(out.bias)
        block.gamma.copy_(affine.gamma)
        block.beta.copy_(affine.beta)
    return block


def set_table(block: AttentionBlock, rel_pos_bias: nn.Module, n: int, divisor: float) -> None:
    """T5's bias between −(n − 1) and n − 1, divided, into the middle of our table."""
    bias_NN = rel_pos_bias(torch.zeros(n, n, dtype=torch.float64)) / divisor
    middle = len(block.table) // 2
    with torch.no_grad():
        block.table[middle : middle + n] = bias_NN[0]
        block.table[middle - n + 1 : middle + 1] = bias_NN[:, 0].flip(0)


def compare(ours: Tensor, theirs: Tensor, mask: Tensor) -> None:
    torch.testing.assert_close(ours[~mask], theirs[~mask], rtol=1e-10, atol=1e-10)


@both
@each_impl
@masked
@pytest.mark.parametrize("token_shift", [False, True])
def test_flash_is_flash_pytorchs_flash(causal, impl, padding, token_shift):
    """Bidirectional, it divides by the padded length: our linear keys are scaled by the share of real tokens. Its
    RoPE is ours, with angles held in float32, here set to float64's. With a token shift what stands on padding moves
    into the token after it: x is zero there, as our blocks make it.
    """
    c, n = 8, 29
    rotary = rotary_embedding_torch.RotaryEmbedding(dim=S, cache_if_possible=False)
    theirs = off_their_start(
        flash_pytorch.FLASH(
            dim=DIM,
            group_size=c,
            query_key_dim=S,
            causal=causal,
            rotary_pos_emb=rotary,
            norm_klass=Unchanged,
            shift_tokens=token_shift,
        )
    )
    rotary.freqs.data = 10000.0 ** (-torch.arange(0, S, 2, dtype=torch.float64) / S)
    x, mask = inputs(n, padding)
    x = x.masked_fill(mask[..., None], 0.0)
    fields = {"chunk_size": c, "divide_by": "chunk" if causal else "seen", "token_shift": token_shift, "impl": impl}
    block = copied("flash", theirs, theirs.qk_offset_scale, theirs.to_out, **fields)
    set_table(block, theirs.rel_pos_bias, c, 1.0)
    if not causal:
        with torch.no_grad():
            block.gamma[3] *= (n - len(padding)) / n
            block.beta[3] *= (n - len(padding)) / n
    compare(block(x, mask), theirs(x, mask=~mask) - x, mask)


@both
@each_impl
@masked
def test_flash_quad_is_flash_pytorchs_gau(causal, impl, padding):
    """It divides scores and b by the padded length, and turns nothing: our queries are scaled by the share of real
    tokens, our table is divided.
    """
    n = 29
    theirs = off_their_start(flash_pytorch.GAU(dim=DIM, query_key_dim=S, causal=causal, norm_klass=Unchanged))
    x, mask = inputs(n, padding)
    fields = {"divide_by": "length", "rope": False, "max_length": 40, "impl": impl}
    block = copied("flash-quad", theirs, theirs.offsetscale, theirs.to_out[0], **fields)
    set_table(block, theirs.rel_pos_bias, n, n)
    with torch.no_grad():
        block.gamma[0] *= (n - len(padding)) / n
        block.beta[0] *= (n - len(padding)) / n
    compare(block(x, mask), theirs(x, mask=~mask) - x, mask)


@each_impl
def test_gau_with_the_square_of_a_over_n_is_flash_pytorchs_gau_without_biases(impl):
    """Bidirectional, where both count all keys; our linear layers have no biases, and b is zero."""
    theirs = off_their_start(flash_pytorch.GAU(dim=DIM, query_key_dim=S, norm_klass=Unchanged))
    with torch.no_grad():
        for bias in (theirs.to_hidden[0].bias, theirs.to_qk[0].bias, theirs.to_out[0].bias):
            bias.zero_()
        theirs.rel_pos_bias.relative_attention_bias.weight.zero_()
    fields = {"normaliser": "relu2-n2", "scale": False, "offset": True, "rope": False, "impl": impl}
    block = copied("gau", theirs, theirs.offsetscale, theirs.to_out[0], **fields)
    x, mask = inputs(29, ())
    compare(block(x), theirs(x) - x, mask)
