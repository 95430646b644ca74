"""Rank and sparsity against numpy, and the bounds of ranks, which random matrices attain."""

import numpy as np
import pytest
import torch

from transnormer_lib.analysis import attention_rank as ranks


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("kind", ranks.ACTIVATIONS)
@pytest.mark.parametrize("s", [2, 7])
def test_the_rank_is_numpys(kind: str, s: int) -> None:
    matrix = ranks.ACTIVATIONS[kind](ranks.random_scores(40, s, 1.0, seeded()))
    assert ranks.rank(matrix) == np.linalg.matrix_rank(matrix.numpy())


def test_a_higher_tolerance_gives_no_higher_rank() -> None:
    matrices = ranks.random_scores(32, 8, 0.5, seeded()).softmax(-1)[None]
    found = ranks.ranks(matrices, [1e-12, 1e-6, 1e-2, 0.5])[:, 0].tolist()
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_random_scores_and_their_squares_attain_their_bounds() -> None:
    for line in ranks.bounds([(30, 1), (30, 4), (30, 40)], seeded()):
        assert line["scores"] == line["at most"]
        assert line["squares"] == line["squares at most"]
        assert line["softmax"] == 30 or line["s"] == 1


def test_a_matrix_of_zeros_has_rank_zero() -> None:
    assert ranks.rank(torch.zeros(4, 4)) == 0


def test_sparsity_counts_zeros_or_entries_below_a_share_of_their_rows_mean() -> None:
    matrix = torch.tensor([[0.0, 0.0, 1.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    assert float(ranks.sparsity(matrix)) == 2 / 8
    assert float(ranks.sparsity(matrix, 1.0)) == 7 / 8


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(ValueError, match="tolerances=-1"):
        ranks.ranks(torch.eye(2), [-1.0])
