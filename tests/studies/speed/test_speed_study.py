"""The rows of Table 7 in one configuration, the paper's sentences recomputed, and what the measurements say."""

import math
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transnormer_lib.analysis.arena_speed import PARTS, Cell
from transnormer_lib.models.config import ClassifierHead
from transnormer_lib.models.flops import forward_flops
from transnormer_lib.papers import tables
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.lra import recipes as arena_recipes
from transnormer_lib.studies.lra import results as arena_results
from transnormer_lib.studies.lra import runs as arena
from transnormer_lib.studies.speed import models as timed
from transnormer_lib.studies.speed import published
from transnormer_lib.studies.speed import results as found
from transnormer_lib.studies.speed import runs as study
from transnormer_lib.studies.speed.results import Results

ROWS = (*timed.TABLE_7, *timed.ADDED)
PARAMETERS = study.Parameters(
    device="cpu",
    precision="fp32",
    batch=1,
    lengths=(128, 1024, 5120),
    slope_from=1024,
    judged_lengths=(5120,),
    rounds=3,
    group_seconds=0.0,
    repeats=2,
    round_seconds=0.1,
    long_step_seconds=1.0,
    step_seconds=2.0,
    memory_limit_gb=0.5,
    figure_length=1024,
    decode_positions=(64,),
    decode_steps=8,
    decode_rounds=3,
    scores=arena.recipe_parameters("paper", {}),
)
PROJECT = Project(Path(__file__).resolve().parents[3])
QUICK = resolve(PROJECT, "quick", "08_speed")


@pytest.mark.parametrize("preset", PROJECT.presets)
def test_the_scores_of_figure_1_are_those_of_notebook_07_at_the_same_scale_or_none(preset: str) -> None:
    here = read(study.Parameters, resolve(PROJECT, preset, "08_speed"))
    there = read(arena.Parameters, resolve(PROJECT, preset, "07_lra"))
    assert replace(here.scores, tasks=there.tasks) == there
    assert here.scores.tasks in ((), there.tasks)
    assert study.runs(here) == (arena.runs(there) if here.scores.tasks else [])


def test_without_scores_of_ours_nothing_is_trained() -> None:
    assert study.runs(PARAMETERS) == []
    assert study.runs(replace(PARAMETERS, scores=replace(PARAMETERS.scores, settings={"image": {}}))) == []
    assert found.scores(PARAMETERS, None) == {}  # type: ignore[arg-type]


def test_a_score_is_the_mean_over_tasks_and_seeds_of_rows_that_all_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"a": {"x": [10.0, 20.0], "y": [50.0, 60.0]}, "b": {"x": [30.0, 40.0], "y": [70.0, -math.inf]}}
    results = SimpleNamespace(panels=lambda: measured)
    monkeypatch.setattr(arena_results, "measure", lambda parameters, store: results)
    asked = replace(PARAMETERS, scores=replace(PARAMETERS.scores, tasks=("a", "b")))
    assert found.scores(asked, None) == {"x": 25.0}  # type: ignore[arg-type]


def test_the_rows_are_those_of_table_7() -> None:
    printed = [record["model"] for record in tables.load("transnormer", "table_7").records()]
    assert list(published.PUBLISHED.values()) == printed


@pytest.mark.parametrize("row", ROWS)
def test_every_row_at_every_length_has_the_recipes_configuration(row: str) -> None:
    for length in (128, 1024, 5120):
        encoder = timed.model(row, length).model
        assert (encoder.layers, encoder.dim, encoder.heads, encoder.max_length) == (2, 64, 2, length)
        assert (encoder.vocab_size, encoder.positions, encoder.dropout) == (258, "learned", 0.1)
        assert encoder.hidden == (85 if encoder.feed_forward == "glu" else 128)


def test_rows_of_one_length_differ_only_in_attention_and_backbone() -> None:
    reference = asdict(timed.model("vanilla", 1024))
    allowed = {"attention", "attention_options", "feed_forward", "hidden", "activation", "norm"}
    for row in ROWS:
        own = asdict(timed.model(row, 1024))
        assert {k for k in own if k != "model" and own[k] != reference[k]} == set()
        assert {k for k in own["model"] if own["model"][k] != reference["model"][k]} <= allowed


def test_matched_controls_differ_from_transnormer_in_attention_alone() -> None:
    t2 = asdict(timed.model("transnormer-t2", 1024).model)
    for row in ("vanilla-matched", "linear-matched"):
        own = asdict(timed.model(row, 1024).model)
        assert {name for name in own if own[name] != t2[name]} == {"attention", "attention_options"}


def test_the_stored_row_is_vanilla_that_makes_its_matrix_and_computes_the_same() -> None:
    import torch

    from transnormer_lib.models.classifier import build_classifier

    ids = torch.randint(256, (2, 128), generator=torch.Generator().manual_seed(0))
    logits = [build_classifier(timed.model(row, 128), 0).eval()(ids) for row in ("vanilla", timed.STORED)]
    torch.testing.assert_close(*logits)
    options = timed.model(timed.STORED, 128).model.attention_options
    assert options == {"softmax": {"impl": "reference"}}


def test_on_a_gpu_every_row_with_kernels_but_the_matched_control_is_timed_without_them_too() -> None:
    from transnormer_lib.attention import Attention, registry

    with_kernels = set()
    for row in ROWS:
        mechanisms = [registry.classes(name)[1] for name in timed.model(row, 128).model.attention]
        if any(issubclass(m, Attention) and m.kernel is not Attention.kernel for m in mechanisms):
            with_kernels.add(row)
    assert {timed.model_of(row) for row in timed.PLAIN} == with_kernels - {"linear-matched"}
    assert timed.rows("cpu") == ROWS
    assert timed.rows("cuda") == (*ROWS, *timed.PLAIN)
    assert {row for row, _ in timed.models(replace(PARAMETERS, device="cuda"))} == {*ROWS, *timed.PLAIN}


@pytest.mark.parametrize("row", timed.PLAIN)
def test_a_plain_row_is_its_models_in_pytorch_alone_and_computes_the_same(row: str) -> None:
    import torch

    from transnormer_lib.models.classifier import build_classifier

    ids = torch.randint(256, (2, 128), generator=torch.Generator().manual_seed(0))
    plain, usual = timed.model(row, 128), timed.model(timed.model_of(row), 128)
    torch.testing.assert_close(*[build_classifier(config, 0).eval()(ids) for config in (plain, usual)])
    for name in plain.model.attention:
        options = dict(plain.model.attention_options[name])
        assert options.pop("impl") == "chunked"
        assert options == usual.model.attention_options[name]
    assert timed.quadratic_operations(row) == 0


def test_the_papers_comparisons_are_judged_on_the_plain_row_where_there_is_one() -> None:
    assert timed.judged("transnormer-t2", ROWS) == "transnormer-t2"
    assert timed.judged("transnormer-t2", (*ROWS, *timed.PLAIN)) == "transnormer-t2-plain"
    assert timed.judged("performer", (*ROWS, *timed.PLAIN)) == "performer"


def test_the_optimiser_is_that_of_the_arena_recipe() -> None:
    optimizer = study.work(PARAMETERS).optimizer
    chosen = arena_recipes.setting("text", "paper", {})
    assert (optimizer.learning_rate, optimizer.clip_value, optimizer.weight_decay) == (chosen.learning_rate, 1.0, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": ()}, r"lengths=\(\): must be positive and rise"),
        ({"lengths": (256, 128)}, r"lengths=\(256, 128\): must be positive and rise"),
        ({"judged_lengths": (300,)}, "judged_lengths=.*: must be some of lengths"),
        ({"judged_lengths": ()}, r"judged_lengths=\(\): must be some of lengths"),
        ({"decode_positions": ()}, r"decode_positions=\(\): must hold positions of at least 1"),
        ({"decode_positions": (64, 0)}, r"decode_positions=\(64, 0\): must hold positions of at least 1"),
        ({"decode_steps": 0}, "decode_steps=0: must be a whole number of at least 1"),
        ({"decode_rounds": -1}, "decode_rounds=-1: must be a whole number of at least 1"),
        ({"device": "tpu"}, "device='tpu': Input should be 'cpu' or 'cuda'"),
        ({"precision": "fp16"}, "precision='fp16': Input should be 'fp32' or 'bf16'"),
        ({"batch": 0}, "batch=0: must be a whole number of at least 1"),
        ({"rounds": 0}, "rounds=0: must be a whole number of at least 1"),
        ({"step_seconds": 0.0}, "step_seconds=0.0: must be a positive finite number"),
        ({"figure_length": 6144}, "figure_length=6144: must be in Table 7 and in lengths, one of"),
        ({"figure_length": 128}, "figure_length=128: must be in Table 7"),
        ({"memory_limit_gb": -1.0}, "memory_limit_gb=-1.0: must be .* not negative"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_parameters_that_cannot_be_used_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(study.Parameters, QUICK | change)


@pytest.mark.parametrize(("row", "per_pair"), [("vanilla", 512), ("flash-quad", 1024), ("transnormer-t1", 0)])
def test_operations_per_pair_of_tokens_are_what_remains_when_the_linear_part_is_taken_away(
    row: str, per_pair: int
) -> None:
    assert timed.quadratic_operations(row) == per_pair
    encoder, head = timed.model(row, 65536).model, ClassifierHead(2)
    at = [forward_flops(encoder, n, head=head) for n in (16384, 32768, 49152, 65536)]
    increments = [after - before for before, after in pairwise(at)]
    assert [b - a for a, b in pairwise(increments)] == [2 * per_pair * 16384**2] * 2


def test_t2s_operations_double_with_the_length_but_for_the_head() -> None:
    encoder, head = timed.model("transnormer-t2", 65536).model, ClassifierHead(2)
    of_head = 2 * forward_flops(encoder, 1024, head=head) - forward_flops(encoder, 2048, head=head)
    assert of_head == 2 * (64 * 128 + 128 * 2)
    ratio = (forward_flops(encoder, 65536, head=head) - of_head) / (forward_flops(encoder, 1024, head=head) - of_head)
    assert ratio == 64


# --- the table as printed ---


def test_published_ratios_are_quotients_of_printed_cells() -> None:
    assert published.ratio("transnormer-t2", "vanilla", 2048, "training") == 17.24 / 3.05
    assert published.ratio("transnormer-t2", "flash-quad", 5120, "inference") == 36.23 / 5.39
    assert published.ratio("transnormer-t2", "vanilla", 3072, "training") is None


def test_the_ratio_table_has_a_line_for_each_other_row_and_a_column_for_each_cell() -> None:
    lines = published.ratio_table("transnormer-t2")
    assert [line["model"] for line in lines] == list(published.PUBLISHED.values())[:-1]
    assert {len(line) for line in lines} == {1 + 10}
    assert [value for value in lines[0].values() if value is None] == [None] * 6


def test_the_transformer_is_slowest_in_two_of_its_four_cells() -> None:
    # At 1K, LS infers at 32.05 < 39.06 and Nyströmformer trains at 14.12 < 15.34.
    assert published.slowest("vanilla") == (2, 4)


def test_performer_ties_with_t1_in_one_cell_and_nothing_with_t2() -> None:
    assert published.not_faster("transnormer-t1") == [("performer", 1024, "training")]
    assert published.not_faster("transnormer-t2") == []


@pytest.mark.parametrize(
    ("times", "part", "above"),
    [(4, "training", 0), (3, "training", 4), (2.5, "inference", 10), (4, "inference", 6)],
)
def test_how_many_cells_hold_how_many_times_the_speed_of_flash_quad(times: float, part: Any, above: int) -> None:
    printed = tables.load("transnormer", "table_7")
    prefix = "train" if part == "training" else "infer"
    by_hand = sum(
        float(printed.value(f"{prefix}_{k}k", model=name))
        > times * float(printed.value(f"{prefix}_{k}k", model="FLASH-quad"))  # type: ignore[arg-type]
        for name in ("TransNormer T1", "TransNormer T2")
        for k in range(1, 6)
    )
    assert published.cells_above(times, part) == (by_hand, 10)
    assert by_hand == above


def test_flash_quad_is_the_best_linear_baseline_but_on_table_4s_test_split() -> None:
    best = {split: published.best_linear("table_4", column) for split, column in published.SPLITS.items()}
    assert best == {"validation": True, "test": False}  # LS has 32.59, FLASH-quad 33.5
    assert published.best_linear("table_5", "avg")


def test_every_published_step_of_the_efficient_rows_but_flash_quad_grows_less_than_linearly() -> None:
    fitted = {row: published.exponent(row, "training") for row in published.PUBLISHED}
    assert [row for row, e in fitted.items() if e is not None and e.value >= 1] == ["vanilla", "flash-quad"]
    assert fitted["vanilla"] is not None
    assert len(fitted["vanilla"].lengths) == 2


# --- what was measured ---


def results() -> Results:
    """Invented: T2 is linear, performer constant, vanilla quadratic and lost in training beyond 1,024 tokens."""
    times = {"transnormer-t2": lambda n: n / 1e5, "vanilla": lambda n: n * n / 1e8, "performer": lambda n: 0.02}
    cells = []
    for row, seconds in times.items():
        for n in (512, 1024, 2048, 5120):
            for part in PARTS:
                if row == "vanilla" and part == "training" and n > 1024:
                    cells.append(Cell(row, n, part, missing="memory", reason="not within 1 GB"))
                else:
                    rounds = tuple(seconds(n) * (1 + r / 10) for r in range(3))
                    cells.append(Cell(row, n, part, rounds, n * 1000))
    return Results(tuple(cells))


def test_tables_have_a_line_per_row_a_column_per_length_and_a_mark_where_a_value_is_missing() -> None:
    for table in (found.speed_table, found.memory_table):
        lines = table(results(), "training")
        assert [list(line) for line in lines] == [["model", "512", "1,024", "2,048", "5,120"]] * 3
        assert [line["2,048"] for line in lines if line["model"] == "vanilla"] == ["–"]


def test_rows_that_are_faster_are_counted_by_part_and_at_the_longest_length() -> None:
    assert found.quicker(results(), "transnormer-t2", "inference") == (
        "Faster than transnormer-t2 at 5,120 tokens, by the median of the rounds' ratios: 1 of 2 (performer)."
    )
    assert found.quicker(Results(()), "transnormer-t2", "inference") == "None of Table 7's lengths is measured."
    lines = [line for part in PARTS for line in found.crossovers(results(), part)]
    assert found.overtaking(lines) == (
        "Faster from some length on in inference: 2 of 2. "
        "Faster from some length on in training: 1 of 2 (transnormer-t2)."
    )
    assert found.overtaking([]) == ""
    assert found.exponents(results(), "training", 1024)["vanilla"] is None


def test_ratios_are_formed_round_by_round() -> None:
    ratios = found.times_faster(results(), "transnormer-t2", "vanilla", 1024, "inference")
    assert ratios == pytest.approx([1024 * 1e5 / 1e8] * 3)
    assert found.times_faster(results(), "transnormer-t2", "vanilla", 5120, "training") == []
    assert found.times_faster(results(), "transnormer-t2", "nobody", 1024, "training") == []


def test_the_ratio_table_puts_published_ratios_beside_ours_at_the_lengths_of_table_7() -> None:
    lines = {line["model"]: line for line in found.ratio_table(results(), "transnormer-t2", "inference")}
    columns = ["1K", "1K, published", "2K", "2K, published", "5K", "5K, published"]
    assert list(lines["vanilla"]) == ["model", *columns]
    assert lines["vanilla"]["2K, published"] == round(65.79 / 10.05, 2)
    assert lines["vanilla"]["5K, published"] is None
    assert set(lines) == {"vanilla", "performer"}


def on_a_gpu() -> Results:
    """The same, with kernels that make T2 ten times as fast as its plain form."""
    t2 = [c for c in results().cells if c.row == "transnormer-t2"]
    fast = [replace(c, seconds=tuple(s / 10 for s in c.seconds)) for c in t2]
    plain = [replace(c, row="transnormer-t2-plain") for c in t2]
    return Results((*(c for c in results().cells if c not in t2), *fast, *plain))


def test_on_a_gpu_published_values_are_compared_with_the_plain_row() -> None:
    measured, usual = on_a_gpu(), results()
    lines = {line["model"]: line for line in found.ratio_table(measured, "transnormer-t2-plain", "inference")}
    before = {line["model"]: line for line in found.ratio_table(usual, "transnormer-t2", "inference")}
    assert lines["vanilla"] == before["vanilla"]
    assert lines["transnormer-t2"]["2K, published"] is None
    growth = {line["model"]: line for line in found.growth_table(measured, 1024)}
    assert growth["transnormer-t2"]["training, Table 7"] is None
    assert growth["transnormer-t2 (plain PyTorch)"]["training, Table 7"] is not None
    scores = {"transnormer-t2": 60.0, "performer": 50.0}
    assert found.judged_scores(measured, scores) == {"transnormer-t2-plain": 60.0, "performer": 50.0}
    assert found.judged_scores(usual, scores) == scores


def test_conclusions_compare_the_plain_row_with_rivals() -> None:
    def rivals(measured: Results) -> list[str]:
        said = [line for line in found.conclusions(measured, 1024) if "exponent" not in line]
        return [
            line.replace(" (plain PyTorch)", "").replace("; linear-matched beside T2 on the same kernels", "")
            for line in said
        ]

    assert rivals(on_a_gpu()) == rivals(results())


def test_exponents_and_crossovers_are_those_of_the_times() -> None:
    fitted = {row: results().exponent(row, "inference", 1024) for row in results().rows()}
    assert {row: e.value for row, e in fitted.items() if e} == pytest.approx(
        {"transnormer-t2": 1.0, "vanilla": 2.0, "performer": 0.0}
    )
    assert results().exponent("vanilla", "training", 1024) is None
    lines = {(line["model"], line["part"]): line for part in PARTS for line in found.crossovers(results(), part)}
    assert lines["transnormer-t2", "inference"]["faster from"] == "1,000"
    assert lines["transnormer-t2", "training"]["faster from"] == "1,000"
    assert lines["transnormer-t2", "inference"]["over rounds"] == "1,000 to 1,000"
    assert lines["performer", "training"]["faster from"] == "not within the lengths measured"


def test_a_long_length_with_one_round_does_not_take_the_range_from_a_crossover_far_below_it() -> None:
    cells = [Cell(c.row, c.length, c.part, c.seconds[: 1 if c.length == 5120 else 3]) for c in results().cells]
    lines = {line["model"]: line for line in found.crossovers(Results(tuple(cells)), "inference")}
    assert lines["transnormer-t2"]["over rounds"] == "1,000 to 1,000"
    assert lines["performer"]["over rounds"] == "one round"  # its crossover, 1,414, has one longer length beside 5,120


def test_a_missing_value_is_explained_by_the_row_that_misses_it() -> None:
    said = found.why_missing(results(), ("transnormer-t2", "vanilla"), 5120, "training")
    assert said == "vanilla in training at 5,120 tokens: not within 1 GB"
    said = found.why_missing(results(), ("transnormer-t2",), 4096, "training")
    assert said == "4,096 tokens are none of the lengths measured"


def test_an_ordering_takes_steps_per_second_of_the_rounds_that_both_have() -> None:
    sides = found.sides(results(), "transnormer-t2", "performer", 512, "training")
    assert sides["seeds"] == [0, 1, 2]
    assert sides["better"] == pytest.approx([1e5 / 512 / (1 + r / 10) for r in range(3)])
    assert sides["higher_is_better"]


def test_the_batch_that_dashes_imply_follows_from_the_memory_at_2k_and_3k() -> None:
    peaks = {2048: 100, 3072: 200}
    stored = Results(tuple(Cell(timed.STORED, n, "training", (1.0,), peak) for n, peak in peaks.items()))
    assert found.implied_batches(stored, 1000.0, "training") == (5.0, 10.0)
    assert "between 20 and 40" in found.batch_sentence(stored, 1000.0, "training", 4, "fp32")
    assert found.implied_batches(stored, 1000.0, "inference") is None


def test_conclusions_say_what_was_lost_and_why() -> None:
    said = found.conclusions(results(), 1024)
    assert any("vanilla has no value from 2,048 tokens on: not within 1 GB" in line for line in said)
    assert any("performer" in line and "5,120" in line for line in said)


def test_decoders_are_of_those_rows_that_decode_token_by_token() -> None:
    built = timed.decoders(64)
    assert {"vanilla", "linear", "transnormer-t1", "transnormer-t2", "performer", "cosformer"} <= set(built)
    assert not {"linformer", "reformer", "nystromformer"} & set(built)
    assert {(m.config.dim, m.config.heads, m.config.layers) for m in built.values()} == {(64, 2, 2)}


def test_rows_that_grow_more_slowly_are_counted_from_the_printed_times(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = published.slower_growing("transnormer-t2")
    assert ("nystromformer", "training") in slower
    assert ("flash-quad", "inference") not in slower
    monkeypatch.setattr(published, "seconds", lambda row, part: {n: float(n) for n in published.LENGTHS})
    assert published.slower_growing("transnormer-t2") == []


def test_the_cells_of_table_7_in_which_a_row_is_the_fastest_are_counted_with_ties() -> None:
    said = published.fastest_in_words()
    assert said.startswith("Fastest, ties included, of 10 cells: TransNormer T2 in 10, TransNormer T1 in 1. ")
    assert said.endswith("Largest exponent: Transformer (1.96) in inference and Transformer (2.33) in training.")


def _two_rows() -> Results:
    times = {"vanilla": (0.4, 4_000_000), "transnormer-t2": (0.1, 5_000_000), "linear": (0.05, 1_000_000)}
    cells = [Cell(row, 1024, "training", (time,), peak) for row, (time, peak) in times.items()]
    return Results((*cells, Cell("flash", 1024, "training", missing="memory", reason="none")))


def test_the_place_of_a_row_is_among_those_that_were_measured() -> None:
    assert found.fastest(_two_rows(), "transnormer-t2", 1024) == (
        "Place of transnormer-t2 at 1,024 tokens, by the median time of a step: 2 of 3 in training (first: linear), "
        "4.0 times vanilla's speed."
    )
    assert found.leanest(_two_rows(), "transnormer-t2", 1024).endswith("first: 3 of 3 in training (first: linear).")
    assert found.fastest(_two_rows(), "linear", 1024).endswith("1 of 3 in training, 8.0 times vanilla's speed.")


@pytest.mark.parametrize(("row", "length"), [("flash", 1024), ("linear", 2048)])
def test_a_row_without_a_value_has_no_place(row: str, length: int) -> None:
    assert found.fastest(_two_rows(), row, length) == f"No time at {length:,} tokens."
    assert found.leanest(_two_rows(), row, length) == f"No peak at {length:,} tokens."
