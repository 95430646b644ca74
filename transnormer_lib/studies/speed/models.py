"""The models that are timed: those of Table 6's ``paper`` recipe, with the weights they start from."""

from collections.abc import Container, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from transnormer_lib.attention import registry
from transnormer_lib.choices import VARIANTS
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.classifier import ClassifierConfig, count_classifier_parameters, with_head
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.models.flops import forward_flops
from transnormer_lib.models.language_model import LanguageModel, build_model
from transnormer_lib.studies.lra import runs as arena
from transnormer_lib.studies.speed.published import PUBLISHED
from transnormer_lib.studies.speed.runs import TASK, WIDTH, Parameters, recipe

# Softmax attention as PyTorch code of 2022 computes it: the matrix [N, N] is made, and kept for the backward pass.
STORED = "vanilla-stored"
TABLE_7 = tuple(PUBLISHED)
ADDED = (STORED, "linear", "vanilla-matched", "linear-matched")
# Rows that run on Triton kernels on a GPU, once more in PyTorch alone, as all rows of the paper run.
_SUFFIX = "-plain"
PLAIN = tuple(f"{row}{_SUFFIX}" for row in (*VARIANTS, "linear"))


def rows(device: str) -> tuple[str, ...]:
    """What is measured: Table 7's rows, those added, and on a GPU, where some run on kernels, the plain ones."""
    return (*TABLE_7, *ADDED, *(PLAIN if device == "cuda" else ()))


def model_of(row: str) -> str:
    """The row without its mark: a plain row has the operations and weights of its model's row."""
    return row.removesuffix(_SUFFIX)


def judged(row: str, measured: Container[str]) -> str:
    """The row by which the paper's comparisons of ``row`` are judged: the plain one if it was measured.

    The paper compares PyTorch with PyTorch, so a lead that comes from this project's kernels is not TransNormer's.
    """
    plain = f"{row}{_SUFFIX}"
    return plain if plain in measured else row


def label(row: str) -> str:
    """The row's name in tables."""
    if row == STORED:
        return "vanilla (matrix stored)"
    return f"{model_of(row)} (plain PyTorch)" if row in PLAIN else row


def model(row: str, length: int, width: int = WIDTH) -> ClassifierConfig:
    """The classifier of a row for ``length`` tokens, which sizes its positions and Linformer's projections."""
    run = arena.run(TASK, "vanilla" if row == STORED else model_of(row), 0, recipe(length, width))
    encoder = run.model
    if impl := "reference" if row == STORED else "chunked" if row in PLAIN else "":
        options = {name: {**encoder.attention_options.get(name, {}), "impl": impl} for name in encoder.attention}
        encoder = replace(encoder, attention_options=options)
    assert run.head is not None
    return with_head(encoder, run.head)


def models(parameters: Parameters) -> dict[tuple[str, int], ClassifierConfig]:
    """Every row's classifier at every length."""
    return {(row, n): model(row, n) for n in parameters.lengths for row in rows(parameters.device)}


@lru_cache
def quadratic_operations(row: str, lengths: tuple[int, ...] = (1024, 2048, 16384, 65536)) -> int:
    """The coefficient of N² in the operations of a forward pass, from exact counts of its matrix products.

    Zero means that they grow exactly linearly. Raises ArithmeticError unless the counts at ``lengths`` are a polynomial
    of degree two.
    """
    config = model(model_of(row), max(lengths))
    counts = {n: forward_flops(config.model, n, head=ClassifierHead(config.classes)) for n in lengths}
    a, b, *others = lengths

    def second(c: int) -> Fraction:  # the divided difference over a, b and c
        slopes = [Fraction(counts[y] - counts[x], y - x) for x, y in ((a, b), (b, c))]
        return (slopes[1] - slopes[0]) / (c - a)

    found = {second(c) for c in others}
    if len(found) != 1 or (value := found.pop()).denominator != 1:
        raise ArithmeticError(f"row={row!r}: its operations {counts} are no polynomial of degree two in the length")
    return int(value)


def size_table(lengths: Sequence[int]) -> list[dict[str, Any]]:
    """One line per row: the size that all share, the mechanisms, and the number of weights at each length."""
    lines = []
    for row in (*TABLE_7, *ADDED):
        built = {n: model(row, n) for n in lengths}
        config = built[lengths[0]].model
        line = {"model": label(row), "layers × width, heads": f"{config.layers} × {config.dim}, {config.heads}"}
        line["attention"] = ", ".join(dict.fromkeys(config.attention))
        blocks = all(registry.kind(name) == "block" for name in config.attention)
        line["beside it"] = "none" if blocks else f"{config.feed_forward.upper()} {config.hidden_width}"
        lines.append(line | {f"weights, {n:,}": count_classifier_parameters(c) for n, c in built.items()})
    return lines


def decoders(max_length: int) -> dict[str, LanguageModel]:
    """Decoders of the recipe's size, for the rows whose mechanisms all decode token by token."""
    built = {}
    size = model("vanilla", max_length).model
    for row in (*TABLE_7, "linear"):
        encoder = model(row, max_length).model
        mechanisms = encoder.attention
        if all(registry.is_recurrent(mechanism) for mechanism in mechanisms):
            config = architecture(
                row,
                kind="decoder",
                vocab_size=size.vocab_size,
                max_length=max_length,
                dim=size.dim,
                heads=size.heads,
                layers=size.layers,
                hidden=encoder.hidden,
            )
            built[row] = build_model(config, seed=0)
    return built
