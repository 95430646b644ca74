"""The encoders of Table 5: what is trained, what is said about it, and the gaps that the models fill."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tiny_study import ATTENTION, LANGUAGE_MODEL, NO_SEARCH, ROWS, differing, with_matched_controls

from transnormer_lib.ledger import claims
from transnormer_lib.models.architectures import published
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.bidirectional_lm import published as paper
from transnormer_lib.studies.bidirectional_lm import results
from transnormer_lib.studies.bidirectional_lm import runs as study
from transnormer_lib.studies.bidirectional_lm.places import Guess, Sides
from transnormer_lib.studies.bidirectional_lm.results import MeasuredEncoder
from transnormer_lib.studies.common import language_models, row_losses
from transnormer_lib.studies.common.language_models import TWO_SIDED, Floor
from transnormer_lib.studies.common.measured import by_row
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

PROJECT = Project(Path(__file__).resolve().parents[3])
PARAMETERS = read(
    study.Parameters,
    {
        **LANGUAGE_MODEL,
        **NO_SEARCH,
        **ROWS,
        "sides_windows": 6,
        "rotary": "none",
        "positions": "learned",
        "longest": 0,
        "attention_dropout": 0.1,
        "waypoints": [0.0, 0.5, 1.0],
        "validation_windows": 4,
    },
)
BASELINES = {"2-gram": 4.0, results.NO_CONTEXT: 4.5}
FLOOR = Floor(TWO_SIDED, 2.5)


def fake(row: str, losses: list[float], **fields: Any) -> list[MeasuredEncoder]:
    run = cast(Run, SimpleNamespace(record={"parameters": 7, "status": "finished"}))
    return [MeasuredEncoder(row, seed, bits, run, **fields) for seed, bits in enumerate(losses)]


def test_every_row_is_trained_with_every_seed() -> None:
    named = [(config.name, config.seed) for config in study.runs(PARAMETERS)]
    assert len(set(named)) == len(named) == 9 * 2


@with_matched_controls
def test_a_control_differs_from_transnormer_only_in_attention(variant: str, control: str) -> None:
    ours, theirs = study.model(variant, PARAMETERS), study.model(control, PARAMETERS)
    assert differing(ours, replace(theirs, attention_dropout=0.0)) == ATTENTION


def test_only_softmax_attention_has_attention_dropout_unless_released() -> None:
    dropouts = {row: study.model(row, PARAMETERS).attention_dropout for row in PARAMETERS.rows()}
    assert {row for row, dropout in dropouts.items() if dropout} == {
        "vanilla",
        "vanilla-matched",
        "transnormer-t1+released",
        "transnormer-t2+released",
        "linear-matched+released",
    }


def test_the_rows_are_encoders_of_roberta_s_kind_and_the_released_ones_rotate() -> None:
    for row in PARAMETERS.rows():
        model = study.model(row, PARAMETERS)
        assert (model.kind, model.norm_placement, model.positions) == ("encoder", "post", "learned")
        assert not model.scale_embedding
        assert (model.rotary == "lrpe") == row.endswith("+released")


@pytest.mark.parametrize("row", list(paper.PUBLISHED))
def test_the_published_size_has_the_parameters_of_table_5_but_for_a_misprint(row: str) -> None:
    printed = 124.70 if row == "linear" else paper.published_parameters(row)
    assert round(count_parameters(published(row, "encoder")) / 1e6, 2) == printed


def test_the_paper_preset_trains_encoders_of_those_sizes() -> None:
    parameters = read(study.Parameters, resolve(PROJECT, "paper", "05_bidirectional_lm"))
    for row in paper.PUBLISHED:
        assert count_parameters(study.model(row, parameters)) == count_parameters(published(row, "encoder"))
    config = study.run("vanilla", 0, parameters)
    assert (config.data.batch_size, config.data.length, config.steps) == (512, 512, 50_000)
    assert (config.optimizer.eps, config.optimizer.schedule, config.optimizer.clip_norm) == (1e-6, "linear", 0.0)


def test_decoder_and_encoder_are_shown_with_their_differences() -> None:
    lines = {line["property"]: (line["notebook 04"], line["here"]) for line in paper.decoder_and_encoder()}
    assert lines["layers"] == (6, 12)
    assert lines["width inside the GLU"] == (1365, 2048)
    assert lines["positions"] == ("sinusoidal", "learned")
    assert lines["parameters (M)"] == (155.99, 124.67)


def test_perplexities_are_published_only_for_1_elu_and_transnormer() -> None:
    values = {row: paper.published_perplexity(row) for row in (*paper.PUBLISHED, "linear-matched")}
    assert {row: value for row, value in values.items() if value is not None} == {
        "linear": 4.98,
        "transnormer-t1": 3.82,
        "transnormer-t2": 3.81,
    }


def test_the_claims_have_the_published_values_of_the_tables() -> None:
    printed = {claim.id: claim.published for claim in claims.load() if claim.notebook == "05_bidirectional_lm"}
    for row in paper.PUBLISHED:
        short = row.removeprefix("transnormer-").removeprefix("transformer-")
        assert printed[f"table-5-{short}-parameters"] == paper.published_parameters(row)
    assert printed["blm-t1-perplexity"] == paper.published_perplexity("transnormer-t1")
    assert printed["blm-t2-perplexity"] == paper.published_perplexity("transnormer-t2")


def test_a_run_is_measured_by_input_by_side_and_at_its_waypoints(tmp_path: Path) -> None:
    parameters = replace(PARAMETERS, architectures=("linear",), controls=(), released=(), seeds=(0,))
    (fine,) = measured = results.measure(parameters, RunStore(tmp_path))
    assert fine.validation == fine.run.validation["bits_per_token"]
    assert fine.both > 0 < fine.left
    assert list(fine.by_input) == ["the mask", "another token", "the token itself"]
    assert list(row_losses.curves(measured).step) == [0, 1, 2]


def test_a_diverged_run_is_infinite_everywhere_and_left_out_of_the_tables() -> None:
    class Diverging:
        def get(self, config: Any, **_: Any) -> object:
            record = {"status": "diverged", "steps": 1, "validation": [{"step": 0, "bits_per_token": 8.0}]}
            return SimpleNamespace(record=record, config=config)

    parameters = replace(PARAMETERS, architectures=("linear",), controls=(), released=(), seeds=(0,))
    (lost,) = measured = results.measure(parameters, cast(RunStore, Diverging()))
    assert (lost.validation, lost.both, lost.left) == (math.inf, math.inf, math.inf)
    assert list(row_losses.curves(measured).bits) == [8.0, math.inf, math.inf]
    assert results.input_table(measured) == results.sides_table(measured) == []
    assert results.models_of(measured, 0) == {}


def test_the_table_counts_diverged_runs_and_ends_with_the_n_grams() -> None:
    linear, control, gram = results.table(
        [*fake("linear", [3.0, math.inf, 5.0]), *fake("linear-matched", [2.0])], {"2-gram": 3.5}
    )
    assert (linear["bits"], linear["range"], linear["perplexity"]) == (4.0, "3.000 to 5.000, 1 diverged", 16.0)
    assert (linear["Tables 1, 8"], control["Tables 1, 8"]) == (4.98, None)
    assert list(gram) == list(linear)
    assert gram["bits"] == 3.5


def test_the_right_side_is_worth_what_the_loss_falls_by() -> None:
    measured = fake("linear", [3.0, 3.2], sides=Sides(both=2.5, left=3.0))
    (line,) = results.sides_table(measured)
    assert line == {"model": "linear", "both sides": 2.5, "left side alone": 3.0, "worth of the right side": 0.5}
    said = results.conclusions(measured, BASELINES, FLOOR)
    assert "What the right side of a gap is worth, in bits: linear +0.500." in said


def test_the_conclusions_follow_the_losses() -> None:
    low, high = [2.0, 2.1, 2.2], [3.0, 3.2, 3.1]
    ahead = results.conclusions([*fake("transnormer-t2", low), *fake("linear", high)], BASELINES, FLOOR)
    behind = results.conclusions([*fake("transnormer-t2", high), *fake("linear", low)], BASELINES, FLOOR)
    assert "transnormer-t2 < linear, is that of Tables 1 and 8" in " ".join(ahead)
    assert "linear < transnormer-t2, is not that of Tables 1 and 8" in " ".join(behind)
    assert "Runs that do not beat the two-sided 3-gram (2.500): linear 3 of 3." in ahead
    assert any(line.startswith("transnormer-t2 against linear: higher loss; +1.000 bits") for line in behind)
    assert results.conclusions([], BASELINES, FLOOR) == []


def test_the_conclusions_count_the_runs_that_use_their_context() -> None:
    lines = results.conclusions([*fake("linear", [4.4, 4.6, math.inf]), *fake("vanilla", [4.0])], BASELINES, FLOOR)
    assert "Runs that do better than without context (4.500): linear 1 of 3, vanilla 1 of 1." in lines


def test_without_context_costs_less_than_the_1_gram_and_more_than_the_2_gram() -> None:
    parameters = replace(PARAMETERS, length=16, validation_windows=512)
    bits = results.baselines(parameters, language_models.corpus(parameters))
    assert list(bits) == [TWO_SIDED, "3-gram", "2-gram", results.NO_CONTEXT, "1-gram"]
    assert list(bits.values()) == sorted(bits.values())


def test_losses_come_in_the_order_of_the_seeds() -> None:
    assert by_row(fake("linear", [3.0, 4.0, 5.0])[::-1]) == {"linear": [3.0, 4.0, 5.0]}


def test_held_out_sequences_are_the_text_spread_evenly() -> None:
    corpus = language_models.corpus(PARAMETERS)
    tokens = corpus.tokens["validation"]
    found = results.held_out(corpus, 8, 3)
    windows = len(tokens) // 8
    assert [ids.tolist() for ids in found] == [tokens[8 * (n * windows // 3) :][:8].tolist() for n in range(3)]
    assert len(results.held_out(corpus, 8, windows + 5)) == windows


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", ["bytes", "bpe-512"])
def test_passages_begin_with_a_word_and_their_gaps_are_numbered_in_the_text(vocabulary: str) -> None:
    corpus = language_models.corpus(replace(PARAMETERS, vocabulary=vocabulary))
    for passage in results.passages(corpus, 3, 40, 4):
        assert corpus.vocabulary.decode(passage.ids[:1].numpy())[:1].isspace()
        assert passage.gaps == (5, 15, 25, 35)
        shown = results.with_gaps(corpus, passage)
        assert [f"⟨{number}⟩" in shown for number in range(1, 6)] == [True] * 4 + [False]
        assert shown.isprintable()


def test_a_passage_is_shown_as_it_is_but_for_its_gaps() -> None:
    corpus = language_models.corpus(PARAMETERS)
    passage = results.Passage(torch.tensor([*b" my\nhouse is"]), (1, 9))
    assert results.with_gaps(corpus, passage) == "⟨1⟩y⏎house⟨2⟩is"


def test_passages_that_do_not_fit_are_refused() -> None:
    corpus = language_models.corpus(PARAMETERS)
    for count, length, gaps in ((0, 8, 2), (2, 8, 0), (2, 8, 9), (1, len(corpus.tokens["validation"]), 2)):
        with pytest.raises(ValueError, match=f"count={count}, length={length}, gaps={gaps}: must be"):
            results.passages(corpus, count, length, gaps)


def test_a_piece_can_be_read_whatever_it_is() -> None:
    words = language_models.corpus(PARAMETERS).vocabulary
    unprintable = "\N{REPLACEMENT CHARACTER}"
    assert [results.piece(words, t) for t in (*b"a \n\x1b", 0xFF, words.mask_id)] == [
        "a", "␣", "⏎", unprintable, unprintable, "∅",
    ]  # fmt: skip


def test_the_guesses_are_listed_by_gap_below_the_text() -> None:
    corpus = language_models.corpus(PARAMETERS)
    passage = results.Passage(torch.tensor([*b" house"]), (1, 4))
    guess = Guess(tokens=(*b"h ",), probabilities=(0.5, 0.25), right=0.5, rank=1)
    text, model = results.guess_table(corpus, passage, {"linear": [guess, guess]})
    assert text == {"model": "the text", "⟨1⟩": "h", "⟨2⟩": "s"}
    assert model == {"model": "linear"} | dict.fromkeys(("⟨1⟩", "⟨2⟩"), "h 50, ␣ 25; right: 50.0 (place 1)")


def test_an_encoder_without_absolute_positions_reads_longer_texts_than_those_of_its_training() -> None:
    given = replace(PARAMETERS, positions="none", longest=4 * PARAMETERS.length)
    config = study.model("transnormer-t2", given)
    assert (config.positions, config.max_length) == ("none", 4 * PARAMETERS.length)
    assert study.model("transnormer-t2", PARAMETERS).max_length == PARAMETERS.length
    (run, *_) = study.runs(given)
    assert run.data.length == PARAMETERS.length
