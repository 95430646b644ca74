"""Checks on the Long Range Arena: the two configurations, and what its harness does."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from transnormer_lib.data.examples import from_rows
from transnormer_lib.data.images import load_mnist
from transnormer_lib.data.lra import GREYS, PIXEL_IDS
from transnormer_lib.data.task_kinds import generator
from transnormer_lib.data.tasks import TaskData, task_definition
from transnormer_lib.models.classifier import ClassifierConfig, build_classifier
from transnormer_lib.papers import settings
from transnormer_lib.studies.lra import recipes as arena_recipes
from transnormer_lib.studies.lra import runs as arena
from transnormer_lib.studies.lra.published import PUBLISHED, table_6
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import random
from transnormer_lib.training.evaluation import labelled_batches
from transnormer_lib.training.setup import parameters_of

_TASKS = tuple(arena_recipes.RECIPES["paper"])
# What notebook 07 asks of every run, beside its recipe.


@check("lra-configuration")
def lra_configuration() -> Found:
    names = ("layers", "dim", "heads", "ffn", "glu", "dropout", "learning_rate", "positions")
    table: dict[str, Any] = {}
    for recipe, by_task in arena_recipes.RECIPES.items():
        table |= {
            f"{task}, {recipe}": {name: asdict(by_task[task])[name] for name in names} for task in ("text", "image")
        }
    counts = {
        task: {
            recipe: parameters_of(arena.run(task, "transnormer-t2", 0, arena.recipe_parameters(recipe, {})))
            for recipe in arena_recipes.RECIPES
        }
        for task in ("text", "image")
    }
    larger = {task: by["released"] / by["paper"] for task, by in counts.items()}
    said = {
        name: settings.said("transnormer", "Appendix E", "arena", name) for name in ("layers", "dim", "heads", "glu")
    }
    paper = [{name: asdict(s)[name] for name in said} for s in arena_recipes.RECIPES["paper"].values()]
    rates = {task: s.learning_rate for task, s in arena_recipes.RECIPES["paper"].items()}
    return Found(
        {**table, "parameters of T2, by task and recipe": counts, "released over paper": larger},
        {
            "our paper recipe has Appendix E's sizes and rates on every task": all(s == said for s in paper)
            and rates == settings.said("transnormer", "Appendix E", "arena", "learning_rate"),
            "on Text the released model is more than twice as large": larger["text"] > 2.0,
            "on Image it is ten times as large": 10.0 <= larger["image"] < 11.0,
        },
        tuple(Effect(f"parameters of T2 on {task}", by["paper"], by["released"]) for task, by in counts.items()),
    )


@check("lra-text-batch")
def lra_text_batch() -> Found:
    batches = {
        source: settings.said("transnormer", source, "arena", "batch") for source in ("Appendix E", settings.SKYFORMER)
    }
    appendix, skyformer = batches.values()
    differing = sorted(task for task in appendix if appendix[task] != skyformer[task])
    ours = {task: s.batch_size for task, s in arena_recipes.RECIPES["paper"].items()}
    return Found(
        {**{f"batch by task; {source}": by for source, by in batches.items()}, "they differ on": differing},
        {"Text alone differs": differing == ["text"], "ours are Appendix E's": ours == appendix},
        (Effect("examples seen on Text in 50,000 steps", 50_000 * ours["text"], 50_000 * skyformer["text"]),),
    )


@check("lra-local-heads")
def lra_local_heads() -> Found:
    heads = {}
    for task in _TASKS:
        chosen = arena_recipes.setting(task, "released", {})
        model = arena_recipes.model("transnormer-t2", chosen, "released", 16)
        local = model.attention_options["diag"].get("heads", model.heads)
        heads[task] = {
            "DiagAttention": local,
            "NormAttention": model.attention_options["norm"].get("heads", model.heads),
        }
    split = sorted(task for task, by in heads.items() if by["DiagAttention"] != by["NormAttention"])
    return Found(
        {"heads as released": heads, "tasks on which the two differ": split},
        {
            "NormAttention has eight on every task": {by["NormAttention"] for by in heads.values()} == {8},
            "DiagAttention has four on some": split == ["image", "retrieval"],
        },
        (Effect("heads of NormAttention on Image", 8, heads["image"]["DiagAttention"]),),
    )


@check("lra-black-pixels")
def black_pixels() -> Found:
    mnist = load_mnist()
    images = torch.from_numpy(mnist.images[mnist.splits["validation"]].astype(np.int64)).flatten(1)
    dropped = float(released_forms.padding_from_ids(images).double().mean())
    ours = float(released_forms.padding_from_ids(images + 1).double().mean())
    model = build_classifier(_classifier(28 * 28), seed=0).eval()
    batch = images[:8]
    with torch.no_grad():
        whole, without = (model(batch + 1, mask) for mask in (None, released_forms.padding_from_ids(batch)))
    change = float((whole - without).abs().max() / whole.abs().max())
    ids = task_definition("image").symbols
    return Found(
        {
            "pixels of MNIST-5k that are black, and dropped where id 0 is padding": dropped,
            "the same with a pixel's id one above its grey": ours,
            "ids of Image here, greys of a picture": [ids, GREYS],
            "largest change of a logit when they are dropped, relative": change,
        },
        {
            "most of a digit's pixels would be dropped": dropped > 0.5,
            "none is here": ours == 0.0 and ids == PIXEL_IDS == GREYS + 1,
            "it changes what a classifier sees": change > 1e-4,
        },
        (Effect("share of pixels that are lost", ours, dropped),),
    )


def _classifier(length: int) -> ClassifierConfig:
    """T2 in the paper recipe, as it is before training."""
    chosen = arena_recipes.setting("digits", "paper", {"length": length})
    encoder = arena_recipes.model("transnormer-t2", chosen, "paper", PIXEL_IDS)
    return ClassifierConfig(classes=10, model=encoder)


@check("lra-mean-over-padding")
def mean_over_padding() -> Found:
    rng = np.random.default_rng(0)
    n, lengths = 64, torch.from_numpy(rng.integers(8, 65, 400))
    padding = torch.arange(n)[None] >= lengths[:, None]
    hidden = random(400, n, 8) * 0.5 + 1.0  # features that are not centred, as after a ReLU or a norm with a bias
    means = {
        "over the real tokens": hidden.masked_fill(padding[..., None], 0.0).sum(1) / lengths[:, None],
        "over the padded length": released_forms.mean_over_padded_length(hidden, padding),
    }
    told = {name: _explained(pooled, lengths.double()) for name, pooled in means.items()}
    ours, released = told.values()
    return Found(
        {
            f"R² of a linear probe of the length, on sequences it was not fitted to; mean {name}": r
            for name, r in told.items()
        },
        {
            "divided by the padded length, the mean tells the length": released > 0.9,
            "divided by the real one, it does not": ours < 0.2,
        },
        (Effect("R² of a linear probe of the length", ours, released),),
    )


def _explained(x: torch.Tensor, y: torch.Tensor) -> float:
    """R² on the second half of a linear fit to the first."""
    half = len(y) // 2
    design = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    weights = torch.linalg.lstsq(design[:half], y[:half, None]).solution
    error = (design[half:] @ weights)[:, 0] - y[half:]
    return float(1 - error.square().mean() / y[half:].var(unbiased=False))


@check("lra-moving-validation")
def moving_validation() -> Found:
    # The "label" of an example is whether the model is right on it: four in ten, and always the same ones.
    rng = generator("register", "moving validation")
    right = rng.permutation(4000) < 1600
    examples = from_rows(np.ones((4000, 1), np.int64), right.astype(np.int64), 2)
    facts: dict[str, Any] = {
        "origin": "generated",
        "pairs": False,
        "classes": 2,
        "vocab_size": 2,
        "pad_id": 0,
        "length": 1,
    }
    facts |= {"metrics": ("accuracy",), "fingerprint": "", "splits": {"validation": examples}}
    task = TaskData(name="answers", title="Right or wrong", stand_in=True, **facts)
    best, different = {}, {}
    for part in ("spread", "moving"):
        config = arena.run("digits-7", "transnormer-t2", 0, arena.recipe_parameters("paper", {}))
        config = replace(config, evaluation_part=part, evaluation_examples=200)
        shares = []
        for number in range(50):
            labels = torch.cat([b["targets"] for b in labelled_batches(config, task, "validation", number)])
            shares.append(float(labels.double().mean()))
        best[part], different[part] = max(shares), len(set(shares))
    true = float(right.mean())
    return Found(
        {"the model's accuracy": true, "best of 50 evaluations of 200 examples each": best},
        {
            "the best of moving parts is above the model's accuracy": best["moving"] > true + 0.03,
            "a part that does not move gives one answer": different["spread"] == 1 < different["moving"],
        },
        (Effect("best evaluation less the model's accuracy", best["spread"] - true, best["moving"] - true),),
    )


@check("lra-text-selects-on-test")
def text_selects_on_test() -> Found:
    published, held_out = task_definition("text"), task_definition("text-holdout")
    both = {"text": published, "text-holdout": held_out}
    sources = {name: task.aliases.get("validation", "validation") for name, task in both.items()}
    return Found(
        {"what is read as validation": sources},
        {
            "the published task selects on its test split": sources["text"] == "test",
            "text-holdout does not": sources["text-holdout"] == "validation" and "validation" in held_out.splits,
        },
    )


@check("lra-retrieval-scores")
def retrieval_scores() -> Found:
    scores = {row: table_6(row, "retrieval") for row in PUBLISHED}
    original = settings.said("transnormer", "Tay et al., 2021", "arena", "retrieval_between")
    return Found(
        {
            "lowest and highest of Table 6": [min(scores.values()), max(scores.values())],
            "of the arena's own paper": original,
        },
        {"every row is more than ten points above the original's best": min(scores.values()) > original[1] + 10},
    )
