"""Sizes of Table 13 from the counts of Tables 4 and 5: the size that fits, or None."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import Kind
from transnormer_lib.models.language_model import count_parameters
from transnormer_lib.papers import settings
from transnormer_lib.studies.what_the_paper_leaves_out import table_13

SIZES: dict[str, Callable[[], int | None]] = {
    "width": lambda: table_13.width("decoder"),
    "layers": lambda: table_13.layers("encoder", "vanilla", "Vanilla"),
    "FLASH layers": lambda: table_13.layers("decoder", "flash", "FLASH"),
    "GLU width": lambda: table_13.glu_width("decoder"),
    "vocabulary": lambda: table_13.vocabulary("decoder"),
}


def prints(patch: pytest.MonkeyPatch, change: Callable[[float], float]) -> None:
    """Changed counts in Tables 4 and 5."""
    real = table_13.printed
    patch.setattr(table_13, "printed", lambda kind, method: change(real(kind, method)))


def _always(millions: float, *_: object) -> float:
    return millions


def test_sizes_are_found_without_what_table_13_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "said", lambda *_: pytest.fail("looked at Table 13"))
    assert [table_13.glu_width(kind) for kind in table_13.MODELS] == [1365, 2048]
    assert [table_13.width(kind) for kind in table_13.MODELS] == [512, 768]
    assert [table_13.layers(kind, "vanilla", "Vanilla") for kind in table_13.MODELS] == [6, 12]
    assert [table_13.layers(kind, "flash", "FLASH") for kind in table_13.MODELS] == [10, 24]
    assert table_13.matching_flash_layers("encoder") == 23


@pytest.mark.parametrize("size", ["width", "layers", "FLASH layers", "GLU width"])
@pytest.mark.parametrize("off", [0.3, -0.3])
def test_a_count_between_two_sizes_has_no_size(size: str, off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if size == "GLU width":
        off /= 50  # one unit adds 0.009 M; a step of the other sizes adds at least 0.7 M
    prints(monkeypatch, lambda millions: round(millions + off, 3))
    assert SIZES[size]() is None


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("millions", [0.01, 400.0])
def test_a_count_out_of_reach_has_no_size(size: str, millions: float, monkeypatch: pytest.MonkeyPatch) -> None:
    prints(monkeypatch, lambda _: millions + 0.001)  # not a count of two decimals
    assert SIZES[size]() is None


def test_every_width_that_the_heads_divide_can_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: tuple[Kind, ...] = ("decoder", "encoder")
    for kind, dim in zip(kinds, (520, 780), strict=True):
        count = count_parameters(replace(published("vanilla", kind), dim=dim, hidden=4 * dim))
        with monkeypatch.context() as patch:
            patch.setattr(table_13, "printed", partial(_always, round(count / 1e6, 2)))
            assert table_13.width(kind) == dim


@pytest.mark.parametrize(
    ("ours", "theirs", "fit"), [(124.695129, 124.7, True), (155.994, 156.0, False), (155.996, 156.0, True)]
)
def test_a_count_fits_if_it_rounds_to_the_printed_one(ours: float, theirs: float, fit: bool) -> None:
    assert table_13.fits(ours, theirs) is fit


@pytest.mark.parametrize(("entries", "kind"), [(267_744, "words"), (50_265, "BPE"), (50_000, "unknown")])
def test_a_vocabulary_is_recognised_by_its_size(entries: int, kind: str) -> None:
    assert table_13.tokenizer(entries) == kind


def test_a_missing_size_is_shown_in_words() -> None:
    assert [table_13.found_text(None), table_13.found_text(267_744)] == ["no value fits", "267,744"]
