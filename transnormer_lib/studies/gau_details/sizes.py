"""The three models of Table 4 at the paper's shape, and how their printed numbers of parameters come about.

RoFormer's printed numbers follow from RoFormer_pytorch's modules if its fixed table of sines and cosines is counted and
the bias of the logits is not. GAU's is met with a gain and a bias in the norm of the embeddings, which the released
code leaves out.
"""

from typing import Any

from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.papers import settings

ROFORMER, GAU_ALPHA = "JunnYu/RoFormer_pytorch@0232729", "JunnYu/GAU-alpha-pytorch@412e50e"
ARCHITECTURES = {"RoFormerV1": "roformer-v1", "RoFormerV2": "roformer-v2", "GAU": "gau"}


def vocabulary(model: str) -> int:
    """The entries of a model's vocabulary: 50,000 words of RoFormerV1, 12,000 characters of the others."""
    if model == "GAU":
        return int(settings.said("gau", GAU_ALPHA, "gau", "vocabulary"))
    return int(settings.said("gau", ROFORMER, "roformer", "vocabulary")[model])


def config(model: str, **fields: Any) -> ModelConfig:
    """The encoder of a row of Table 4; ``fields`` as in ``architecture``."""
    layers = settings.said("gau", GAU_ALPHA, "gau", "layers") if model == "GAU" else 12
    released: dict[str, Any] = {"recipe": "released", "embedding_norm": "layer"} if model == "GAU" else {}
    size: dict[str, Any] = {
        "vocab_size": vocabulary(model),
        "max_length": 512,
        "dim": 768,
        "heads": 12,
        "layers": layers,
    }
    return architecture(ARCHITECTURES[model], kind="encoder", **(size | released | fields))


def trained(model: str, **fields: Any) -> int:
    """Trained parameters."""
    return count_parameters(config(model, **fields))


def as_printed(model: str) -> int:
    """The number behind Table 4's: see the head of this file."""
    if model == "GAU":
        return trained(model)
    rows, width = settings.said("gau", ROFORMER, "roformer", "table")[model]
    return trained(model) + int(rows) * int(width) - vocabulary(model)


def layer_and_two_units(d: int = 768, s: int = 128) -> dict[str, int]:
    """Weights of a layer of attention and FFN without biases, of two gated units, and of those without W_z and γ."""
    layer = 4 * d * d + 2 * d * (4 * d)
    unit = count_parameters(config("GAU", layers=2, dim=d)) - count_parameters(config("GAU", layers=1, dim=d))
    return {"layer": layer, "two units": 2 * unit, "two units without W_z": 2 * (unit - d * s - 2 * s)}


def table() -> list[dict[str, Any]]:
    """One line per model: the vocabulary, what is trained, and the number that Table 4 prints, ours in thousands.

    GAU's count has a gain and a bias in the norm of the embeddings, which the release leaves out.
    """
    return [
        {
            "model": model,
            "vocabulary": vocabulary(model),
            "trained, as counted": trained(model),
            "as released": trained(model, embedding_norm="rms") if model == "GAU" else trained(model),
            "with 12,000 entries": trained(model, vocab_size=12_000),
            "counted as printed (k)": round(as_printed(model) / 1000, 3),
        }
        for model in ARCHITECTURES
    ]
