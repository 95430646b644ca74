"""Tables 8 to 12: the trained rows, their comparisons, and the sentences of Section 5.4."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_study import LANGUAGE_MODEL, NO_SEARCH, differing

from transnormer_lib.choices import VARIANTS
from transnormer_lib.ledger import claims, kept
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.papers import tables
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.ablations import published, results, structure
from transnormer_lib.studies.ablations import runs as study
from transnormer_lib.studies.bidirectional_lm import runs as bidirectional
from transnormer_lib.studies.common.parameters import read

PROJECT = Project(Path(__file__).resolve().parents[3])
NOTEBOOK = "09_ablations"
EVERY = ["early-0", "early-1", "early-3", "early-4", "reversed", "ffn", "block-2", "block-8", "alternating"]
EVERY += ["alternating-reversed", "parallel", "ffn-swish", "glu-identity", "wide"]
VALUES: dict[str, Any] = {
    **LANGUAGE_MODEL,
    **NO_SEARCH,
    "layers": 4,
    "rotary": "none",
    "positions": "learned",
    "longest": 0,
    "rows": {"transnormer-t1": EVERY, "transnormer-t2": EVERY},
    "controls": ["vanilla-matched"],
    "seeds": [0, 1],
    "attention_dropout": 0.0,
    "waypoints": [],
}
PARAMETERS = read(study.Parameters, VALUES)
each_table = pytest.mark.parametrize("table", published.QUESTIONS)
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def test_every_row_is_a_different_model_and_has_every_seed() -> None:
    configs = study.runs(PARAMETERS)
    assert len({config.name for config in configs}) == len(configs) == (2 * (len(EVERY) + 1) + 1) * 2
    models = [config.model for config in configs if config.seed == 0]
    assert all(a != b for i, a in enumerate(models) for b in models[:i])


@each_variant
@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ("early-1", {"attention"}),
        ("reversed", {"attention"}),
        ("alternating", {"attention"}),
        ("alternating-reversed", {"attention"}),
        ("parallel", {"attention"}),
        ("ffn", {"feed_forward", "activation"}),
        ("ffn-swish", {"feed_forward"}),
        ("glu-identity", {"activation"}),
        ("block-2", {"attention_options"}),
        ("wide", {"hidden"}),
    ],
)
def test_a_change_changes_only_its_own_fields(variant: str, change: str, fields: set[str]) -> None:
    changed = differing(study.model(variant, PARAMETERS), study.model(f"{variant}-{change}", PARAMETERS))
    assert changed == fields


@each_variant
def test_the_wide_row_has_as_many_weights_as_the_parallel_row(variant: str) -> None:
    size = replace(PARAMETERS, dim=64, length=64)
    wide, parallel = (count_parameters(study.model(f"{variant}-{name}", size)) for name in ("wide", "parallel"))
    assert wide == pytest.approx(parallel, rel=0.005)


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_transnormer_itself_shares_its_runs_with_notebook_05(preset: str) -> None:
    here = read(study.Parameters, resolve(PROJECT, preset, NOTEBOOK))
    there = read(bidirectional.Parameters, resolve(PROJECT, preset, "05_bidirectional_lm"))
    rows = [row for row in study.rows(here) if row in there.rows()]
    assert "transnormer-t2" in rows
    for row in rows:
        assert here.seeds == there.seeds
        ours = {(name, seed): run for name, seed, run in study.search(here).judged()}
        assert ours[row, here.seeds[0]] == replace(
            bidirectional.run(row, there.seeds[0], there), rate_search=ours[row, here.seeds[0]].rate_search
        )


@pytest.mark.parametrize("preset", ["night", "gpu", "paper"])
def test_larger_scales_train_every_row_of_every_table_and_night_those_of_t2(preset: str) -> None:
    parameters = read(study.Parameters, resolve(PROJECT, preset, NOTEBOOK))
    trained, lines = study.rows(parameters), {table: published.lines(table) for table in published.QUESTIONS}
    for line in (line for of_table in lines.values() for line in of_table):
        for variant in VARIANTS if preset != "night" else ("transnormer-t2",):
            if line.published[variant] is not None or variant == "transnormer-t2":
                assert results.row_name(variant, line.change, parameters) in trained


@pytest.mark.parametrize("preset", [name for name in PROJECT.presets if name != "quick"])
def test_every_larger_scale_trains_a_row_of_every_table(preset: str) -> None:
    parameters = read(study.Parameters, resolve(PROJECT, preset, NOTEBOOK))
    trained = study.rows(parameters)
    for table in published.QUESTIONS:
        changed = [results.row_name("transnormer-t2", line.change, parameters) for line in published.lines(table)]
        assert set(changed) & set(trained) - {"transnormer-t2"}, table


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"transnormer-t3": []}, r"rows='transnormer-t3': must be one of transnormer-t1, transnormer-t2"),
        ({"transnormer-t1": ["late"]}, r"rows='transnormer-t1-late': no such change; there are early-K"),
        ({"transnormer-t1": ["early-K"]}, r"rows='transnormer-t1-early-K': no such change"),
        ({"transnormer-t1": ["ffn-3"]}, r"rows='transnormer-t1-ffn-3': no such change"),
    ],
)
def test_an_unknown_row_is_refused(rows: dict[str, list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        study.runs(replace(PARAMETERS, rows=rows))


def test_a_duplicate_row_is_refused() -> None:
    with pytest.raises(ValueError, match="must differ from each other"):
        study.runs(replace(PARAMETERS, rows={"transnormer-t1": ("ffn", "ffn")}))


def test_a_change_at_the_published_size_is_unchanged() -> None:
    full_size = replace(PARAMETERS, layers=12, block_size=64, length=512)
    for table in published.QUESTIONS:
        for line in published.lines(table):
            assert results.here(line.change, full_size) == line.change


@pytest.mark.parametrize(
    ("change", "layers", "block", "length", "expected"),
    [
        ("early-3", 4, 8, 64, "early-1"),
        ("early-3", 2, 8, 64, None),  # half a layer
        ("block-32", 4, 8, 64, "block-4"),
        ("block-512", 4, 8, 64, "block-64"),
        ("block-512", 4, 16, 64, "block-64"),  # the whole sequence, whatever the block
        ("block-128", 4, 64, 64, None),  # longer than the sequence
        ("block-32", 4, 1, 64, None),  # half a token
        ("alternating-reversed", 4, 8, 64, "alternating-reversed"),
    ],
)
def test_a_smaller_encoder_keeps_the_proportions(
    change: str, layers: int, block: int, length: int, expected: str | None
) -> None:
    assert results.here(change, replace(PARAMETERS, layers=layers, block_size=block, length=length)) == expected


def test_claims_match_the_printed_numbers_and_orders_one_to_one() -> None:
    known = {claim.id: claim for claim in claims.load() if claim.notebook == NOTEBOOK}
    compared = [c for table in published.QUESTIONS for c in published.comparisons(table)] + published.beyond()
    assert {c.claim for c in compared} == {name for name, claim in known.items() if claim.kind == "ordering"}
    assert set(published.numbers()) == {name for name, claim in known.items() if claim.kind == "number"}


@each_table
def test_orders_are_those_of_the_tables(table: str) -> None:
    known = {claim.id: claim for claim in claims.load()}
    printed = {line.change: line.published for line in published.lines(table)}
    for c in published.comparisons(table):
        better, worse = printed[c.better][c.variant], printed[c.worse][c.variant]
        assert known[c.claim].published == [better, worse]
        assert (better or math.inf) < (worse or 0.0)


def test_published_numbers_of_claims_are_those_of_the_tables() -> None:
    known = {claim.id: claim for claim in claims.load()}
    lines = [line for table in published.QUESTIONS for line in published.lines(table)]
    for claim, cells in published.numbers().items():
        printed = {
            cell: {line.published[variant] for line in lines if line.change == change}
            for cell, (variant, change) in cells.items()
        }
        assert printed == {cell: {value} for cell, value in dict(known[claim].published).items()}  # type: ignore[arg-type]


def test_a_missing_comparison_has_a_reason() -> None:
    two_layers = replace(PARAMETERS, layers=2, rows={"transnormer-t2": ("early-0",)})
    present = ["transnormer-t2", "transnormer-t2-early-0"]

    def why(better: str, worse: str) -> str:
        comparison = published.Comparison("claim", better, worse, "transnormer-t2")
        return results.why_not(comparison, two_layers, present, "quick")

    assert why("", "early-0") == ""
    assert why("", "alternating") == "transnormer-t2-alternating is the same model as transnormer-t2 with 2 layers"
    assert "no counterpart in 2 layers" in why("", "early-3")
    assert why("", "ffn") == "the parameters do not train transnormer-t2-ffn; a larger preset does"


def test_the_table_shows_our_losses_beside_the_papers_and_none_without_runs() -> None:
    bits = {"transnormer-t2": [3.0, 3.2], "transnormer-t2-early-0": [3.5, math.inf]}
    first, *_ = results.loss_table("table_8", bits, PARAMETERS)
    assert first["encoder"] == "0 Diag, 4 Norm"
    assert (first["T1, ours"], first["T2, ours"]) == (None, "3.500 (3.500 to 3.500, 1 diverged)")
    assert (first["T1, Table 8"], first["T2, Table 8"]) == (4.23, 4.48)
    assert {bits for by in results.losses("table_9", {}, PARAMETERS).values() for bits in by.values()} == {()}


def test_our_own_lines_are_shown_only_if_they_were_run() -> None:
    bits = {"transnormer-t2": [3.0], "transnormer-t2-ffn-swish": [3.1]}
    shown = [line["encoder"] for line in results.loss_table("table_10", bits, PARAMETERS)]
    assert shown == ["FFN, GELU", "TransNormer", "FFN, swish"]


def test_a_sentence_says_which_model_is_ahead() -> None:
    bits = {"transnormer-t2": [3.0, 3.1, 3.2], "transnormer-t2-reversed": [3.5, 3.6, 3.71]}
    (line,) = results.conclusions("table_9", bits, PARAMETERS)
    assert line.startswith("T2, Norm first, then Diag, against T2 as it is: higher loss; +0.503 bits, 95% in [+0.489")


def altered(monkeypatch: pytest.MonkeyPatch, table: str, row: int, value: float) -> None:
    """The published table with a changed number for both variants in one row."""
    original = tables.load("transnormer", table)
    rows = [[*cells[:-2], value, value] if number == row else cells for number, cells in enumerate(original.rows)]
    changed = original.model_copy(update={"rows": rows})
    load = tables.load
    monkeypatch.setattr(tables, "load", lambda paper, name: changed if name == table else load(paper, name))


@pytest.mark.parametrize(
    ("table", "row", "value", "sentence"),
    [
        ("table_8", 1, 3.0, lambda: list(published.best_proportion().values()) == [6, 6]),
        ("table_8", 1, 9.0, lambda: all(published.worse_alone().values())),
        ("table_9", 0, 3.0, lambda: all(published.lower_than("table_9", "reversed").values())),
        ("table_10", 0, 3.0, lambda: all(published.lower_than("table_10", "ffn").values())),
        ("table_11", 2, 9.0, lambda: all(published.falls_with_the_block().values())),
        ("table_12", 0, 3.0, lambda: all(published.lower_than("table_12", "alternating").values())),
        ("table_12", 3, 9.0, lambda: all(len(values) == 1 for values in published.transnormer_rows().values())),
    ],
    ids=["balanced", "alone", "order", "glu", "blocks", "alternating", "same-model"],
)
def test_a_sentence_is_true_of_the_printed_table_but_not_of_a_changed_one(
    monkeypatch: pytest.MonkeyPatch, table: str, row: int, value: float, sentence: Any
) -> None:
    assert sentence()
    altered(monkeypatch, table, row, value)
    assert not sentence()


def test_the_parallel_form_doubles_attention_but_not_the_model() -> None:
    cost = structure.parallel_cost()
    assert cost["attention"] == 2.0
    assert 1.0 < cost["model"] < 1.5


def test_a_layer_has_attention_and_glu_each_with_a_norm() -> None:
    assert structure.layer_parts() == {
        "decoder": ["RMSNorm", "attention", "RMSNorm", "GLU"],
        "encoder": ["attention", "RMSNorm", "GLU", "RMSNorm"],
    }
    assert structure.norm_attention_difference() < 1e-12


def test_another_norm_does_not_match_the_formula_of_norm_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    build = structure.build_attention
    monkeypatch.setattr(structure, "build_attention", lambda _, config: build("norm", {**config, "norm": "layer"}))
    assert structure.norm_attention_difference() > 1e-3


@pytest.mark.parametrize("order", ["stages-reversed", "alternating", "parallel"])
def test_no_other_arrangement_has_these_stages(monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    from transnormer_lib.models import architectures

    drawn, published_model = structure.stages(), architectures.published
    assert set(drawn.values()) == {"3 diag, 3 norm", "6 diag, 6 norm"}
    monkeypatch.setattr(architectures, "published", lambda name, kind: published_model(name, kind, arrangement=order))
    assert set(structure.stages().values()).isdisjoint(drawn.values())


def test_a_larger_block_costs_a_little_more() -> None:
    assert 1.0 < structure.block_cost() < 1.02


def test_a_table_with_a_missing_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:

    empty = [published.Line("", {"transnormer-t1": None, "transnormer-t2": 1.0})]
    empty.append(published.Line("ffn", dict.fromkeys(VARIANTS, 2.0)))
    monkeypatch.setattr(published, "lines", lambda table: empty)
    with pytest.raises(ValueError, match="table_10: prints no perplexity of transnormer-t1 for 'TransNormer itself'"):
        published.lower_than("table_10", "ffn")


def test_a_reproduced_number_keeps_the_order() -> None:
    known = {claim.id: claim for claim in claims.load()}
    lines = {line.change: line.published for table in published.QUESTIONS for line in published.lines(table)}
    for name, cells in published.numbers().items():
        claim = known[name]
        assert claim.tolerance is not None
        for cell, (variant, _) in cells.items():
            base = lines[""][variant]
            assert base is not None
            assert claim.tolerance <= abs(dict(claim.published)[cell] - base) / 2 + 1e-9  # type: ignore[arg-type]


def test_losses_are_grouped_by_row_in_the_order_of_the_seeds() -> None:
    parameters = replace(PARAMETERS, seeds=(1, 0))
    records = [
        {"status": "finished", "validation": [{"bits_per_token": float(n)}]} for n in range(len(study.runs(parameters)))
    ]
    records[3]["status"] = "diverged"
    bits = results.bits(parameters, records)
    assert list(bits) == study.rows(parameters)
    assert [bits[row] for row in list(bits)[:3]] == [[1.0, 0.0], [math.inf, 2.0], [5.0, 4.0]]


def test_what_is_kept_can_be_shown_with_the_parameters_of_today() -> None:
    for found in kept.larger("quick", "09_ablations"):
        losses, parameters = results.of_kept(found)
        assert set(losses) == {row for row, _, _ in study.search(parameters).judged()}
        assert {len(values) for values in losses.values()} == {len(parameters.seeds)}


def test_the_line_with_the_lowest_mean_stands_beside_the_printed_one() -> None:
    bits = {"transnormer-t2": [3.0, 3.2], "transnormer-t2-early-0": [2.5, math.inf]}
    said = results.lowest("table_8", bits, PARAMETERS)
    assert said == "Lowest mean of the printed lines: for T2 0 Diag, 4 Norm, 2.50 bits (in print TransNormer)."
    single = results.lowest("table_8", bits, replace(PARAMETERS, seeds=(0,)))
    assert "printed lines, with one seed: for T2" in single


@pytest.mark.parametrize(
    "bits",
    [{}, {"transnormer-t2": [3.0]}, {"transnormer-t2": [3.0], "transnormer-t2-early-0": [math.inf]}],
    ids=["none", "one", "the other diverged"],
)
def test_a_single_line_is_the_lowest_of_none(bits: dict[str, list[float]]) -> None:
    assert results.lowest("table_8", bits, PARAMETERS) == "Fewer than two lines were run."
