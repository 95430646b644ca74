"""Figure 3's structure and Section 5.4's costs, measured on models that the library builds."""

from itertools import groupby, pairwise
from typing import Any, get_args

import torch

from transnormer_lib.analysis import dilution
from transnormer_lib.analysis.anatomy import anatomy
from transnormer_lib.attention import build_attention
from transnormer_lib.choices import VARIANTS
from transnormer_lib.models import architectures
from transnormer_lib.models.config import Kind, ModelConfig
from transnormer_lib.models.flops import attention_flops, forward_flops
from transnormer_lib.models.initialisation import undrawn
from transnormer_lib.models.language_model import LanguageModel, build_model, count_parameters

_LENGTH = 512  # tokens of the published encoder's sequences (Table 13)


def _encoder(**fields: Any) -> ModelConfig:
    """The published encoder of T2; ``fields`` as in ``architecture``."""
    return architectures.published("transnormer-t2", "encoder", **fields)


def diag_cost_ratios() -> list[float]:
    """Operations of the published encoder's DiagAttention: blocks of 64 over 32, and of 128 over 64 tokens."""
    operations = [
        build_attention("diag", {"heads": 12, "head_dim": 64, "block_size": block}).flops(_LENGTH)
        for block in (32, 64, 128)
    ]
    return [after / before for before, after in pairwise(operations)]


def parallel_cost() -> dict[str, float]:
    """Costs of the published encoder with both attentions in every layer, over TransNormer T2's, at 512 tokens.

    ``attention``: operations of the attention layers with projections; ``model``: operations of a forward pass;
    ``parameters``: of the whole encoder.
    """
    alone, both = (_encoder(arrangement=name) for name in ("stages", "parallel"))
    return {
        "attention": attention_flops(both, _LENGTH) / attention_flops(alone, _LENGTH),
        "model": forward_flops(both, _LENGTH) / forward_flops(alone, _LENGTH),
        "parameters": count_parameters(both) / count_parameters(alone),
    }


def block_cost() -> float:
    """Operations of the published encoder with blocks of 128 tokens over those with 64, on 512 tokens."""
    small, large = (_encoder(block_size=size) for size in (64, 128))
    return forward_flops(large, _LENGTH) / forward_flops(small, _LENGTH)


def stages() -> dict[str, str]:
    """The attentions of the published models' layers in order, as ``6 diag, 6 norm``, by variant and kind.

    Read from models without drawn weights.
    """
    found = {}
    for variant in VARIANTS:
        for kind in get_args(Kind):
            with undrawn():
                model = LanguageModel(architectures.published(variant, kind))
            names = ["+".join(mechanism.name for mechanism in block.mechanisms) for block in model.stack()]
            groups = [(name, len(list(of))) for name, of in groupby(names)]
            found[f"{variant[-2:]} {kind}"] = ", ".join(f"{count} {name}" for name, count in groups)
    return found


def layer_parts() -> dict[str, list[str]]:
    """The parts of a layer in the order of a forward pass, for decoder and encoder.

    Found by running small models of both variants. Raises ValueError if the layers of a kind differ.
    """
    found: dict[str, list[str]] = {}
    for kind in get_args(Kind):
        layers = []
        for variant in VARIANTS:
            by_layer: dict[int, list[str]] = {}
            for part in anatomy(_small(variant, kind), torch.zeros(1, 16, dtype=torch.long)):
                if part.layer is not None:
                    name = "attention" if part.name in ("DiagAttention", "NormAttention") else part.name
                    by_layer.setdefault(part.layer, []).append(name)
            layers += list(by_layer.values())
        if any(layer != layers[0] for layer in layers):
            raise ValueError(f"kind={kind!r}: the layers differ: {layers}")
        found[kind] = layers[0]
    return found


def leak_between_blocks() -> float:
    """Largest change in another block of a small model's DiagAttention when one block's input is replaced."""
    models = [_small(variant, kind) for variant in VARIANTS for kind in get_args(Kind)]
    return max(dilution.leak_between_blocks(model, 16) for model in models)


def norm_cost_ratio() -> float:
    """Operations of NormAttention on 65,536 tokens over those on 1,024."""
    norm = build_attention("norm", {"heads": 12, "head_dim": 64})
    return norm.flops(65_536) / norm.flops(1_024)


def _small(variant: str, kind: Kind) -> LanguageModel:
    """A TransNormer of 4 layers that reads 16 tokens in blocks of 4."""
    size: dict[str, Any] = {"vocab_size": 11, "max_length": 16, "dim": 16, "heads": 2, "layers": 4, "block_size": 4}
    return build_model(architectures.architecture(variant, kind=kind, **size), seed=0)


def norm_attention_difference(length: int = 48, seed: int = 0) -> float:
    """Largest difference between NormAttention and Figure 3's formula, norm(φ(Q) [φ(K)ᵀ V]), in float64.

    With T1's φ = elu and T2's 1+elu; the norm is RMSNorm over the embedding (Equations 14 and 15), written out here.
    """
    heads, head_dim, eps = 4, 8, 1e-8
    generator, largest = torch.Generator().manual_seed(seed), 0.0
    q, k, v = torch.randn(3, 1, heads, length, head_dim, generator=generator, dtype=torch.float64)
    for phi, above in (("elu", 0.0), ("1+elu", 1.0)):
        norm = build_attention("norm", {"heads": heads, "head_dim": head_dim, "phi": phi, "eps": eps})
        phi_q, phi_k = (above + torch.nn.functional.elu(x) for x in (q, k))
        product = (phi_q @ (phi_k.mT @ v)).transpose(1, 2).flatten(2)  # [B, N, H·D]
        normed = product / (product.square().mean(-1, keepdim=True) + eps).sqrt()
        largest = max(largest, float((norm(q, k, v).transpose(1, 2).flatten(2) - normed).abs().max()))
    return largest
