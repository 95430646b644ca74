"""The first weights of every model: which part gets which distribution, drawn in one fixed order.

``ModelConfig.init`` names one of two schemes of the released code (OpenNLPLab/fairseq-evo@38fa81f):

    part, in the order drawn               fairseq                            normal-0.02
    1  a mechanism's or block's own        its ``reset_parameters``           its own; then its linear layers as in 2
    2  token embedding                     N(0, 1/its width)                  N(0, 0.02²)
       q, k, v projections                 Xavier-uniform, gain 1/√2 (in      N(0, 0.02²), biases 0
                                           DiagAttention 1), biases 0
       output projection of attention      Xavier-uniform, gain 1, bias 0     N(0, 0.02²), bias 0
       FFN, GLU                            uniform in ±1/√fan_in              N(0, 0.02²), biases 0
    3  head of masked LM or classifier     uniform in ±1/√fan_in              N(0, 0.02²), biases 0
       untied output; bias of the logits   N(0, 1/dim); 0                     N(0, 0.02²); 0
    4  learned positions                   N(0, 0.02²)                        N(0, 0.02²)
    5  LRPE: angles; reflection            fixed start; random direction      fixed start; random direction

Norms keep gain 1 and bias 0 from their constructors.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from transnormer_lib import attention
from transnormer_lib.attention.gated import uniform_linear
from transnormer_lib.models.backbone import Backbone
from transnormer_lib.models.feed_forward import FFN, GLU

_DRAWS = ("normal_", "uniform_", "xavier_uniform_", "kaiming_uniform_")


@contextmanager
def undrawn() -> Iterator[None]:
    """Models that are built inside have the right shapes and arbitrary weights, which take up no memory until read.

    For counting. The meta device would do the same, but its first use imports torch's compiler, which takes seconds.
    """
    with torch.random.fork_rng(devices=[]), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@torch.no_grad()
def draw_weights(model: Backbone, generator: torch.Generator | None) -> None:
    """Draw every weight of a language model or a classifier, from torch's default generator if None is given."""
    fairseq = model.config.init == "fairseq"
    for module in model.modules():
        if isinstance(module, attention.Attention | attention.AttentionBlock):
            module.reset_parameters(generator)
    (draw_fairseq if fairseq else draw_normal)(model, generator)
    if model.head is not None and fairseq:
        uniform_linear(model.head, generator)
    elif isinstance(model.head, nn.Sequential):
        draw_normal(model.head, generator)  # a classifier's, drawn twice: a seed must keep its weights
    if model.output is not None:
        nn.init.normal_(model.output, std=model.config.dim**-0.5 if fairseq else 0.02, generator=generator)
    if model.output_bias is not None:
        nn.init.zeros_(model.output_bias)
    if isinstance(model.positions.table, nn.Parameter):
        nn.init.normal_(model.positions.table, std=0.02, generator=generator)
    for module in model.modules():
        if isinstance(module, attention.Rotary):
            module.reset_parameters(generator)


def draw_fairseq(model: Backbone, generator: torch.Generator | None) -> None:
    """Embedding, projections and feed-forward parts by the scheme ``fairseq``."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=model.config.embedding_width**-0.5, generator=generator)
        elif isinstance(module, attention.MultiHeadAttention):
            gain = 1.0 if module.attention.name == "diag" else 2**-0.5
            for projection in (module.q_proj, module.k_proj, module.v_proj):
                _xavier(projection, gain, generator)
            _xavier(module.out_proj, 1.0, generator)
        elif isinstance(module, attention.ParallelAttention):
            _xavier(module.out_proj, 1.0, generator)
        elif isinstance(module, FFN | GLU):
            uniform_linear(module, generator)


def draw_normal(parent: nn.Module, generator: torch.Generator | None) -> None:
    """All linear layers and embeddings by the scheme ``normal-0.02``."""
    for module in parent.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def _xavier(projection: nn.Module, gain: float, generator: torch.Generator | None) -> None:
    if isinstance(projection, nn.Linear):  # one attention of several has no output projection of its own
        nn.init.xavier_uniform_(projection.weight, gain=gain, generator=generator)
        if projection.bias is not None:
            nn.init.zeros_(projection.bias)
