"""The error rate of a transcriber, against the recursion that defines the edit distance."""

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transnormer_lib.training.metrics import error_rate

pytest.importorskip("rapidfuzz")
strings = st.lists(st.integers(1, 3), max_size=5)


def distance(found: tuple[int, ...], wanted: tuple[int, ...]) -> int:
    @lru_cache
    def between(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        changed = between(i - 1, j - 1) + (found[i - 1] != wanted[j - 1])
        return min(between(i - 1, j) + 1, between(i, j - 1) + 1, changed)

    return between(len(found), len(wanted))


@settings(max_examples=50, deadline=None)
@given(pairs=st.lists(st.tuples(strings, st.lists(st.integers(1, 3), min_size=1, max_size=5)), min_size=1, max_size=4))
def test_it_is_the_edit_distance_per_symbol_that_was_wanted(pairs: list[tuple[list[int], list[int]]]) -> None:
    found, wanted = zip(*pairs, strict=True)
    edits = sum(distance(tuple(f), tuple(w)) for f, w in pairs)
    assert error_rate(found, wanted) == edits / sum(map(len, wanted))


def test_nothing_wanted_is_refused() -> None:
    with pytest.raises(ValueError, match="wanted"):
        error_rate([[1]], [[]])
