"""The register of the GAU-based model's paper: every check confirms its entry, and every check can fail."""

from typing import Any

import pytest
import torch
from falsified import Mutation, prints, puts

from transnormer_lib import attention
from transnormer_lib.analysis import attention_entropy, attention_rank
from transnormer_lib.papers import catalogue, discrepancies, settings
from transnormer_lib.studies.common.register import find
from transnormer_lib.studies.gau_details import register, sizes

ENTRIES = discrepancies.by_id("gau")


def says(source: str, name: str, value: Any) -> Mutation:
    """A different value of one setting at one source."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        real = settings.said

        def said(paper: str, at: str, model: Any, asked: str) -> Any:
            return value if (at, asked) == (source, name) else real(paper, at, model, asked)

        patch.setattr(settings, "said", said)

    return mutate


def builds(**change: Any) -> Mutation:
    """Units with other options than a check asks for."""
    real = attention.build
    return lambda patch: patch.setattr(attention, "build", lambda name, config: real(name, {**config, **change}))


def kinds(**change: Any) -> Mutation:
    return puts(attention_rank, "ACTIVATIONS", {**attention_rank.ACTIVATIONS, **change})


MUTATIONS: dict[str, Mutation] = {
    "gau-parameters": prints("table_4", "params", 96_518, model="GAU"),
    "roformer-parameters": prints("table_4", "params", 94_756, model="RoFormerV2"),
    "roformer-v1-vocabulary": puts(sizes, "vocabulary", lambda _: 50_000),
    "gau-scale-of-the-scores": says("Section 4.1", "scale", "s"),
    "gau-norm-without-a-mean": puts(register, "norm_with_variance", register.rms_norm),
    "gau-rope-is-no-summand": says("Section 4.1", "rope", ["query", "key"]),
    "gau-offset": prints("table_4", "params", 96_525, model="GAU"),
    "gau-values-in-the-matrix": builds(normaliser="relu2-n"),
    "gau-s-squared-between-two-that-converge": prints("table_1", "accuracy", 21.0, factor="s²"),
    "gau-standard-transformer-has-no-factor-n": prints("table_1", "accuracy", 21.0, factor="n"),
    "gau-scaled-rows": builds(normaliser="relu2-rows"),
    "gau-two-scales-of-one-row": builds(scale=True),
    "gau-entropy-in-proportion-to-n": puts(
        attention_entropy, "by_length", lambda _, lengths, *__, **___: {n: n / 8 for n in lengths}
    ),
    "gau-softmax-plus-at-512": prints("table_2", "accuracy", 40.86, activation="softmax_plus", lengths="fixed"),
    "gau-sparsity-of-a-softmax": prints("table_3", "sparsity", 0.0, matrix="softmax"),
    "gau-sparsity-is-not-rank": kinds(**{"ReLU²": lambda a: a}),
    "gau-length-or-fit": prints("table_2", "accuracy", 40.0, activation="ReLU²", lengths="fixed"),
    "gau-average-on-clue": says("Abstract", "clue", 75.02),
    "gau-average-rounded": prints("table_5", "avg", 75.03, model="GAU"),
    "gau-relu2-is-not-faster": prints("table_2", "seconds", 20_000, activation="ReLU²", lengths="fixed"),
    "gau-plus-helps-clue-not-mlm": prints("table_2", "accuracy", 42.0, activation="softmax_plus", lengths="varied"),
    "gau-card-of-table-4": prints("table_4", "memory_2048", 15_000, model="RoFormerV2"),
    "gau-passages-beyond-512": prints("table_6", "length", 1024, task="CMRC"),
}  # fmt: skip


def test_every_entry_has_a_check_and_falsified_evidence() -> None:
    assert set(register.names()) == set(ENTRIES) == set(MUTATIONS)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_check_confirms_its_entry(entry: str) -> None:
    found = register.run(entry)
    assert found.confirmed, {name: holds for name, holds in found.shows.items() if not holds}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_check_fails_on_falsified_evidence(entry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[entry](monkeypatch)
    assert not register.run(entry).confirmed


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_place_is_found_in_the_code(entry: str) -> None:
    for name in ENTRIES[entry].code:
        assert find(name).source


def test_subjects_are_in_the_order_of_the_register_and_every_file_is_one() -> None:
    subjects = list(dict.fromkeys(entry.subject for entry in ENTRIES.values()))
    assert subjects == catalogue.papers()["gau"].subjects


def test_a_unit_with_normalised_rows_of_values_is_no_distribution() -> None:
    block, x = register.unit()
    assert torch.allclose(block.weights(x).sum(-1), torch.ones(1, 1, 16, dtype=torch.float64))
