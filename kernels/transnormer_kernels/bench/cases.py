"""The measured cases: shapes, options, and targets.

Shapes: B batch, N length, H heads, D head_dim. B·H·N is 2^20 unless a case says otherwise.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

Operation = Literal["norm", "diag", "step", "softmax"]


@dataclass(frozen=True)
class Aim:
    """The target: ``ratio`` times faster than the fastest correct one of ``against``."""

    against: tuple[str, ...]
    ratio: float


@dataclass(frozen=True)
class Case:
    """One operation at one shape, forward or forward and backward.

    ``step`` is one token against a state, and has no length. ``softmax`` is no case of its own: PyTorch's fused
    attention is checked against it when it is timed beside a linear attention.
    """

    name: str
    operation: Operation
    batch: int
    length: int
    heads: int
    head_dim: int
    backward: bool = False
    causal: bool = True
    phi: Literal["1+elu", "elu", "relu", "identity"] = "1+elu"
    norm: Literal["embedding", "none", "denominator"] = "embedding"
    eps: float = 1e-8
    eps_placement: Literal["inside", "outside"] = "inside"
    rotated: bool = False  # the released layer's LRPE: reflection, then learned angles
    block_size: int = 64
    scores: Literal["softmax", "rela"] = "softmax"
    dtype: str = "bfloat16"
    aims: tuple[Aim, ...] = ()
    aim_of_floor: float | None = None

    @property
    def torch_dtype(self) -> torch.dtype:
        """``dtype`` as a torch dtype."""
        return getattr(torch, self.dtype)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The shape of q, k, v and o."""
        if self.operation == "step":
            return self.batch, self.heads, self.head_dim
        return self.batch, self.length, self.heads, self.head_dim

    def shape(self) -> dict[str, int]:
        """B, N, H, D by letter."""
        return {"B": self.batch, "N": self.length, "H": self.heads, "D": self.head_dim}

    def options(self) -> dict[str, Any]:
        """The case's other fields, as plain values."""
        names: tuple[str, ...] = ("block_size", "scores") if self.operation == "diag" else ("phi",)
        names = ("operation", "backward", "causal", "norm", "eps", "eps_placement", "rotated", *names)
        return {name: getattr(self, name) for name in names}

    def reduced(self, scores: int) -> "Case":
        """The same case, shortened until B·H·N² is at most ``scores``, but not below 128 tokens.

        Batch and heads stay the same, so that the kernels choose the same launch.
        """
        length = self.length
        while length > 128 and self.batch * self.heads * length**2 > scores:
            length //= 2
        return replace(self, length=length)

    def quick(self) -> "Case":
        """A short version, to check that everything works. Its times are no result."""
        if self.operation == "step":
            return replace(self, batch=max(1, self.batch // 8))
        return replace(self, length=max(self.length // 8, min(self.length, 128)))


_FULL = ("fla chunk, full stack", "fla fused chunk, full stack")
_BARE = ("fla chunk, bare", "fla fused chunk, bare")
_BLOCKS = ("SDPA flash", "SDPA cuDNN", "SDPA efficient", "flash-attn varlen", "FlexAttention", "compiled")


def _aims(full: float, bare: float | None = None) -> tuple[Aim, ...]:
    return (Aim(_FULL, full), *(() if bare is None else (Aim(_BARE, bare),)))


def gpu_cases() -> tuple[Case, ...]:
    """The cases on a GPU, in bfloat16. The aims are for an H200."""
    m64, m128 = (16, 4096, 16, 64), (16, 4096, 16, 128)
    cases = [
        Case("norm causal d64", "norm", *m64, aims=_aims(4, 2.5), aim_of_floor=0.85),
        Case("norm causal d128", "norm", *m128, aims=_aims(3.5, 2), aim_of_floor=0.75),
        Case("norm causal d64, N 65,536, 8 heads", "norm", 1, 65536, 8, 64, aims=_aims(3), aim_of_floor=0.72),
        Case("norm causal d64, N 65,536, 32 heads", "norm", 1, 65536, 32, 64, aims=_aims(3), aim_of_floor=0.72),
        Case("norm causal d64, backward too", "norm", *m64, backward=True, aims=_aims(4), aim_of_floor=0.65),
        Case("norm causal d128, backward too", "norm", *m128, backward=True, aims=_aims(3.5), aim_of_floor=0.58),
        Case(
            "norm bidirectional d64", "norm", *m64, causal=False, aims=(Aim(("compiled",), 2),), aim_of_floor=0.88
        ),
        Case("scaled 1+elu causal d64", "norm", *m64, norm="denominator", aims=_aims(6), aim_of_floor=0.8),
        Case("norm causal d64, paper shape", "norm", 16, 512, 8, 64, aims=(Aim(("eager",), 5),)),
        Case("norm causal d64, as released", "norm", *m64, eps_placement="outside", rotated=True),
        Case(
            "norm causal d64, as released, backward too", "norm", *m64,
            backward=True, eps_placement="outside", rotated=True,
        ),
        Case(
            "decode d128, batch 256", "step", 256, 1, 32, 128,
            aims=(Aim(("fla recurrent, full stack", "fla recurrent, bare"), 1.15),), aim_of_floor=0.88,
        ),
        Case("decode d128, batch 1", "step", 1, 1, 32, 128, aims=(Aim(("eager",), 5),)),
    ]  # fmt: skip
    diag = Case("", "diag", *m64, causal=False, norm="none")
    cases += [
        replace(diag, name=f"diag T2 d64, w {w}", block_size=w, aims=(Aim(_BLOCKS, 1.5),), aim_of_floor=0.9)
        for w in (32, 64, 128)
    ]
    cases += [
        replace(diag, name="diag T2 d64, w 64, backward too", backward=True, aims=(Aim(_BLOCKS, 2),), aim_of_floor=0.8),
        replace(
            diag, name="diag T1 d64, w 64, backward too", backward=True, scores="rela", norm="embedding",
            aims=(Aim(("compiled",), 3),), aim_of_floor=0.75,
        ),
    ]  # fmt: skip
    return tuple(cases)


def cpu_cases() -> tuple[Case, ...]:
    """The cases on a machine without a GPU: short and in float32, without our kernels and so without aims."""
    base = Case("", "norm", 1, 1024, 8, 64, dtype="float32")
    both = replace(base, backward=True)
    return (
        replace(both, name="norm causal d64, backward too"),
        replace(both, name="norm causal d64, N 2,048, backward too", length=2048),
        replace(both, name="norm bidirectional d64, backward too", causal=False),
        replace(both, name="scaled 1+elu causal d64, backward too", norm="denominator"),
        replace(base, name="decode d64", operation="step", length=1),
        replace(both, name="diag T2 d64, w 64, backward too", operation="diag", causal=False, norm="none"),
        replace(both, name="diag T1 d64, w 64, backward too", operation="diag", causal=False, scores="rela"),
    )
