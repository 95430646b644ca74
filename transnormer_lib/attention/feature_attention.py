"""The linear attentions with a denominator and features of their own: Performer, RFA, cosFormer.

    o_i = Σ_j φ(q_i)·φ(k_j) v_j / max(Σ_j φ(q_i)·φ(k_j), floor)                 (j ≤ i if causal)

A mechanism writes ``query_features`` and ``key_features``; its full, causal and recurrent forms are here.

Shapes: B batch, H heads, N length, D head_dim, M features.
"""

from torch import Tensor

from transnormer_lib.attention.blockwise import Product
from transnormer_lib.attention.chunked import causal_attention, product_and_normaliser, product_flops
from transnormer_lib.attention.interface import Attention
from transnormer_lib.attention.linear import scale_rows
from transnormer_lib.attention.norms import widen
from transnormer_lib.attention.random_features import RandomProjection
from transnormer_lib.attention.recurrent import State, StateShapes


class FeatureAttention(Attention):
    """Base of the mechanisms above. The recurrent state is Σ_j φ(k_j) v_j^T and Σ_j φ(k_j)."""

    feature_count: int  # M
    floor: float = 1e-12  # of the denominator; with positive features only a query without keys is below it

    def query_features(self, q: Tensor, start: int) -> Tensor:
        """φ(q) [B, H, N, M] for rotated queries at the positions start, start + 1, …"""
        raise NotImplementedError

    def key_features(self, k: Tensor, start: int) -> Tensor:
        """φ(k) likewise for rotated keys; the same φ unless overridden."""
        return self.query_features(k, start)

    def feature_flops(self, length: int) -> int:
        """Operations of one head's features of queries and keys."""
        return 0

    def begin(self) -> None:
        """Count a forward pass in training, which may redraw random features."""
        for module in self.children():
            if self.training and isinstance(module, RandomProjection):
                module.passed()

    def attention_matrix(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        q, k = self.rotated(q, k)
        s = self.query_features(q, 0) @ self.key_features(k, 0).mT
        return scale_rows(s if allowed is None else s.masked_fill(~allowed, 0.0), self.floor)

    def reference(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        self.begin()
        return super().reference(q, k, v, key_padding_mask)

    def chunked(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        self.begin()
        return self.product(*self.inputs(q, k, v), key_padding_mask)

    def product(self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        """The output for rotated queries and keys, in the dtype of the sums, with zeros on padding."""
        phi_q, phi_k = self.query_features(q, 0), self.key_features(k, 0)
        if self.config.causal:
            product = Product(self.config.chunk_size, "identity", "denominator", floor=self.floor)
            return causal_attention(phi_q, phi_k, v, key_padding_mask, product)
        if key_padding_mask is not None:
            phi_k = phi_k.masked_fill(key_padding_mask[:, None, :, None], 0.0)
        t, z = product_and_normaliser(phi_q, phi_k, v)
        return t / z.clamp(min=self.floor)

    def state_shapes(self) -> StateShapes:
        return {"kv": (self.feature_count, self.config.head_dim), "z": (self.feature_count,)}

    def state_after(self, k: Tensor, v: Tensor) -> State:
        (k,) = self.rotated(widen(k))
        phi_k = self.key_features(k, 0)
        return {"kv": phi_k.mT @ widen(v), "z": phi_k.sum(-2)}

    def recurrence(self, q: Tensor, k: Tensor, v: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        q, k = self.rotated(widen(q), widen(k), start=position)
        phi_q, phi_k = self.query_features(q, position), self.key_features(k, position)
        kv, z = state["kv"].addcmul_(phi_k.mT, widen(v)), state["z"].add_(phi_k[:, :, 0])
        return phi_q @ kv / (phi_q @ z[..., None]).clamp(min=self.floor), {"kv": kv, "z": z}

    def head_flops(self, length: int) -> int:
        chunk_size = self.config.chunk_size if self.config.causal else None
        e = self.config.head_dim + (not self.config.causal)  # causal, the denominator is a sum, not a product
        return product_flops(length, self.feature_count, e, chunk_size) + self.feature_flops(length)
