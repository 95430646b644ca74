"""Checks on the Long Range Arena: the two configurations, and the behaviour of its harness."""

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
from transnormer_lib.studies.lra import runs as arena
from transnormer_lib.studies.lra.published import PUBLISHED, table_6
from transnormer_lib.studies.lra.recipes import RECIPES
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import arena_model, random, said
from transnormer_lib.training.evaluation import labelled_batches
from transnormer_lib.training.setup import parameters_of


@check("lra-configuration")
def lra_configuration() -> Found:
    names = ("layers", "dim", "heads", "ffn", "glu", "dropout", "learning_rate", "positions")
    table: dict[str, Any] = {}
    counts: dict[str, dict[str, int]] = {}
    for task in ("text", "image"):
        for recipe, by_task in RECIPES.items():
            table[f"{task}, {recipe}"] = {name: asdict(by_task[task])[name] for name in names}
            run = arena.run(task, "transnormer-t2", 0, arena.recipe_parameters(recipe, {}))
            counts.setdefault(task, {})[recipe] = parameters_of(run)
    larger = {task: by["released"] / by["paper"] for task, by in counts.items()}
    stated = {name: said("Appendix E", "arena", name) for name in ("layers", "dim", "heads", "glu")}
    paper = {task: asdict(setting) for task, setting in RECIPES["paper"].items()}
    return Found(
        {**table, "parameters of T2, by task and recipe": counts, "released over paper": larger},
        {
            "our paper recipe has Appendix E's sizes and learning rates on every task": all(
                stated.items() <= setting.items() for setting in paper.values()
            )
            and {task: setting["learning_rate"] for task, setting in paper.items()}
            == said("Appendix E", "arena", "learning_rate"),
            "on Text the released model is more than twice as large": larger["text"] > 2.0,
            "on Image it is ten times as large": 10.0 <= larger["image"] < 11.0,
        },
        tuple(Effect(f"parameters of T2 on {task}", by["paper"], by["released"]) for task, by in counts.items()),
    )


@check("lra-text-batch")
def lra_text_batch() -> Found:
    batches = {source: said(source, "arena", "batch") for source in ("Appendix E", settings.SKYFORMER)}
    appendix, skyformer = batches.values()
    differing = sorted(task for task in appendix if appendix[task] != skyformer[task])
    ours = {task: setting.batch_size for task, setting in RECIPES["paper"].items()}
    return Found(
        {**{f"batch by task; {source}": by for source, by in batches.items()}, "tasks that differ": differing},
        {"only Text differs": differing == ["text"], "our batches are Appendix E's": ours == appendix},
        (Effect("examples seen on Text in 50,000 steps", 50_000 * ours["text"], 50_000 * skyformer["text"]),),
    )


@check("lra-local-heads")
def lra_local_heads() -> Found:
    heads = {}
    for task in RECIPES["paper"]:
        model = arena_model(task, "released")
        names = {"DiagAttention": "diag", "NormAttention": "norm"}
        heads[task] = {name: model.attention_options[core].get("heads", model.heads) for name, core in names.items()}
    split = sorted(task for task, by in heads.items() if by["DiagAttention"] != by["NormAttention"])
    return Found(
        {"heads as released": heads, "tasks on which the two differ": split},
        {
            "NormAttention has eight on every task": {by["NormAttention"] for by in heads.values()} == {8},
            "DiagAttention has fewer on Image and Retrieval": split == ["image", "retrieval"],
        },
        (Effect("heads of NormAttention on Image", 8, heads["image"]["DiagAttention"]),),
    )


@check("lra-black-pixels")
def black_pixels() -> Found:
    mnist = load_mnist()
    images = torch.from_numpy(mnist.images[mnist.splits["validation"]].astype(np.int64)).flatten(1)
    dropped = float(released_forms.padding_from_ids(images).double().mean())
    ours = float(released_forms.padding_from_ids(images + 1).double().mean())
    encoder = arena_model("digits", "paper", PIXEL_IDS, length=28 * 28)
    model = build_classifier(ClassifierConfig(classes=10, model=encoder), seed=0).eval()
    batch = images[:8]
    with torch.no_grad():
        whole, without = (model(batch + 1, mask) for mask in (None, released_forms.padding_from_ids(batch)))
    change = float((whole - without).abs().max() / whole.abs().max())
    ids = task_definition("image").symbols
    return Found(
        {
            "share of MNIST-5k's pixels that are dropped where id 0 is padding": dropped,
            "the same where a pixel's id is its grey plus one": ours,
            "ids of Image here, and greys of an image": [ids, GREYS],
            "largest relative change of a logit when they are dropped": change,
        },
        {
            "most of a digit's pixels would be dropped": dropped > 0.5,
            "none is dropped here": ours == 0.0 and ids == PIXEL_IDS == GREYS + 1,
            "dropping them changes a classifier's output": change > 1e-4,
        },
        (Effect("share of pixels that are dropped", ours, dropped),),
    )


@check("lra-mean-over-padding")
def mean_over_padding() -> Found:
    rng = np.random.default_rng(0)
    n, lengths = 64, torch.from_numpy(rng.integers(8, 65, 400))
    padding = torch.arange(n)[None] >= lengths[:, None]
    hidden = random(400, n, 8) * 0.5 + 1.0  # not centred, as after a ReLU or a norm with a bias
    means = {
        "over the real tokens": hidden.masked_fill(padding[..., None], 0.0).sum(1) / lengths[:, None],
        "over the padded length": released_forms.mean_over_padded_length(hidden, padding),
    }
    explained = {name: _explained(pooled, lengths.double()) for name, pooled in means.items()}
    ours, released = explained.values()
    return Found(
        {"R² of a linear probe of the length on other sequences, by mean": explained},
        {
            "a mean over the padded length reveals the length": released > 0.9,
            "a mean over the real tokens does not": ours < 0.2,
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
    # The label of an example says whether the model is right on it: on four in ten, always the same ones.
    rng = generator("register", "moving validation")
    right = rng.permutation(4000) < 1600
    examples = from_rows(np.ones((4000, 1), np.int64), right.astype(np.int64), 2)
    facts: dict[str, Any] = {"origin": "generated", "pairs": False, "classes": 2, "vocab_size": 2, "pad_id": 0}
    facts |= {"length": 1, "metrics": ("accuracy",), "fingerprint": "", "splits": {"validation": examples}}
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
        {"the model's accuracy": true, "best of 50 evaluations on 200 examples each": best},
        {
            "the best of moving parts exceeds the model's accuracy": best["moving"] > true + 0.03,
            "a fixed part always gives the same accuracy": different["spread"] == 1 < different["moving"],
        },
        (Effect("best evaluation minus the model's accuracy", best["spread"] - true, best["moving"] - true),),
    )


@check("lra-text-selects-on-test")
def text_selects_on_test() -> Found:
    tasks = {name: task_definition(name) for name in ("text", "text-holdout")}
    sources = {name: task.aliases.get("validation", "validation") for name, task in tasks.items()}
    return Found(
        {"split used for validation": sources},
        {
            "the published task selects on its test split": sources["text"] == "test",
            "text-holdout has a validation split of its own": sources["text-holdout"] == "validation"
            and "validation" in tasks["text-holdout"].splits,
        },
    )


@check("lra-retrieval-scores")
def retrieval_scores() -> Found:
    scores = {row: table_6(row, "retrieval") for row in PUBLISHED}
    original = said("Tay et al., 2021", "arena", "retrieval_between")
    return Found(
        {
            "lowest and highest of Table 6": [min(scores.values()), max(scores.values())],
            "in the paper of the arena": original,
        },
        {
            "every row is more than ten points above the best of the arena's paper": min(scores.values())
            > original[1] + 10
        },
    )
