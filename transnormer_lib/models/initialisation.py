"""The first weights of a model: the two schemes of the released code, drawn in a fixed order."""

import torch
from torch import nn

from transnormer_lib import attention
from transnormer_lib.models.feed_forward import FFN, GLU


@torch.no_grad()
def draw_fairseq(model: nn.Module, dim: int, generator: torch.Generator | None) -> None:
    """Embeddings N(0, 1/dim); q, k, v Xavier-uniform with gain 1/√2, in DiagAttention and the output with gain 1
    (OpenNLPLab/fairseq-evo@38fa81f); feed-forward parts uniform in ±1/√fan_in, torch's default for a Linear.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=dim**-0.5, generator=generator)
        elif isinstance(module, attention.MultiHeadAttention):
            _reset_attention(module, generator)
        elif isinstance(module, attention.ParallelAttention):
            _reset_output(module.out_proj, generator)
        elif isinstance(module, FFN | GLU):
            reset_linears(module, generator)


@torch.no_grad()
def draw_normal(model: nn.Module, std: float, generator: torch.Generator | None) -> None:
    """Every weight of a Linear or an Embedding N(0, std²), biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std, generator=generator)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


@torch.no_grad()
def reset_linears(parent: nn.Module, generator: torch.Generator | None) -> None:
    """Weights and biases of the linear layers uniform in ±1/√fan_in."""
    for linear in parent.modules():
        if isinstance(linear, nn.Linear):
            bound = linear.in_features**-0.5
            nn.init.uniform_(linear.weight, -bound, bound, generator=generator)
            if linear.bias is not None:
                nn.init.uniform_(linear.bias, -bound, bound, generator=generator)


def _reset_attention(layer: attention.MultiHeadAttention, generator: torch.Generator | None) -> None:
    gain = 1.0 if layer.attention.name == "diag" else 2**-0.5
    for linear in (layer.q_proj, layer.k_proj, layer.v_proj):
        nn.init.xavier_uniform_(linear.weight, gain=gain, generator=generator)
        nn.init.zeros_(linear.bias)
    _reset_output(layer.out_proj, generator)


def _reset_output(projection: nn.Module, generator: torch.Generator | None) -> None:
    if isinstance(projection, nn.Linear):  # an attention among others in its layer leaves the projection to the layer
        nn.init.xavier_uniform_(projection.weight, generator=generator)
        nn.init.zeros_(projection.bias)
