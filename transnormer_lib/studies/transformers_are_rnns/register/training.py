"""Checks on the copy task and its recipe."""

import numpy as np
import torch

from transnormer_lib.data.batches import IGNORE
from transnormer_lib.data.context_tasks import ContextTask
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import build_model
from transnormer_lib.studies.transformers_are_rnns.register.checks import RELEASE, Effect, Found, check, said


def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    """2,000 sequences of the released task with their targets."""
    symbols, length = said(RELEASE, "copy", "symbols"), said(RELEASE, "copy", "length")
    tokens, targets = ContextTask(f"duplicate-{symbols}", length).draw(2000, np.random.default_rng(0)).values()
    return tokens, targets


@check("loss-covers-the-separator")
def loss_covers_the_separator() -> Found:
    tokens, targets = drawn()
    before = (tokens == 0).cumsum(1) == 0
    asked = targets != IGNORE
    n = (tokens == 0).int().argmax(1)
    constant = (targets[asked & before] == 0).double().mean()
    return Found(
        {
            "targets of a sequence less its symbols": sorted(set((asked.sum(1) - n).tolist())),
            "targets before the separator, a sequence": float((asked & before).sum(1).double().mean()),
            "share of those that are the separator": float(constant),
        },
        {
            "there is one target more than symbols": bool((asked.sum(1) == n + 1).all()),
            "before the separator only the separator is asked for": float(constant) == 1.0,
            "longer series have more targets": bool(asked.sum(1).max() > asked.sum(1).min()),
        },
    )


@check("copies-never-fill-the-sequence")
def copies_never_fill() -> Found:
    tokens, _ = drawn()
    used = 2 * (tokens == 0).int().argmax(1) + 1
    limits = [2 * said(RELEASE, "copy", name) + 1 for name in ("least", "most")]
    length = said("Section 4.1.1", "copy", "length")
    return Found(
        {
            "shortest and longest of 2,000 drawn": [int(used.min()), int(used.max())],
            "from the release's limits": limits,
        },
        {
            "the lengths drawn are the release's": [int(used.min()), int(used.max())] == limits,
            "none fills the maximum that is printed": int(used.max()) < length,
        },
    )


@check("positions-beside-the-embedding")
def positions_beside() -> Found:
    counts, parts = {}, {}
    for positions in ("beside", "sinusoidal"):
        config = ModelConfig(
            "decoder",
            11,
            16,
            32,
            2,
            ("linear",),
            positions=positions,
            tied=False,
            output_bias=True,
        )
        model = build_model(config, seed=0).eval()
        counts[positions] = model.embedding.weight.numel()
        ids = torch.tensor([[1, 2, 1]])
        x = model.embed(ids)[0]
        parts[positions] = float((x[0] - x[2])[:16].detach().abs().max())  # one symbol at two positions
    return Found(
        {"weights of the embedding": counts, "difference between one symbol at two positions, first half": parts},
        {
            "side by side, a symbol's half does not change with its position": parts["beside"] == 0.0,
            "added, it does": parts["sinusoidal"] > 0.1,
            "the table has half the weights": 2 * counts["beside"] == counts["sinusoidal"],
        },
        (Effect("weights of the embedding", counts["beside"], counts["sinusoidal"]),),
    )


@check("weight-decay-not-mentioned")
def weight_decay() -> Found:
    rates = [said(RELEASE, "copy", name) for name in ("learning_rate", "dropped_rate")]
    decay, first, updates = (said(RELEASE, "copy", name) for name in ("weight_decay", "dropped_after", "updates"))
    shrunk = (1 - rates[0] * decay) ** first * (1 - rates[1] * decay) ** (updates - first)
    weight = torch.nn.Parameter(torch.ones(()))
    optimiser = torch.optim.RAdam([weight], lr=rates[0], weight_decay=decay, decoupled_weight_decay=True)
    for step in range(updates):
        optimiser.param_groups[0]["lr"] = rates[step >= first]
        weight.grad = torch.zeros(())
        optimiser.step()
    try:
        in_paper = said("Section 4.1.1", "copy", "weight_decay")
    except ValueError:
        in_paper = None
    same = [said(place, "copy", "learning_rate") for place in ("Section 4.1.1", RELEASE)]
    return Found(
        {"a weight without a gradient after all updates, of 1": [weight.item(), shrunk]},
        {
            "the paper gives no weight decay": in_paper is None,
            "paper and release have the same rates": same[0] == same[1],
            "a weight shrinks by about 4%": abs(weight.item() - shrunk) < 1e-3 and 0.03 < 1 - shrunk < 0.05,
        },
    )
