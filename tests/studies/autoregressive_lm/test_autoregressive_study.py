"""The runs behind Table 4, what is said about them, and the texts that the models write."""

import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tiny_study import ATTENTION, LANGUAGE_MODEL, NO_SEARCH, ROWS, differing, with_matched_controls

from transnormer_lib.models.architectures import published
from transnormer_lib.models.generation import Sampling, continued
from transnormer_lib.models.language_model import build_model, count_parameters
from transnormer_lib.studies.autoregressive_lm import published as paper
from transnormer_lib.studies.autoregressive_lm import results
from transnormer_lib.studies.autoregressive_lm import runs as study
from transnormer_lib.studies.autoregressive_lm.results import MeasuredDecoder
from transnormer_lib.studies.common import language_models
from transnormer_lib.studies.common.measured import by_row
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.common.published import number
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run

NO_FACTORS: dict[str, Any] = {"early": [], "late": [], "pairs": [], "rotations": ["none"]}
NO_OTHER_RUNS: dict[str, Any] = {
    "recall_tasks": [], "recall_length": 8, "recall_layers": 2, "recall_steps": 10, "recall_batch_size": 2,
    "recall_rates": {}, "recall_rates_tried": [], "growth_dims": [], "growth_rates": {},
}  # fmt: skip
WRITING = {"prompt_count": 2, "prompt_tokens": 4, "written_tokens": 8, "temperature": 0.8, "top_p": 0.95}
SMALL = {"task": "causal", "steps": 1}
VALUES = {**LANGUAGE_MODEL, **ROWS, **NO_FACTORS, **NO_SEARCH, **NO_OTHER_RUNS, **WRITING, **SMALL}
PARAMETERS = read(study.Parameters, VALUES)


def fake(row: str, losses: list[float]) -> list[MeasuredDecoder]:
    run = cast(Run, SimpleNamespace(record={"parameters": 7}))
    return [MeasuredDecoder(row, seed, bits, run, bits + 0.5) for seed, bits in enumerate(losses)]


def conclusions(bigram: float, **losses: list[float]) -> list[str]:
    return results.conclusions({row.replace("_", "-"): bits for row, bits in losses.items()}, bigram)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("prompt_count", 1_000_000_000, "must be at most 10000"),
        ("prompt_count", 0, "must be a whole number of at least 1"),
        ("prompt_tokens", 0, "must be a whole number of at least 1"),
        ("written_tokens", 1_000_000_000, "must be at most 10000"),
        ("top_p", 7.0, "must be in (0, 1]"),
        ("temperature", -1.0, "must be a finite number and not negative"),
    ],
)
def test_what_no_text_can_be_written_with_is_refused_before_anything_is_trained(
    name: str, value: float, rule: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}: {rule}")):
        read(study.Parameters, {**VALUES, name: value})


def test_every_row_is_trained_with_every_seed() -> None:
    named = [(config.name, config.seed) for config in study.runs(PARAMETERS)]
    assert len(set(named)) == len(named) == 9 * 2


@with_matched_controls
def test_a_control_differs_from_transnormer_only_in_attention(variant: str, control: str) -> None:
    models = study.models(PARAMETERS)
    assert differing(models[variant], models[control]) == ATTENTION


@pytest.mark.parametrize("variant", ["transnormer-t1", "transnormer-t2"])
def test_a_released_control_differs_only_in_attention_and_only_released_rows_rotate(variant: str) -> None:
    models = study.models(PARAMETERS)
    ours, control = models[language_models.released(variant)], models[language_models.released("linear-matched")]
    assert differing(ours, control) == ATTENTION
    assert ours.rotary == "lrpe"
    assert all(models[row].rotary == "none" for row in (*PARAMETERS.architectures, *PARAMETERS.controls))


def test_a_published_baseline_differs_from_transnormer_in_more_than_attention() -> None:
    models = study.models(PARAMETERS)
    assert {"norm", "feed_forward"} <= differing(models["linear"], models["transnormer-t1"])


@pytest.mark.parametrize("row", list(paper.PUBLISHED))
def test_the_published_size_has_the_parameters_of_table_4(row: str) -> None:
    printed = number("table_4", "params", method=paper.PUBLISHED[row])
    assert round(count_parameters(published(row, "decoder")) / 1e6, 2) == printed


def test_the_width_as_table_13_prints_it_does_not_give_them() -> None:
    assert round(count_parameters(published("transnormer-t2", "decoder", hidden=2048)) / 1e6, 2) == 162.29


def test_the_sentences_of_section_5_2_follow_from_table_4() -> None:
    recomputed = paper.section_5_2()
    assert recomputed["best"] == {"validation": ("FLASH-quad", 31.88), "test": ("LS", 32.59)}
    assert recomputed["excess"]["transnormer-t1"]["test"] == pytest.approx(31.35 / 31.01 - 1)


def test_losses_come_in_the_order_of_the_seeds() -> None:
    measured = fake("linear", [3.0, 4.0, 5.0])
    assert by_row(measured[::-1]) == {"linear": [3.0, 4.0, 5.0]}
    assert by_row(measured, "test") == {"linear": [3.5, 4.5, 5.5]}


def test_a_diverged_run_is_counted_and_left_out_of_the_mean() -> None:
    measured = [*fake("linear", [3.0, math.inf, 4.0]), *fake("vanilla", [math.inf] * 3)]
    linear, vanilla, gram = results.table(measured, {"2-gram": {"validation": 3.4, "test": 3.5}})
    assert (linear["validation"], linear["range"]) == (3.5, "3.000 to 4.000, 1 diverged")
    assert (vanilla["validation"], vanilla["range"]) == (math.inf, "3 diverged")
    assert list(gram) == list(linear)
    assert gram["Table 4"] is None


def test_the_table_has_published_values_for_published_rows_only() -> None:
    rows = results.table([*fake("linear", [3.0]), *fake("linear-matched", [3.0])], {})
    assert [row["Table 4"] for row in rows] == ["32.63 / 34.25", None]


def test_the_conclusions_follow_the_losses() -> None:
    low, high = [2.0, 2.1, 2.2], [3.0, 3.2, 3.1]
    ahead = conclusions(4.0, transnormer_t2=low, linear=high)
    behind = conclusions(4.0, transnormer_t2=high, linear=low)
    assert "transnormer-t2 < linear, is that of Table 4" in " ".join(ahead)
    assert "linear < transnormer-t2, is not that of Table 4" in " ".join(behind)
    assert any(line.startswith("transnormer-t2 against linear: lower loss; −1.000 bits") for line in ahead)
    assert any(line.startswith("transnormer-t2 against linear: higher loss; +1.000 bits") for line in behind)


def test_rows_within_the_noise_are_not_distinguishable() -> None:
    lines = conclusions(4.0, transnormer_t1=[3.0, 3.3, 3.1], linear=[3.2, 3.0, 3.25])
    assert any("not distinguishable" in line for line in lines)


def test_the_conclusions_say_which_runs_diverged_or_learned_little() -> None:
    lines = conclusions(4.0, transnormer_t1=[math.inf, 3.0], linear=[3.5, 4.5])
    assert "Runs that diverged: transnormer-t1 1 of 2." in lines
    assert "Runs that do not beat the bigram (4.000): linear 1 of 2." in lines
    assert any(line.startswith("transnormer-t1 against linear: no interval") for line in lines)


def test_nothing_is_concluded_about_rows_that_were_not_run() -> None:
    assert conclusions(4.0) == []
    assert conclusions(4.0, vanilla=[math.inf]) == ["Runs that diverged: vanilla 1 of 1."]


def test_a_run_is_measured_on_the_test_text_and_a_diverged_one_is_infinite(tmp_path: Path) -> None:
    parameters = replace(PARAMETERS, architectures=("linear",), controls=(), released=(), seeds=(0,))
    store = RunStore(tmp_path)
    (fine,) = results.measure(parameters, store)
    assert fine.validation == fine.run.validation["bits_per_token"]
    assert math.isfinite(fine.test)
    assert fine.test != fine.validation

    class Diverging:
        def get(self, config: object, **_: object) -> object:
            return SimpleNamespace(record={"status": "diverged", "steps": 1})

    (lost,) = results.measure(parameters, cast(RunStore, Diverging()))
    assert (lost.validation, lost.test) == (math.inf, math.inf)


def test_ngram_models_are_measured_on_both_splits_and_the_bigram_beats_the_unigram() -> None:
    grams = results.ngram_bits(language_models.corpus(PARAMETERS))
    assert list(grams) == ["1-gram", "2-gram", "3-gram"]
    assert all(grams["2-gram"][split] < grams["1-gram"][split] < 8.0 for split in ("validation", "test"))


def test_prompts_are_spread_over_the_text_and_followed_by_its_next_tokens() -> None:
    corpus = language_models.corpus(PARAMETERS)
    tokens = corpus.tokens["validation"]
    part = len(tokens) // 3
    for part_number, (prompt, following) in enumerate(results.prompts(corpus, 3, 5, 7)):
        start = part_number * part + part // 2
        assert prompt.tolist() == tokens[start : start + 5].tolist()
        assert following.tolist() == tokens[start + 5 : start + 12].tolist()


def test_prompts_that_the_text_cannot_give_are_refused() -> None:
    corpus = language_models.corpus(PARAMETERS)
    for count, length, following in ((0, 5, 5), (3, 0, 5), (3, 5, 0), (1, 5, len(corpus.tokens["validation"]))):
        with pytest.raises(ValueError, match=f"count={count}, length={length}, following={following}: must be"):
            results.prompts(corpus, count, length, following)


@pytest.mark.parametrize("tokens", [1, 4, 5, 23])
def test_a_text_has_the_length_asked_for_beyond_the_model_s_sequence(tokens: int) -> None:
    model = build_model(study.models(PARAMETERS)["transnormer-t2"], seed=0)
    starts = [torch.tensor([5, 6, 7, 8]), torch.tensor([1, 2, 3, 4])]
    texts = continued(model, starts, tokens, Sampling(), seed=3)
    assert [len(text) for text in texts] == [tokens, tokens]
    again = continued(model, starts, tokens, Sampling(), seed=3)
    assert all(torch.equal(a, b) for a, b in zip(texts, again, strict=True))


def test_a_text_that_goes_on_starts_from_its_own_end() -> None:
    model = build_model(study.models(PARAMETERS)["linear"], seed=0)
    greedy, start = Sampling(temperature=0.0), torch.tensor([5, 6, 7])
    room = PARAMETERS.length - len(start) + 1
    (whole,) = continued(model, [start], 2 * room, greedy, seed=0)
    (second,) = continued(model, [whole[room - 3 : room]], room, greedy, seed=0)
    assert torch.equal(whole[room:], second)


def test_a_text_is_shown_on_one_line_without_what_cannot_be_printed() -> None:
    corpus = language_models.corpus(PARAMETERS)
    shown = language_models.readable(corpus, torch.tensor([*b"a\n b\x1b\x00", 0xFF, *"\u202ec".encode()]))
    assert shown == "a ⏎ b\N{REPLACEMENT CHARACTER}" + "\N{REPLACEMENT CHARACTER}" * 3 + "c"
    assert shown.isprintable()
