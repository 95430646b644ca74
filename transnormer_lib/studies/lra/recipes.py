"""The two recipes of Table 6: every setting of a run on a task of the Long Range Arena, and its models.

- ``paper``: Appendix E uses "the same configuration as Skyformer", whose harness is pkuzengqi/Skyformer@1a677cb
  (src/config.py): 2 pre-norm layers of width 64, 2 heads, learned positions, an FFN of 128 or a GLU of 85, dropout
  0.1, AdamW without decay under a one-cycle schedule, gradients clipped by value, 50,000 steps. The baselines' own
  sizes are from that harness too.
- ``released``: script_lra.py of OpenNLPLab/Transnormer@fba2b49 with OpenNLPLab/lra@dd871ef: deeper and wider per task,
  a GELU FFN and no GLU in every row, LRPE, sinusoidal positions, a cosine schedule. The library differs in two things:
  pre-norm LayerNorm replaces the release's BatchNorm over batch and length, and NormAttention's norm is RMSNorm with
  the release's ε of 1e-2.

FLASH has as many blocks as the others have layers: at width 64 a block has as many weights as a layer, and the paper
keeps the models' sizes similar.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import ceil, log
from typing import Any, Literal

from transnormer_lib.checks import check_choice
from transnormer_lib.data.tasks import task_definition
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import Init, ModelConfig, Positions

Recipe = Literal["paper", "released"]

# The task whose settings a stand-in starts from: it has the same kind of token and of question.
LIKE = {"text-holdout": "text", "digits": "image", "digits-7": "image", "trees-512": "listops"}
LIKE |= {"articles-order": "text", "articles-same": "retrieval"}


@dataclass(frozen=True)
class Setting:
    """How a task is trained. A count of 0 means all there are."""

    length: int  # the longest sequence: rows of the position table
    batch_size: int
    learning_rate: float
    warmup: int
    steps: int = 50_000
    layers: int = 2
    dim: int = 64
    heads: int = 2
    local_heads: int = 0  # of DiagAttention; 0: as many as the others
    ffn: int = 128  # width inside an FFN
    glu: int = 85  # width inside a GLU
    block_size: int = 64  # of DiagAttention
    landmarks: int = 128  # or features, or projected keys, of the baselines that have them
    dropout: float = 0.1  # of embeddings, branches and attention matrices
    accumulate: int = 1
    positions: Positions = "learned"
    init: Init = "normal-0.02"
    train_examples: int = 0
    held_out_examples: int = 0  # of validation, and of test


RECIPES: Mapping[Recipe, Mapping[str, Setting]] = {
    "paper": {
        "listops": Setting(2000, 32, 1e-4, 1000),
        "text": Setting(4000, 16, 1e-4, 80),  # Appendix E; Skyformer's batch is 32
        "retrieval": Setting(4000, 16, 2e-4, 800),
        "pathfinder": Setting(1024, 128, 2e-4, 312),
        "image": Setting(1024, 256, 1e-4, 175),
    },
    "released": {
        task: Setting(
            length, batch, rate, 0, layers=layers, dim=128, heads=8, local_heads=local, ffn=times * 128, glu=0,
            dropout=0.0, positions="sinusoidal",
        )
        for task, length, layers, batch, rate, times, local in (
            ("listops", 2000, 4, 128, 1e-4, 4, 8),
            ("text", 4000, 4, 64, 1e-3, 4, 8),
            ("retrieval", 4000, 4, 64, 1e-3, 4, 4),
            ("pathfinder", 1024, 4, 128, 5e-4, 1, 8),
            ("image", 1024, 12, 200, 1e-3, 2, 4),
        )
    },
}  # fmt: skip


def setting(task: str, recipe: Recipe, changes: Mapping[str, Any]) -> Setting:
    """The recipe's setting of a task, or of the task it stands in for, with ``changes`` to single fields.

    Raises ValueError for an unknown recipe, task or field, naming it.
    """
    check_choice("recipe", recipe, Recipe)
    table = RECIPES[recipe]
    like = LIKE.get(task, task)
    if like not in table:
        raise ValueError(f"tasks={task!r}: must be one of {', '.join(map(repr, (*table, *LIKE)))}")
    known = {field.name for field in fields(Setting)}
    for name in changes:
        if name not in known:
            raise ValueError(f"settings.{task}.{name}: no such setting; there are {', '.join(sorted(known))}")
    chosen = replace(table[like], length=task_definition(task).length)
    return replace(chosen, **changes)


def model(row: str, chosen: Setting, recipe: Recipe, vocab_size: int) -> ModelConfig:
    """The encoder of a row of Table 6, or of a matched control, by its name as an architecture or mechanism."""
    built = architecture(
        row,
        kind="encoder",
        vocab_size=vocab_size,
        max_length=chosen.length,
        dim=chosen.dim,
        heads=chosen.heads,
        layers=chosen.layers,
        block_size=chosen.block_size,
        recipe=recipe,
        norm_placement="pre",
        positions=chosen.positions,
        init=chosen.init,
        # Sinusoids have unit size, and embeddings of dim^-1/2 are meant to be scaled to it. Learned positions start
        # at 0.02: scaled embeddings would drown them.
        scale_embedding=chosen.init == "fairseq" and chosen.positions == "sinusoidal",
        dropout=chosen.dropout,
        attention_dropout=chosen.dropout,
    )
    gated = built.feed_forward == "glu" and recipe == "paper"
    changed: dict[str, Any] = {"hidden": chosen.glu if gated else chosen.ffn}
    if recipe == "released":
        changed |= {"feed_forward": "ffn", "activation": "gelu", "norm": "layer", "norm_eps_placement": "inside"}
    options = {name: {**own, **_options(name, chosen, recipe)} for name, own in built.attention_options.items()}
    return replace(built, attention_options=options, **changed)


def _options(mechanism: str, chosen: Setting, recipe: Recipe) -> dict[str, Any]:
    """The harness's options of a mechanism."""
    few = min(chosen.landmarks, chosen.length)
    harness: Mapping[str, dict[str, Any]] = {
        "nystromformer": {"landmarks": few, "conv_kernel": None},
        "skyformer": {"landmarks": few},
        "linformer": {"projected": few, "share_kv": True},
        "performer": {"features": chosen.landmarks},
        "informer": dict.fromkeys(("factor", "sampling_factor"), ceil(chosen.landmarks / log(chosen.length))),
        "reformer": {"hashes": 2},
        "bigbird": {"random_blocks": 3},
    }
    options = dict(harness.get(mechanism, {}))
    if recipe == "released" and mechanism in ("norm", "diag"):
        options |= {"eps": 1e-2}
    if mechanism == "diag" and chosen.local_heads:
        options |= {"heads": chosen.local_heads, "head_dim": chosen.dim // chosen.local_heads}
    return options
