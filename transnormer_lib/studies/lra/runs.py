"""The runs behind Table 6: encoders on the tasks of the Long Range Arena, and on stand-ins under their own names."""

from collections.abc import Mapping
from dataclasses import dataclass

from transnormer_lib.data.tasks import task_definition
from transnormer_lib.data.vocabulary import vocabulary_size
from transnormer_lib.studies.common import classification
from transnormer_lib.studies.common.language_models import grid
from transnormer_lib.studies.lra import recipes
from transnormer_lib.studies.lra.recipes import Recipe, Setting
from transnormer_lib.training.config import DataConfig, EvaluationPart, OptimizerConfig, Precision, RunConfig


@dataclass(frozen=True)
class Parameters:
    """The notebook's parameters that decide what is trained."""

    recipe: Recipe  # paper: Appendix E with the harness that it names; released: the released scripts
    tasks: tuple[str, ...]  # of the Long Range Arena, and stand-ins
    architectures: tuple[str, ...]  # rows of Table 6, and 1+elu
    controls: tuple[str, ...]  # the baselines' attention in TransNormer's backbone recipe
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    settings: Mapping[str, Mapping[str, int | float | str]]  # per task, what differs from the recipe
    precision: Precision  # of the matrix products
    evaluations: int  # how often validation is measured; the best weights are kept
    evaluation_examples: int  # examples of each evaluation; 0: all
    evaluation_part: EvaluationPart  # moving: other examples at each evaluation, as in Skyformer's harness


def recipe_parameters(recipe: Recipe, settings: Mapping[str, Mapping[str, int | float | str]]) -> Parameters:
    """Parameters that ask for no run; :func:`run` builds single runs of the recipe from them."""
    return Parameters(recipe, (), (), (), (), settings, "fp32", 1, 0, "spread")


def rows(parameters: Parameters) -> list[str]:
    """Published rows, then matched controls."""
    return [*parameters.architectures, *parameters.controls]


def setting(task: str, parameters: Parameters) -> Setting:
    """How a task is trained: the recipe's setting with the notebook's changes."""
    return recipes.setting(task, parameters.recipe, parameters.settings.get(task, {}))


def data(task: str, parameters: Parameters) -> DataConfig:
    """The examples of a task."""
    chosen = setting(task, parameters)
    counts = {"train": chosen.train_examples, "validation": chosen.held_out_examples, "test": chosen.held_out_examples}
    return DataConfig(
        task="classify",
        task_name=task,
        length=chosen.length,
        batch_size=chosen.batch_size,
        limit={split: count for split, count in counts.items() if count},
    )


def run(task: str, row: str, seed: int, parameters: Parameters) -> RunConfig:
    """One training run. It keeps its weights of the best validation, which are measured once on the test split."""
    chosen, recipe = setting(task, parameters), parameters.recipe
    cut = data(task, parameters)
    ids = task_definition(task).symbols or vocabulary_size("bytes")
    optimizer = OptimizerConfig(
        learning_rate=chosen.learning_rate,
        schedule="onecycle" if recipe == "paper" else "cosine",
        cycle_momentum=recipe == "paper",  # the harness leaves it to PyTorch, which moves it with the rate
        warmup=chosen.warmup,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.0,
        clip_value=1.0 if recipe == "paper" else 0.0,
    )
    return classification.run(
        f"{task}-{row}-{recipe}-seed{seed}",
        recipes.model(row, chosen, recipe, ids),
        cut,
        optimizer,
        {},  # a hidden layer of twice the model's width, 128 in the paper recipe, over the mean
        steps=chosen.steps,
        seed=seed,
        accumulate=chosen.accumulate,
        precision=parameters.precision,
        evaluations=parameters.evaluations,
        evaluation_examples=parameters.evaluation_examples or None,
        evaluation_part=parameters.evaluation_part,
        measured_at_end=("test",),
        keep="best",
    )


def places(parameters: Parameters) -> list[tuple[str, str, int]]:
    """Task, row and seed of every run, in their order. Raises ValueError for a task, row or seed that occurs twice."""
    pairs = grid(rows(parameters), parameters.seeds)
    return [(task, row, seed) for task, _ in grid(parameters.tasks, [0]) for row, seed in pairs]


def runs(parameters: Parameters) -> list[RunConfig]:
    """One run per task, row and seed, tasks first. Reads no data."""
    unknown = set(parameters.settings) - set(parameters.tasks)
    if unknown:
        raise ValueError(f"settings={sorted(unknown)!r}: names no task of tasks={list(parameters.tasks)!r}")
    return [run(*place, parameters) for place in places(parameters)]
