"""FLASH and FLASH-quad: gated attention units with a squared ReLU, quadratic, or quadratic in chunks and linear across.

Hua et al. (2022), "Transformer Quality in Linear Time", arXiv:2202.10447. With the chunk of token i called g(i):

    FLASH-quad  A_ij = relu(q_i·k_j / n + b_{j−i})²                                              Section 3
    FLASH       A_ij = [g(i) = g(j)] relu(q_i·k_j / C + b_{j−i})² + q'_i·k'_j / n                Section 4

q, k (quadratic) and q', k' (linear) are four affine images of one z. In FLASH's linear part i sees the tokens of all
chunks; if causal, only those of earlier chunks, because its own chunk's state would show it later tokens. Chunks are
counted from the start of the padded sequence.

**n.** The paper divides by the length, as does FLASH-pytorch's GAU in causal form, where an output then depends on the
number of later tokens. The default here, ``seen``, is the number of tokens summed: the sequence's real tokens, or in a
causal form row i's own, which gives A one scale at every i and length. The release behind the paper's baselines
(OpenNLPLab/fairseq-evo@25dd5f8) divides FLASH's states by the chunk size, so that their sum grows with the length, and
FLASH-quad's scores by 512 or a greater length. ``divide_by`` selects these forms.

**b** is a table of one number per distance, as released, or the paper's form for long sequences, (R_i a)·(R_j b) with
two vectors rotated by RoPE. FLASH-pytorch has T5's buckets instead, also a table. As above, the release divides the
scores and not b.

Shapes: B batch, N length, D width, e width of u and v, s width of z, C tokens per chunk, G chunks.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transnormer_lib.attention.gated import CachedBlock, GatedBlock, GatedConfig, Images
from transnormer_lib.attention.interface import check_length
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.recurrent import State, StateShapes, append
from transnormer_lib.attention.registry import register
from transnormer_lib.attention.rotary import Rotary


@dataclass(frozen=True)
class _FlashConfig(GatedConfig):
    position_bias: Literal["table", "rope", "none"] = "table"  # b: learned per distance; RoPE of a and b; or zero
    max_length: int = 512  # the table has 2·max_length − 1 numbers


class _Flash(GatedBlock):
    """The position bias of FLASH and FLASH-quad. Linear layers have biases; γ starts small, at N(0, 0.02²)."""

    config: _FlashConfig

    def __init__(self, config: _FlashConfig) -> None:
        super().__init__(config, bias=True, offset=True)
        self.reach = max(config.max_length, getattr(config, "chunk_size", 1))  # the table holds distances below this
        self.table: nn.Parameter | None = None
        self.bias_vectors: nn.Parameter | None = None
        if config.position_bias == "table":
            self.table = nn.Parameter(torch.empty(2 * self.reach - 1))
        if config.position_bias == "rope":
            self.bias_vectors = nn.Parameter(torch.empty(2, config.s))
            self.bias_rotary = Rotary(config.s, learned=False)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(generator)
        for parameter in (self.gamma, self.table, self.bias_vectors):
            if parameter is not None:
                nn.init.normal_(parameter, std=0.02, generator=generator)

    def published_bias(self, n: int) -> Tensor | float:
        """b_{j−i} for all i and j as the paper writes it; distances beyond the table are those of its ends."""
        if self.table is not None:
            at = torch.arange(n, device=self.table.device)
            last = self.reach - 1
            return widen(self.table)[(at[None, :] - at[:, None]).clamp(-last, last) + last]
        if self.bias_vectors is not None:
            a_1NS, b_1NS = self.bias_rotary(*(x.expand(1, n, -1) for x in widen(self.bias_vectors)))
            return (a_1NS @ b_1NS.mT)[0]
        return 0.0

    def distances(self, n: int) -> Tensor | None:
        """b of the distances −(n − 1) … n − 1, [2n − 1]: rotating both by i does not change (R_i a)·(R_j b)."""
        if self.table is not None:
            middle = self.reach - 1
            return widen(self.table)[middle - (n - 1) : middle + n]
        if self.bias_vectors is not None:
            a_S, b_S = widen(self.bias_vectors)
            (b_LS,) = self.bias_rotary(b_S.expand(2 * n - 1, -1), start=-(n - 1))
            return b_LS @ a_S
        return None

    def kernel(self, q: Tensor, k: Tensor) -> Tensor:
        """relu(q_i·k_j + b_{j−i})² [..., n, n], causal if the config is; q is divided already."""
        scores, distances = q @ k.mT, self.distances(q.shape[-2])
        if distances is not None:
            scores = scores + distances.unfold(0, q.shape[-2], 1).flip(0)
        kernel = scores.relu().square()
        return kernel.tril() if self.config.causal else kernel

    def kernel_row(self, q_B1S: Tensor, k_BLS: Tensor) -> Tensor:
        """The last row of ``kernel`` [B, 1, L], for the q of the last of L tokens."""
        scores, distances = q_B1S @ k_BLS.mT, self.distances(k_BLS.shape[1])
        return (scores if distances is None else scores + distances[: k_BLS.shape[1]]).relu().square()


@dataclass(frozen=True)
class FlashConfig(_FlashConfig):
    chunk_size: int = 64  # C; TransNormer's baseline: 64, Hua et al.: 256
    divide_by: Literal["seen", "chunk"] = "seen"  # n of the linear part; released: the chunk size


@register("flash", FlashConfig)
class Flash(_Flash):
    """FLASH, mixed chunk attention. Sequences may be longer than ``max_length``: a chunk reads the middle of the table.

    The recurrent state holds the current chunk and Σ k'_j v_j^T [s, e] over all chunks before it.
    """

    config: FlashConfig
    images: ClassVar[int] = 4

    def attention_matrix(self, images: Images, allowed: Tensor) -> Tensor:
        quad_q, lin_q, quad_k, lin_k = images
        c, n = self.config.chunk_size, quad_q.shape[1]
        chunk_N = torch.arange(n, device=quad_q.device) // c
        within = allowed & (chunk_N[:, None] == chunk_N[None, :])
        across = allowed & (chunk_N[:, None] > chunk_N[None, :]) if self.config.causal else allowed
        quadratic = (quad_q @ quad_k.mT / c + self.published_bias(n)).relu().square()
        linear = lin_q @ lin_k.mT / (c if self.config.divide_by == "chunk" else _count(across))
        return quadratic.masked_fill(~within, 0.0) + linear.masked_fill(~across, 0.0)

    def mix(self, images: Images, v_BNE: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        n = v_BNE.shape[1]
        c = min(self.config.chunk_size, n)
        real_BN = self.real(v_BNE, key_padding_mask)
        if n % c:  # zero values at the end: they are in no sum
            images = tuple(F.pad(x, (0, 0, 0, -n % c)) for x in images)
            v_BNE, real_BN = F.pad(v_BNE, (0, 0, 0, -n % c)), F.pad(real_BN, (0, -n % c))
        quad_q, lin_q, quad_k, lin_k = (x.unflatten(1, (-1, c)) for x in images)
        v_BGCE = v_BNE.unflatten(1, (-1, c))
        o_BGCE = self.kernel(quad_q / self.config.chunk_size, quad_k) @ v_BGCE
        if not self.config.causal:
            o_BGCE = o_BGCE + self._across(lin_q, (images[3].mT @ v_BNE)[:, None], real_BN.sum(1, keepdim=True))
        elif v_BGCE.shape[1] > 1:
            # Sums over earlier chunks only: no rounding of a later chunk may reach an earlier one.
            states_BGSE = (lin_k[:, :-1].mT @ v_BGCE[:, :-1]).cumsum(1)
            seen_BG = real_BN.unflatten(1, (-1, c)).sum(-1)[:, :-1].cumsum(1)
            later = o_BGCE[:, 1:] + self._across(lin_q[:, 1:], states_BGSE, seen_BG)
            o_BGCE = torch.cat([o_BGCE[:, :1], later], dim=1)
        return o_BGCE.flatten(1, 2)[:, :n]

    def _across(self, lin_q: Tensor, states_BGSE: Tensor, seen_BG: Tensor) -> Tensor:
        """The linear part, for the states Σ k'_j v_j^T of ``seen`` tokens."""
        divisor = seen_BG.clamp(min=1.0)[..., None, None]
        if self.config.divide_by == "chunk":
            divisor = torch.full_like(divisor, self.config.chunk_size)
        return lin_q @ (states_BGSE / divisor)

    def mix_flops(self, length: int) -> int:
        c, s, e = min(self.config.chunk_size, length), self.config.s, self.config.e
        padded = -(-length // c) * c
        across = padded - c if self.config.causal else padded  # the first chunk has none before it
        return 2 * (s + e) * padded * c + 4 * across * s * e

    def cache(self) -> StateShapes:
        c, s, e = self.config.chunk_size, self.config.s, self.config.e
        return {"quad_keys": (c, s), "lin_keys": (c, s), "values": (c, e), "kv": (s, e)}

    def remember(self, images: Images, v_BNE: Tensor) -> State:
        # A full chunk stays the current one until the next token comes.
        c, n = self.config.chunk_size, v_BNE.shape[1]
        start = (n - 1) // c * c
        current = {"quad_keys": images[2], "lin_keys": images[3], "values": v_BNE}
        state = {name: F.pad(x[:, start:], (0, 0, 0, start + c - n)) for name, x in current.items()}
        return {**state, "kv": images[3][:, :start].mT @ v_BNE[:, :start]}

    def mix_one(self, images: Images, v_B1E: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        quad_q, lin_q, quad_k, lin_k = images
        c = self.config.chunk_size
        slot = position % c
        quad_keys, lin_keys, values, kv = (state[name] for name in ("quad_keys", "lin_keys", "values", "kv"))
        if slot == 0 and position:
            kv = torch.baddbmm(kv, lin_keys.mT, values)
        quad_keys[:, slot], lin_keys[:, slot], values[:, slot] = quad_k[:, 0], lin_k[:, 0], v_B1E[:, 0]
        seen = slice(slot + 1)
        quadratic = self.kernel_row(quad_q / c, quad_keys[:, seen]) @ values[:, seen]
        divisor = c if self.config.divide_by == "chunk" else max(position - slot, 1)
        after = {"quad_keys": quad_keys, "lin_keys": lin_keys, "values": values, "kv": kv}
        return quadratic + lin_q @ kv / divisor, after


@dataclass(frozen=True)
class FlashQuadConfig(_FlashConfig):
    """FLASH-quad. With ``length`` a causal output depends on the number of later tokens: no recurrent form."""

    divide_by: Literal["seen", "max_length", "length"] = "seen"  # n; released: max_length; FLASH-pytorch: length


@register("flash-quad", FlashQuadConfig)
class FlashQuad(_Flash, CachedBlock):
    """FLASH-quad, the gated attention unit. The recurrent state is a cache of all keys and values, which grows."""

    config: FlashQuadConfig

    def check_length(self, length: int) -> None:
        if self.table is not None:
            check_length(length, self.config.max_length)

    def attention_matrix(self, images: Images, allowed: Tensor) -> Tensor:
        q, k = images
        by = self.config.divide_by
        # The last row of ``allowed`` sees every real token, causal or not.
        n = self.config.max_length if by == "max_length" else _count(allowed if by == "seen" else allowed[:, -1:])
        return (q @ k.mT / n + self.published_bias(q.shape[1])).relu().square().masked_fill(~allowed, 0.0)

    def mix(self, images: Images, v_BNE: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        q, k = images
        if self.config.divide_by == "max_length":
            q = q / self.config.max_length
        else:
            real_BN = self.real(v_BNE, key_padding_mask)
            rows = self.config.causal and self.config.divide_by == "seen"
            n = real_BN.cumsum(1) if rows else real_BN.sum(1, keepdim=True)
            q = q / n.clamp(min=1.0)[..., None]
        return self.kernel(q, k) @ v_BNE  # no mask: padding's values are zero

    def mix_one(self, images: Images, v_B1E: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        n = self.config.max_length if self.config.divide_by == "max_length" else position + 1
        after, keys, values = append(state, images[1], v_B1E, position)
        return self.kernel_row(images[0] / n, keys) @ values, after

    def _check_recurrent(self) -> None:
        super()._check_recurrent()
        if self.config.divide_by == "length":
            raise ValueError("divide_by='length': has no recurrent form, since an output depends on later tokens")


def _count(allowed: Tensor) -> Tensor:
    """How many keys each row may see, at least 1: [B or 1, N, 1]."""
    return allowed.sum(-1, keepdim=True).clamp(min=1)
