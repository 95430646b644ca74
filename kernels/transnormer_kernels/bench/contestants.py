"""The implementations measured: the kernels of this package, the public peers, and plain PyTorch.

A contestant declares the cases it enters, the package it needs, and the function it computes if that is not the case's
own: ``bare`` peers leave out φ and the norm, PyTorch's fused attention is softmax attention. Its error is measured
against the function it computes. A peer is imported only when it is built, so a missing or broken one stops no other.

The peers' full stacks compute φ and the rotation, and the norm, in one compiled PyTorch pass each.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from transnormer_kernels.bench import reference
from transnormer_kernels.bench.cases import Case
from transnormer_kernels.bench.reference import Inputs

Outputs = dict[str, Tensor]  # "o", and for a decoding step "state"
Forward = Callable[[Inputs], Outputs]

OURS = "transnormer"
_DISTRIBUTIONS = {"fla": "flash-linear-attention", "flash_attn": "flash-attn"}


@dataclass(frozen=True)
class Contestant:
    """``build(case)`` returns a function from inputs to outputs, for the cases that ``enters(case)`` accepts."""

    name: str
    enters: Callable[[Case], bool]
    build: Callable[[Case], Forward]
    computes: Mapping[str, Any] = field(default_factory=dict)  # the case's fields in which its function differs
    package: str | None = None  # must be installed
    on_cpu: bool = False

    def missing(self, device: torch.device) -> str | None:
        """Why it is left out on ``device``; None if it can run."""
        if device.type != "cuda" and not self.on_cpu:
            return "needs a CUDA device"
        if self.package is not None and find_spec(self.package) is None:
            return f"{_DISTRIBUTIONS.get(self.package, self.package)} is not installed"
        return None


def _only_o(function: Callable[[Inputs], Tensor]) -> Forward:
    return lambda x: {"o": function(x)}


def _ours(case: Case) -> Forward:
    import transnormer_kernels as kernels

    def options(x: Inputs) -> dict[str, Any]:
        norm = {"norm": case.norm, "eps": case.eps, "eps_placement": case.eps_placement}
        return norm | {"theta": x.theta, "reflection": x.reflection}

    if case.operation == "diag":
        block: dict[str, Any] = {"block_size": case.block_size, "scores": case.scores, "causal": case.causal}
        return _only_o(lambda x: kernels.diag_attention(x.q, x.k, x.v, **block, **options(x)))
    if case.operation == "norm":

        def attention(x: Inputs) -> Outputs:
            o = kernels.norm_attention(x.q, x.k, x.v, phi=case.phi, causal=case.causal, **options(x))
            assert isinstance(o, Tensor)  # no final state requested
            return {"o": o}

        return attention

    from transnormer_kernels.step import norm_attention_step

    def step(x: Inputs) -> Outputs:
        assert x.state is not None
        o = norm_attention_step(x.q, x.k, x.v, {"kv": x.state}, position=x.position, phi=case.phi, **options(x))
        return {"o": o, "state": x.state}  # updated in place

    return step


def _short(case: Case) -> Forward:
    return partial(reference.short_form, case)


def _compiled(case: Case) -> Forward:
    return torch.compile(partial(reference.short_form, case), dynamic=False, fullgraph=True)


def _quadratic(case: Case) -> Forward:
    return partial(reference.specification, case)


def _before(case: Case) -> Callable[[Inputs], tuple[Tensor, ...]]:
    """φ(q), φ(k), rotated if the case is: one compiled pass, computed in float32."""

    def turn(q: Tensor, k: Tensor, theta: Tensor | None, reflection: Tensor | None) -> tuple[Tensor, ...]:
        wide = (reference.features(a.float(), case.phi) for a in (q, k))
        return tuple(reference.rotated(a, theta, reflection).to(q.dtype) for a in wide)

    compiled = torch.compile(turn, dynamic=False, fullgraph=True)
    return lambda x: compiled(x.q, x.k, x.theta, x.reflection)


def _after(case: Case) -> Callable[[Tensor], Tensor]:
    """The norm, in one compiled pass."""
    if case.norm != "embedding":
        return lambda o: o

    def norm(o: Tensor) -> Tensor:
        return reference.normed(o.float(), case).to(o.dtype)

    return torch.compile(norm, dynamic=False, fullgraph=True)


def _fla(name: str, full: bool, case: Case) -> Forward:
    """flash-linear-attention's ``name``, alone or with φ before and the norm after it."""
    function = getattr(import_module("fla.ops.linear_attn"), name)
    options: dict[str, Any] = {"scale": 1.0, "normalize": full and case.norm == "denominator"}
    if "head_first" in inspect.signature(function).parameters:  # older releases; in some of them True by default
        options["head_first"] = False
    before = _before(case) if full else lambda x: (x.q, x.k)
    after = _after(case) if full else lambda o: o
    if case.operation == "norm":

        def whole(x: Inputs) -> Outputs:
            q, k = before(x)
            return {"o": after(function(q, k, x.v, **options)[0])}

        return whole

    def step(x: Inputs) -> Outputs:
        q, k, v = (a[:, None] for a in (*before(x), x.v))
        o, state = function(q, k, v, initial_state=x.state, output_final_state=True, **options)
        return {"o": after(o[:, 0]), "state": state}

    return step


def _as_batches(case: Case, x: Tensor) -> Tensor:
    """[B, N, H, D] in the layout of PyTorch's attention: [B·N/w, H, w, D] for DiagAttention, else [B, H, N, D]."""
    w = case.block_size if case.operation == "diag" else case.length
    return x.unflatten(1, (-1, w)).flatten(0, 1).transpose(1, 2)


def _sdpa(backend: str | None, case: Case) -> Forward:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def attention(x: Inputs) -> Outputs:
        q, k, v = (_as_batches(case, a) for a in (x.q, x.k, x.v))
        o = scaled_dot_product_attention(q, k, v, is_causal=case.causal)
        return {"o": o.transpose(1, 2).reshape(x.q.shape)}

    if backend is None:
        return attention

    def chosen(x: Inputs) -> Outputs:
        with sdpa_kernel([getattr(SDPBackend, backend)]):
            return attention(x)

    return chosen


def _flash_varlen(case: Case) -> Forward:
    """flash-attn's packed form; each block is a sequence."""
    function = import_module("flash_attn").flash_attn_varlen_func
    w, tokens = case.block_size, case.batch * case.length
    offsets = torch.arange(0, tokens + 1, w, dtype=torch.int32, device="cuda")

    def attention(x: Inputs) -> Tensor:
        q, k, v = (a.flatten(0, 1) for a in (x.q, x.k, x.v))
        return function(q, k, v, offsets, offsets, w, w, causal=case.causal).view(x.q.shape)

    return _only_o(attention)


def _flex(case: Case) -> Forward:
    """FlexAttention, compiled, with the block mask of DiagAttention."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    w = case.block_size

    def same_block(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        inside = i // w == j // w
        return inside & (j <= i) if case.causal else inside

    mask = create_block_mask(same_block, None, None, case.length, case.length, device="cuda")
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)

    def attention(x: Inputs) -> Tensor:
        q, k, v = (a.transpose(1, 2) for a in (x.q, x.k, x.v))
        return compiled(q, k, v, block_mask=mask).transpose(1, 2)

    return _only_o(attention)


def _is(*operations: str) -> Callable[[Case], bool]:
    return lambda case: case.operation in operations


def _causal_norm(case: Case) -> bool:
    return case.operation == "norm" and case.causal


def _plain_norm(case: Case) -> bool:
    return _causal_norm(case) and case.norm != "denominator" and not case.rotated


def _softmax_blocks(case: Case) -> bool:
    return case.operation == "diag" and case.scores == "softmax"


def _products(case: Case) -> bool:
    """Cases whose plain form is a few batched products; a causal one passes states on and compiles for minutes."""
    return case.operation in ("diag", "step") or (case.operation == "norm" and not case.causal)


def _fits_squared(case: Case) -> bool:
    return case.operation != "step" and case.batch * case.heads * case.length**2 <= 2**26


_BARE: Mapping[str, Any] = {"phi": "identity", "norm": "none", "rotated": False}
_SOFTMAX: Mapping[str, Any] = {"operation": "softmax", "norm": "none", "rotated": False}


def contestants() -> tuple[Contestant, ...]:
    """All contestants, ours first."""
    found = [Contestant(OURS, _is("norm", "diag", "step"), _ours, package="triton")]
    for name, short in (("chunk_linear_attn", "chunk"), ("fused_chunk_linear_attn", "fused chunk")):
        found += [
            Contestant(f"fla {short}, full stack", _causal_norm, partial(_fla, name, True), package="fla"),
            Contestant(f"fla {short}, bare", _plain_norm, partial(_fla, name, False), _BARE, package="fla"),
        ]
    recurrent = "fused_recurrent_linear_attn"
    found += [
        Contestant("fla recurrent, full stack", _is("step"), partial(_fla, recurrent, True), package="fla"),
        Contestant("fla recurrent, bare", _is("step"), partial(_fla, recurrent, False), _BARE, package="fla"),
    ]
    for backend, short in (
        ("FLASH_ATTENTION", "flash"),
        ("CUDNN_ATTENTION", "cuDNN"),
        ("EFFICIENT_ATTENTION", "efficient"),
    ):
        found.append(Contestant(f"SDPA {short}", _softmax_blocks, partial(_sdpa, backend)))
    found += [
        Contestant("flash-attn varlen", _softmax_blocks, _flash_varlen, package="flash_attn"),
        Contestant("FlexAttention", _softmax_blocks, _flex),
        Contestant("compiled", _products, _compiled),
        Contestant("eager", _is("norm", "diag", "step"), _short, on_cpu=True),
        Contestant("SDPA blocks", _softmax_blocks, partial(_sdpa, None), on_cpu=True),
        Contestant("SDPA softmax", _is("norm"), partial(_sdpa, None), _SOFTMAX, on_cpu=True),
        Contestant("eager quadratic", _fits_squared, _quadratic, on_cpu=True),
    ]
    return tuple(found)
