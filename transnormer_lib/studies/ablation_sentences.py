"""What Section 5.4 says of Tables 8 to 12 in sentences, and what Figure 3 draws, recomputed.

The sentences about losses are held against the printed tables, those about cost against the operations of the models
at the published size, the figure against models that the library builds.
"""

from itertools import pairwise
from typing import TYPE_CHECKING, Any, get_args

from transnormer_lib.models.config import Kind
from transnormer_lib.paper import tables
from transnormer_lib.studies.ablations import VARIANTS

if TYPE_CHECKING:
    from transnormer_lib.models.language_model import LanguageModel

_COLUMNS = ("t1", "t2")
# Sequences of the published encoder (Table 13).
_LENGTH = 512


def _column(table: str, column: str) -> list[tuple[dict[str, Any], float]]:
    """(labels, perplexity) of every row."""
    return [(record, record[column]) for record in tables.load(table).records()]


def best_proportion() -> dict[str, int]:
    """How many of the 12 layers are DiagAttention in the row of Table 8 with the lowest perplexity, by variant."""
    best = {name: min(_column("table_8", name), key=lambda row: row[1])[0] for name in _COLUMNS}
    return {name: row["diag_layers"] for name, row in best.items()}


def worse_alone() -> dict[str, bool]:
    """Whether both models of one attention alone have a higher perplexity than every mixture in Table 8."""
    found = {}
    for name in _COLUMNS:
        alone = [value for row, value in _column("table_8", name) if 0 in (row["diag_layers"], row["norm_layers"])]
        mixed = [value for row, value in _column("table_8", name) if 0 not in (row["diag_layers"], row["norm_layers"])]
        found[name] = min(alone) > max(mixed)
    return found


def lower_than(table: str, *changes: str) -> dict[str, bool]:
    """Whether the table prints a lower perplexity for TransNormer than for each of ``changes``, by variant."""
    from transnormer_lib.studies.ablation_questions import lines

    found = {}
    for variant in VARIANTS:
        printed = {line.change: line.published[variant] for line in lines(table)}
        found[variant[-2:]] = all((printed[""] or 0.0) < (printed[change] or 0.0) for change in changes)
    return found


def falls_with_the_block() -> dict[str, bool]:
    """Whether every larger block of Table 11 has a lower perplexity, by variant."""
    found = {}
    for name in _COLUMNS:
        values = [value for _, value in _column("table_11", name)]  # blocks of 32, 64, 128
        found[name] = all(after < before for before, after in pairwise(values))
    return found


def transnormer_rows() -> dict[str, list[float]]:
    """The perplexities that Tables 8 to 12 print for TransNormer itself, each value once, by variant."""
    from transnormer_lib.studies.ablation_questions import QUESTIONS, lines

    found: dict[str, list[float]] = {}
    for variant in VARIANTS:
        values = [line.published[variant] for table in QUESTIONS for line in lines(table) if not line.change]
        found[variant[-2:]] = sorted({value for value in values if value is not None})
    return found


def diag_cost_ratios() -> list[float]:
    """Operations of the published encoder's DiagAttention with blocks of 64 and 128 tokens over those with half."""
    from transnormer_lib.attention import build_attention

    operations = []
    for block in (32, 64, 128):
        diag = build_attention("diag", {"heads": 12, "head_dim": 64, "block_size": block})
        operations.append(diag.flops(_LENGTH))
    return [after / before for before, after in pairwise(operations)]


def parallel_cost() -> dict[str, float]:
    """What the published encoder costs with both attentions in every layer, over TransNormer T2, at 512 tokens.

    ``attention``: operations of the attention layers, projections included; ``model``: of the whole forward pass;
    ``parameters``: of the whole encoder.
    """
    from transnormer_lib.models.architectures import published
    from transnormer_lib.models.flops import attention_flops, forward_flops
    from transnormer_lib.models.language_model import count_parameters

    alone, both = (published("transnormer-t2", "encoder", arrangement=name) for name in ("stages", "parallel"))
    return {
        "attention": attention_flops(both, _LENGTH) / attention_flops(alone, _LENGTH),
        "model": forward_flops(both, _LENGTH) / forward_flops(alone, _LENGTH),
        "parameters": count_parameters(both) / count_parameters(alone),
    }


def stages() -> dict[str, list[str]]:
    """The attention of every layer of the published models that Figure 3 draws, first layer first, by kind."""
    from transnormer_lib.models.architectures import published

    return {kind: list(published("transnormer-t2", kind).attention) for kind in ("decoder", "encoder")}


def layer_parts(kind: Kind) -> list[str]:
    """The parts of a layer of TransNormer T2 in the order in which a forward pass runs them, attention by its kind.

    Read off a small model of ``kind`` by running it; every layer must have the same parts. Raises ValueError where
    one differs.
    """
    import torch

    from transnormer_lib.analysis.anatomy import anatomy

    parts = anatomy(_small(kind), torch.zeros(1, 16, dtype=torch.long))
    by_layer: dict[int, list[str]] = {}
    for part in parts:
        if part.layer is not None:
            name = "attention" if part.name in ("DiagAttention", "NormAttention") else part.name
            by_layer.setdefault(part.layer, []).append(name)
    found = list(by_layer.values())
    if any(layer != found[0] for layer in found):
        raise ValueError(f"kind={kind!r}: the layers differ: {found}")
    return found[0]


def leak_between_blocks() -> float:
    """Largest change in another block of a small built model's DiagAttention when one block's input is replaced."""
    from transnormer_lib.analysis import dilution

    return max(dilution.leak_between_blocks(_small(kind), 16) for kind in get_args(Kind))


def norm_cost_ratio() -> float:
    """Operations of NormAttention on 65,536 tokens over those on 1,024."""
    from transnormer_lib.attention import build_attention

    norm = build_attention("norm", {"heads": 12, "head_dim": 64})
    return norm.flops(65_536) / norm.flops(1_024)


def _small(kind: Kind) -> "LanguageModel":
    """A TransNormer T2 of 4 layers that reads 16 tokens in blocks of 4."""
    from transnormer_lib.models.architectures import architecture
    from transnormer_lib.models.language_model import build_model

    size: dict[str, Any] = {"vocab_size": 11, "max_length": 16, "dim": 16, "heads": 2, "layers": 4, "block_size": 4}
    return build_model(architecture("transnormer-t2", kind=kind, **size), seed=0)


def norm_attention_difference(length: int = 48, seed: int = 0) -> float:
    """Largest difference between NormAttention and Figure 3's formula, norm(φ(Q) [φ(K)ᵀ V]), in float64.

    φ = 1+elu; the norm is RMSNorm over the embedding (Equations 14 and 15), written out here.
    """
    import torch

    from transnormer_lib.attention import build_attention

    heads, head_dim, eps = 4, 8, 1e-8
    norm = build_attention("norm", {"heads": heads, "head_dim": head_dim, "phi": "1+elu", "eps": eps})
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 1, heads, length, head_dim, generator=generator, dtype=torch.float64)
    phi_q, phi_k = (1 + torch.nn.functional.elu(x) for x in (q, k))
    product = (phi_q @ (phi_k.mT @ v)).transpose(1, 2).flatten(2)  # [B, N, H·D]
    normed = product / (product.square().mean(-1, keepdim=True) + eps).sqrt()
    return float((norm(q, k, v).transpose(1, 2).flatten(2) - normed).abs().max())
