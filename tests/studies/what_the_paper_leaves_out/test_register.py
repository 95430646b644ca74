"""The register is executable: every entry has a check that confirms it, and every check can fail."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from falsified import Mutation, prints, puts
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.analysis import (
    bounds_attention,
    bounds_matrix,
    bounds_norm,
    dilution,
    gradient_bounds,
    kernel_maps,
)
from transnormer_lib.attention.diag import DiagConfig
from transnormer_lib.data import listops as trees
from transnormer_lib.data.tasks import task_definition
from transnormer_lib.ledger.values import plain
from transnormer_lib.models.architectures import published
from transnormer_lib.models.feed_forward import GLU
from transnormer_lib.papers import discrepancies, settings
from transnormer_lib.studies.ablations import runs as ablations
from transnormer_lib.studies.lra import recipes as arena_recipes
from transnormer_lib.studies.lra import results as study
from transnormer_lib.studies.lra.published import PUBLISHED
from transnormer_lib.studies.what_the_paper_leaves_out import register
from transnormer_lib.studies.what_the_paper_leaves_out.register import (
    arena,
    norms,
    positions,
    released_forms,
    sizes,
    theory,
    training,
)
from transnormer_lib.studies.what_the_paper_leaves_out.register import attention as attention_checks
from transnormer_lib.studies.what_the_paper_leaves_out.register import tables as table_checks
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import tiny
from transnormer_lib.training.evaluation import evaluate, labelled_batches

ENTRIES = discrepancies.by_id("transnormer")
LN_2 = math.log(2)


# --- falsified evidence --------------------------------------------


def says(source: str, model: str, name: str, value: Any) -> Mutation:
    """A different value of one setting at one source."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        assert settings.said("transnormer", source, model, name) != value  # type: ignore[arg-type]
        real = settings.said
        patch.setattr(settings, "said", lambda *asked: value if asked[1:] == (source, model, name) else real(*asked))

    return mutate


def builds(change: Mapping[str, Any], mechanism: str | None = None, instead: str | None = None) -> Mutation:
    """Mechanisms with other options than a check asks for, or a different mechanism."""
    real = attention.build

    def build(name: str, config: Mapping[str, Any]) -> Any:
        if mechanism not in (None, name):
            return real(name, config)
        fields = {**config, **change}
        return real(instead or name, {key: value for key, value in fields.items() if value is not None})

    return lambda patch: patch.setattr(attention, "build", build)


def masked_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(torch.ones(q.shape[2], q.shape[2]).triu(1).bool(), -1e9)
    return scores.softmax(-1) @ v


def cut_blocks(q: Tensor, k: Tensor, v: Tensor, w: int) -> Tensor:
    return attention.build("diag", {"heads": 2, "head_dim": 8, "block_size": w})(q, k, v)


def real_mean(hidden: Tensor, padding: Tensor) -> Tensor:
    return hidden.masked_fill(padding[..., None], 0.0).sum(1) / (~padding).sum(1, keepdim=True)


class Absolute(nn.Module):
    """A position encoding that is not relative."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, *tensors: Tensor, start: int = 0, period: int = 0) -> tuple[Tensor, ...]:
        at = torch.arange(start, start + tensors[0].shape[-2])
        return tuple(x + (at % period if period else at)[:, None] for x in tensors)


def reports(**changed: Callable[[dict[str, float]], float]) -> Mutation:
    """An evaluation that reports a different value under one of its names."""

    def report(*args: Any) -> dict[str, float]:
        result = evaluate(*args)
        return result | {name: change(result) for name, change in changed.items()}

    return puts(table_checks, "evaluate", report)


def enlarges(task: str, factor: float) -> Mutation:
    """Multiplies the parameters of the released T2 on one task of the arena."""
    real = arena.parameters_of
    released = study.run(task, "transnormer-t2", 0, study.recipe_parameters("released", {}))
    return puts(arena, "parameters_of", lambda run: round(real(run) * (factor if run == released else 1)))


def grown(real: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, w: int) -> Tensor:
    """The released blocks, but with an incomplete last block twice as large."""
    ragged, ours = q.shape[2] % w, cut_blocks(q, k, v, w)
    return torch.cat([ours[:, :, :-ragged], 2 * ours[:, :, -ragged:]], 2) if ragged else real(q, k, v, w)


def changes_ablation(activation: str) -> Mutation:
    """Table 10's FFN with a different activation."""
    return lambda patch: patch.setitem(
        ablations.FIELDS,
        "ffn",
        {"feed_forward": "ffn", "activation": activation},
    )


SAME_BATCHES = settings.said("transnormer", "Appendix E", "arena", "batch")
MUTATIONS: dict[str, Mutation] = {
    "glu-widths-swapped": prints("table_4", "params", 162.29, method="TransNormer T2"),
    "tokenizer": says("Table 13", "autoregressive", "vocabulary", 30_000),
    "tied-embedding": prints("table_4", "params", 293.07, method="TransNormer T2"),
    "linear-parameters": prints("table_5", "params", 124.7, method="1+elu"),
    "ls-output-bias": prints("table_4", "params", 159.19, method="LS"),
    "flash-norms": prints("table_5", "params", 127.08, method="FLASH"),
    "flash-depth": puts(sizes, "matching_flash_layers", lambda kind: 10 if kind == "decoder" else 24),
    "lra-similar-size": puts(study, "parameter_counts", lambda *_: dict.fromkeys(PUBLISHED, 100)),
    "learning-rate": says("Section 5.1", "autoregressive", "learning_rate", 5e-4),
    "warm-up-start": says(settings.SCRIPTS, "autoregressive", "warmup_start", 4e-4),
    "attention-dropout": says(settings.SCRIPTS, "bidirectional", "attention_dropout_of", ["vanilla"]),
    "initial-weights": puts(training, "published", lambda name, kind: published(name, "decoder")),
    "unmatched-baseline": puts(training, "tiny", lambda name, **fields: tiny("transnormer-t2", **fields)),
    "hyperparameters-elsewhere": says("Appendix E", "bidirectional", "hyperparameters_in", "Appendix F"),
    "epsilon-outside-the-root": puts(norms, "norm_score", lambda _, *args: bounds_norm.norm_score("rms", *args)),
    "norm-over-the-embedding": builds({"norm_over": "head"}),
    "swish-that-is-not-there": puts(norms, "GLU", lambda dim, hidden, _: GLU(dim, hidden, "swish")),
    "ffn-activation": puts(norms, "tiny", lambda name, **fields: tiny(name, **{**fields, "activation": "gelu"})),
    "norm-placement": puts(norms, "published", lambda name, kind: published(name, "decoder")),
    "rela-without-a-gate": builds({"block_size": 16, "scores": "rela"}, "rela", instead="diag"),
    "lra-rms-epsilon": puts(norms, "rms_norm", lambda x, *_: x),
    "lra-batch-norm": puts(released_forms, "batch_norm", lambda x: nn.functional.layer_norm(x, x.shape[-1:])),
    "rotation-not-mentioned": builds({"rotary": "none"}),
    "rotation-restarts-in-blocks": puts(positions, "Rotary", Absolute),
    "absolute-positions": prints("table_5", "params", 124.28, method="TransNormer T2"),
    "mask-after-the-softmax": puts(released_forms, "masked_after_softmax", masked_first),
    "zeros-in-the-last-block": puts(released_forms, "zero_padded_blocks", cut_blocks),
    "padding-mask-ignored": puts(released_forms, "without_the_mask", lambda core, *tensors: core(*tensors)),
    "causal-path-is-quadratic": puts(released_forms, "causal_product_flops", lambda n, d: 4 * n * d * d),
    "incremental-state-ignored": puts(released_forms, "without_the_state", lambda core, *tensors: core(*tensors)),
    "combination-of-attentions": puts(
        attention_checks, "tiny", lambda name, arrangement="stages", **fields: tiny(name, **fields)
    ),
    "no-query-scaling": builds({"phi": "identity"}, "norm"),
    "no-dropout-in-norm-attention": puts(attention_checks, "config_class", lambda _: DiagConfig),
    "weights-of-norm-attention": builds({"phi": "1+elu"}),
    "diag-is-linear-whatever-the-width": builds({"block_size": 512}),
    "cosformer-length": builds({"weights_by": "max_length"}),
    "flash-divisor": builds({"divide_by": "seen"}),
    "linear-denominator-clamp": builds({"denominator_floor": 1e-300}),
    "performer-features": builds({"features": 64}, "performer"),
    "performer-is-not-1-plus-elu": builds({"features": None}, "performer", instead="linear"),
    "flash-quad-is-quadratic": builds({}, "flash-quad", instead="flash"),
    "lra-configuration": says("Appendix E", "arena", "layers", 4),
    "lra-text-batch": says(settings.SKYFORMER, "arena", "batch", SAME_BATCHES),
    "lra-local-heads": puts(
        arena_recipes, "setting", lambda task, *_: replace(arena_recipes.RECIPES["released"][task], local_heads=8)
    ),
    "lra-black-pixels": puts(released_forms, "padding_from_ids", lambda ids: ids < 0),
    "lra-mean-over-padding": puts(released_forms, "mean_over_padded_length", real_mean),
    "lra-moving-validation": puts(arena, "labelled_batches", lambda *args: labelled_batches(*args[:3], 0)),
    "lra-text-selects-on-test": puts(arena, "task_definition", lambda _: task_definition("text-holdout")),
    "lra-retrieval-scores": prints("table_6", "retrieval", 60.0, model="Linformer"),
    "listops-unseeded": puts(trees, "generate", lambda n, _, real=trees.generate, **more: real(n, 1, **more)),
    "listops-brackets-dropped": puts(released_forms, "read_from_file", trees.encode),
    "listops-shortcuts": prints("table_6", "listops", 90.0, model="FLASH-quad"),
    "glue-average": prints("table_5", "avg", 75.0, method="1+elu"),
    "best-average-on-glue": prints("table_5", "avg", 79.0, method="TransNormer T2"),
    "best-linear-on-sst-2": prints("table_5", "sst2", 92.0, method="TransNormer T2"),
    "norm-attention-alone": prints("table_1", "ppl_val", 4.23, method="NormAttention"),
    "best-hybrid": prints("table_3", "ppl_val", 3.9, early="Vanilla", late="1+elu"),
    "no-row-of-softmax-alone": prints("table_3", "late", "Vanilla", early="Vanilla", late="1+elu"),
    "hybrids-have-no-glu": prints("table_1", "ppl_val", 5.5, method="1+elu"),
    "speed-over-flash-quad": prints("table_7", "train_5k", 20.0, model="TransNormer T2"),
    "not-all-report-worse-speed": prints("table_7", "train_1k", 29.0, model="TransNormer T1"),
    "memory-is-gone-at-3k": prints("table_7", "train_3k", 1.0, model="Transformer"),
    "vanilla-not-slowest": prints("table_7", "infer_1k", 1.0, model="Transformer"),
    "speed-batch-not-named": says(settings.SKYFORMER, "arena", "batch", {"text": 32, "image": 32}),
    "flash-quad-is-not-the-best-linear": prints("table_4", "ppl_test", 35.0, method="LS"),
    "table-4-tie": prints("table_4", "ppl_test", 30.0, method="TransNormer T2"),
    "clear-margin": prints("table_4", "ppl_test", 20.0, method="TransNormer T1"),
    "glue-selects-on-what-it-reports": prints("table_5", "sst2", 99.9, method="Vanilla"),
    "lra-first-or-second": prints("table_6", "image", 60.0, model="TransNormer T2"),
    "base-of-the-perplexity": reports(perplexity=lambda result: math.exp(result["bits_per_token"])),
    "gradients-that-explode": puts(theory, "kernel", lambda _: kernel_maps.kernel("relu")),
    "linear-gradient-without-a-lower-bound": puts(
        gradient_bounds, "appendix_c", lambda phi, _, *args, real=gradient_bounds.appendix_c: real(phi, 0.1, *args)
    ),
    "slack-of-the-norm-bound": puts(
        theory, "norm_score", lambda norm, _, eps: bounds_norm.norm_score(norm, "sharp", eps)
    ),
    "eq-10-at-a-zero-score": puts(
        gradient_bounds,
        "zero_score",
        lambda scores, real=gradient_bounds.zero_score: replace(real(scores), printed=real(scores).division_free),
    ),
    "eq-48-and-59-short-sequences": puts(theory, "softmax_score", lambda _: bounds_attention.softmax_score("sharp")),
    "eq-53-second-line": puts(
        gradient_bounds,
        "eq_53_second_line",
        lambda *args, real=gradient_bounds.eq_53_second_line: replace(real(*args), second_line=real(*args).final),
    ),
    "eq-55-sums-to-n": puts(gradient_bounds, "eq_55_error", lambda *_: 0.0),
    "eq-63-squared": puts(theory, "cross_entropy_bound", lambda _: bounds_matrix.cross_entropy_bound("published")),
    "eq-66-wrong-matrix": puts(theory, "upstream_bound", lambda _: bounds_matrix.upstream_bound("repaired")),
    "eq-28-without-the-scale": builds({}, "softmax", instead="linear"),
    "appendix-f-listing": puts(
        dilution, "appendix_f", lambda w, repaired, real=dilution.appendix_f: real(w, repaired=True)
    ),
    "figure-2-what-is-averaged": puts(dilution, "neighbourhood_sizes", lambda _: torch.full((100,), 1 / 40)),
}

# More falsified evidence, for single statements of a check.
FURTHER: dict[str, tuple[str, Mutation]] = {
    "a loss in bits": (
        "base-of-the-perplexity",
        puts(nn.functional, "cross_entropy", lambda *a, real=nn.functional.cross_entropy, **k: real(*a, **k) / LN_2),
    ),
    "bits that are nats": ("base-of-the-perplexity", reports(bits_per_token=lambda r: r["nats_per_token"])),
    "a perplexity above five": (
        "base-of-the-perplexity",
        prints("table_8", "t1", 7.5, diag_layers=12, norm_layers=0),
    ),
    "a perplexity below 3.7": ("base-of-the-perplexity", prints("table_11", "t2", 2.5, block_size=128)),
    "stages instead of alternating layers": (
        "combination-of-attentions",
        puts(
            attention_checks,
            "tiny",
            lambda name, arrangement="stages", **fields: tiny(
                name, arrangement={"alternating": "stages"}.get(arrangement, arrangement), **fields
            ),
        ),
    ),
    "only NormAttention where both should follow each other": (
        "combination-of-attentions",
        puts(attention_checks, "tiny", lambda name, early=None, **fields: tiny(name, early=early and 0, **fields)),
    ),
    "half the size on Text": ("lra-configuration", enlarges("text", 0.5)),
    "twenty times the size on Image": ("lra-configuration", enlarges("image", 2.0)),
    "features that make little difference": (
        "performer-features",
        builds({"features": 256}, "performer"),
    ),
    "zeros that make outputs grow": (
        "zeros-in-the-last-block",
        puts(released_forms, "zero_padded_blocks", lambda *a, real=released_forms.zero_padded_blocks: grown(real, *a)),
    ),
    "Linformer three times as large": (
        "lra-similar-size",
        puts(study, "parameter_counts", lambda *_: dict.fromkeys(PUBLISHED, 100) | {"linformer": 300}),
    ),
    "GELU in the decoder": (
        "ffn-activation",
        puts(norms, "tiny", lambda name, **f: tiny(name, **{**f, "activation": f.get("activation", "gelu")})),
    ),
    "an ablation with ReLU": ("ffn-activation", changes_ablation("relu")),
}


# --- the register ------------------------------------------------------------------------------------------


def test_every_entry_has_a_check_and_every_check_an_entry() -> None:
    assert set(register.names()) == set(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_check_confirms_its_entry(entry: str) -> None:
    found = register.run(entry)
    assert found.confirmed, {name: holds for name, holds in found.shows.items() if not holds}
    assert found.figures


def test_every_check_has_falsified_evidence() -> None:
    assert set(MUTATIONS) == set(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_check_fails_on_falsified_evidence(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[entry](monkeypatch)
    assert not register.run(entry).confirmed


@pytest.mark.parametrize("case", FURTHER)
def test_a_check_fails_if_one_statement_fails(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, mutation = FURTHER[case]
    mutation(monkeypatch)
    assert not register.run(entry).confirmed


def test_figures_of_a_check_are_deterministic() -> None:
    for entry in ("lra-mean-over-padding", "performer-features", "listops-shortcuts", "attention-dropout"):
        first, second = (plain(register.run(entry).figures, entry) for _ in range(2))  # to six digits, as recorded
        assert first == second


def test_an_entry_has_exactly_one_check() -> None:
    with pytest.raises(ValueError, match="entry='none': has no check"):
        register.run("none")
    with pytest.raises(ValueError, match="entry='tokenizer': has a check already"):
        check("tokenizer")(lambda: Found({}, {"x": True}))


@pytest.mark.parametrize(
    ("shows", "error"), [({}, ValueError), ({"x": np.bool_(True)}, TypeError)], ids=["nothing", "no-bool"]
)
def test_a_check_without_boolean_statements_is_refused(shows: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="shows"):
        Found({}, shows)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_place_is_found_in_the_code(entry: str) -> None:
    for name in ENTRIES[entry].code:
        place = register.find(name)
        assert place.source
        assert place.first <= place.line < place.first + len(place.source)


def test_a_place_is_the_line_with_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "x: int = 1\n\n\nclass A:\n    y = 2\n\n    def f(self):\n        z = 3\n        return z\n"
    )
    find = partial(register.find, library=tmp_path)
    assert find("a.py:x").line == 1
    assert find("a.py:A.y").line == 5
    assert find("a.py:A.f").line == 7
    assert find("a.py:A.f | return").line == 9
    for name, message in (("b.py:x", "no file b.py"), ("a.py:A.g", "no g"), ("a.py:A.f | w", "no line")):
        with pytest.raises(ValueError, match=message):
            find(name)


def test_every_trained_choice_is_a_comparison_of_the_study() -> None:
    named = {entry.trained for entry in ENTRIES.values() if entry.trained}
    assert named <= {"rotation", "activation", "epsilon", "recipe", "backbone"}
