"""BigBird: blocks of tokens that see their neighbours, the two ends of the sequence, and a few random blocks.

Zaheer et al., 2020 (arXiv:2007.14062), Section 2, in the form with internal global tokens (BigBird-ITC) and in blocks
(Appendix D): a query block sees three window blocks (its own, the one before, the one after), the first and the last
block, and ``random_blocks`` others; the first and the last block see everything.

Blocks consist of a sequence's real tokens. Random blocks follow from the buffer ``seed``, the head, the row and the
sequence's number of blocks: they are drawn once, uniformly among the blocks that the row does not see anyway, as in the
paper. The released plans (google-research/bigbird, and transformers after it) draw only from the first blocks of long
sequences, and transformers replaces all random blocks by the first block in evaluation. As there, a sequence of at most
5 + 2·random_blocks blocks has full attention.

Shapes: B batch, H heads, N length, D head_dim, G blocks, C tokens per block, R random blocks, K = 5 + R key blocks.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from transnormer_lib.attention import windows
from transnormer_lib.attention.interface import Attention, AttentionConfig
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.softmax import masked_softmax


@dataclass(frozen=True)
class BigBirdConfig(AttentionConfig):
    causal_refusal: ClassVar[str] = "BigBird is published for encoders only, its last block sees all and is seen by all"

    block_size: int = 64  # tokens per block; published: 64
    random_blocks: int = field(default=3, metadata={"least": 0})  # r: blocks drawn for each row; published: 3
    dropout: float = 0.0  # of the attention matrix, in training

    @property
    def full_blocks(self) -> int:
        """The most blocks of a sequence with full attention; with more, every row has enough blocks to draw from."""
        return 5 + 2 * self.random_blocks


@register("bigbird", BigBirdConfig)
class BigBirdAttention(Attention):
    """p_ij = softmax_j(q_i·k_j / √D) over the tokens j of the blocks that i's block sees."""

    config: BigBirdConfig
    seed: Tensor

    def __init__(self, config: BigBirdConfig) -> None:
        super().__init__(config)
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        self.seed.random_(0, 2**31, generator=generator)

    def plan(self, blocks_B: Tensor, rows: int) -> Tensor:
        """The random blocks of rows 0 … ``rows`` - 1 of sequences with ``blocks_B`` blocks: [B, H, rows, R].

        A row's blocks are distinct, and neither global nor in its window. Rows of global blocks, rows beyond the
        sequence, and sequences with full attention get meaningless numbers.
        """
        r, heads = self.config.random_blocks, self.config.heads
        row = torch.arange(rows, device=blocks_B.device)
        last_B11 = blocks_B[:, None, None] - 1
        # Blocks 1 … last - 1 without the row's window, a gap in that range.
        gap_start = (row - 1).clamp(min=1)
        gap = torch.minimum(row + 1, last_B11 - 1) - gap_start + 1
        choices = (last_B11 - 1 - gap).clamp(min=r)
        numbers = _random_numbers(self.seed, heads, rows, r)
        picked: list[Tensor] = []
        for draw in range(r):
            pick = (numbers[..., draw] * (choices - draw)) >> 31
            # A number among those not yet picked: step over the earlier ones, the lowest first.
            if picked:
                for earlier in torch.stack(picked, -1).sort(-1).values.unbind(-1):
                    pick = pick + (pick >= earlier)
            picked.append(pick)
        if not picked:
            return row.new_zeros(blocks_B.shape[0], heads, rows, 0)
        block = 1 + torch.stack(picked, -1)
        block = block + torch.where(block >= gap_start[:, None], gap[..., None], 0)
        return block.clamp(0, rows - 1)

    def allowed(self, n: int, key_padding_mask: Tensor | None, device: torch.device) -> Tensor:
        """[B, H, N, N]: True where the query's block sees the key's."""
        block_BN = windows.ranks(n, key_padding_mask, device) // self.config.block_size
        blocks_B = -(-windows.counts(n, key_padding_mask, device) // self.config.block_size)
        plan_BHGR = self.plan(blocks_B, -(-n // self.config.block_size))
        query, key = block_BN[:, None, :, None], block_BN[:, None, None, :]
        last = (blocks_B - 1)[:, None, None, None]
        seen = (query == 0) | (query == last) | (key == 0) | (key == last) | ((query - key).abs() <= 1)
        drawn_BHNR = plan_BHGR.gather(
            2, block_BN[:, None, :, None].expand(-1, *plan_BHGR.shape[1:2], -1, plan_BHGR.shape[3])
        )
        seen = seen | (drawn_BHNR[..., None, :] == key[..., None]).any(-1)
        seen = seen | (blocks_B <= self.config.full_blocks)[:, None, None, None]
        return seen & windows.real_pairs(n, key_padding_mask, device)

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        return masked_softmax(q @ k.mT / self.config.head_dim**0.5, allowed)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k, v = self.inputs(q, k, v)
        q = q * self.config.head_dim**-0.5
        return self.finish(windows.on_real_tokens(self._attend, (q, k, v), key_padding_mask))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, count_B: Tensor) -> Tensor:
        """The output for real tokens at the front: full attention for short sequences, blocks for the others."""
        n, full = q.shape[2], self.config.full_blocks * self.config.block_size
        if n <= full:
            return self._full(q, k, v, count_B)
        o = self._sparse(q, k, v, count_B)
        short_B = count_B <= full
        if not short_B.any():
            return o
        dense = F.pad(self._full(q[:, :, :full], k[:, :, :full], v[:, :, :full], count_B), (0, 0, 0, n - full))
        return torch.where(short_B[:, None, None, None], dense, o)

    def _full(self, q: Tensor, k: Tensor, v: Tensor, count_B: Tensor) -> Tensor:
        real_BN = torch.arange(k.shape[2], device=k.device) < count_B[:, None]
        return self.dropout(masked_softmax(q @ k.mT, real_BN[:, None, None])) @ v

    def _sparse(self, q: Tensor, k: Tensor, v: Tensor, count_B: Tensor) -> Tensor:
        n, c = q.shape[2], self.config.block_size
        q_BHGCD, k_BHGCD, v_BHGCD = (windows.blocks(x, c) for x in (q, k, v))
        rows = q_BHGCD.shape[2]
        blocks_B = -(-count_B // c)
        row_G = torch.arange(rows, device=q.device)
        last_B1 = (blocks_B - 1).clamp(min=0)[:, None]

        # Which key blocks a row sees: the two ends, its window without them, its random blocks.
        fixed = torch.stack([row_G * 0, row_G - 1, row_G, row_G + 1], -1).expand(len(count_B), -1, -1)
        fixed = torch.cat([fixed, last_B1[..., None].expand(-1, rows, 1)], -1)
        once = torch.ones_like(fixed, dtype=torch.bool)
        once[..., 1:4] = (fixed[..., 1:4] > 0) & (fixed[..., 1:4] < last_B1[..., None])
        random = self.plan(blocks_B, rows)
        heads = q.shape[1]
        key_BHGK = torch.cat([fixed.clamp(0, rows - 1)[:, None].expand(-1, heads, -1, -1), random], -1)
        seen_BHGK = torch.cat([once[:, None].expand(-1, heads, -1, -1), torch.ones_like(random, dtype=torch.bool)], -1)

        token = torch.arange(c, device=q.device)
        real = key_BHGK[..., None] * c + token < count_B[:, None, None, None, None]
        allowed = (real & seen_BHGK[..., None]).flatten(-2)[..., None, :]
        p = self.dropout(masked_softmax(q_BHGCD @ _gathered(k_BHGCD, key_BHGK).mT, allowed))
        o = p @ _gathered(v_BHGCD, key_BHGK)

        # The first and the last block see everything.
        last = last_B1[:, None, :, None, None].expand(len(q), heads, 1, c, q.shape[-1])
        first_o = self._full(q_BHGCD[:, :, 0], k, v, count_B)[:, :, None]
        last_o = self._full(q_BHGCD.gather(2, last)[:, :, 0], k, v, count_B)[:, :, None]
        o = torch.where((row_G == last_B1)[:, None, :, None, None], last_o, o)
        o = torch.where((row_G == 0)[:, None, None], first_o, o)
        return o.flatten(2, 3)[:, :, :n]

    def head_flops(self, length: int) -> int:
        d, c = self.config.head_dim, self.config.block_size
        if length <= self.config.full_blocks * c:
            return 4 * length * length * d
        padded = -(-length // c) * c
        return 4 * d * c * (padded * (5 + self.config.random_blocks) + 2 * length)


def _gathered(x_BHGCD: Tensor, block_BHGK: Tensor) -> Tensor:
    """The blocks numbered by ``block_BHGK``, one after the other: [B, H, G, K·C, D]."""
    b, h, _, c, d = x_BHGCD.shape
    index = block_BHGK.expand(b, -1, -1, -1).flatten(2)[..., None, None].expand(-1, -1, -1, c, d)
    return x_BHGCD.gather(2, index).view(b, h, block_BHGK.shape[2], -1, d)


def _random_numbers(seed: Tensor, heads: int, rows: int, count: int) -> Tensor:
    """Numbers in [0, 2^31), [heads, rows, count], each a function of the seed and its own place alone.

    They are a counter mixed by SplitMix64's function, twice: longer sequences change no number, and every device gets
    the same ones.
    """
    head, row, draw = (torch.arange(x, device=seed.device) for x in (heads, rows, count))
    counter = (head[:, None, None] << 50) + (row[:, None] << 20) + draw
    return (_mixed(_mixed(seed) + counter) >> 20) & (2**31 - 1)


def _mixed(x: Tensor) -> Tensor:
    x = x + (0x9E3779B97F4A7C15 - 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64)):
        x = (x ^ _shifted(x, shift)) * factor
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x >> bits as for unsigned numbers."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
