"""One row of scores: closed forms equal to automatic differentiation, and the bounds that the figure draws."""

import math
from collections.abc import Callable
from itertools import pairwise

import matplotlib as mpl
import pytest
import torch
from torch import Tensor

mpl.use("agg")
from matplotlib import pyplot as plt

from transnormer_lib.studies.gradient_theory import row_of_scores

RELATIVE = torch.tensor([0.9, 0.2, 0.5, 0.01], dtype=torch.float64)
EPS = 1e-8


def rms(s: Tensor) -> Tensor:
    return s / (s.square().mean() + EPS).sqrt()


@pytest.mark.parametrize(
    ("name", "form"),
    [("softmax", lambda s: s.softmax(0)), ("linear", lambda s: s / s.sum()), ("norm", rms)],
    ids=row_of_scores.NAMES,
)
@pytest.mark.parametrize("size", [1e-6, 1e-2, 10.0])
def test_weights_and_largest_derivative_are_those_of_the_definition(
    name: str, form: Callable[[Tensor], Tensor], size: float
) -> None:
    s = size * RELATIVE
    found = row_of_scores.rows(s, EPS)[name]
    assert torch.allclose(found.weights, form(s))
    exact = float(torch.autograd.functional.jacobian(form, s).abs().max())
    assert found.derivative == pytest.approx(exact, rel=1e-9)


def test_as_scores_shrink_only_the_scaled_derivative_is_unbounded() -> None:
    at = [row_of_scores.rows(10.0**-k * RELATIVE, EPS) for k in range(10)]
    assert all(found["softmax"].derivative <= 0.25 for found in at)
    assert all(found["norm"].derivative <= 1 / math.sqrt(EPS) for found in at)
    for larger, smaller in pairwise(at):
        assert smaller["linear"].derivative == pytest.approx(10 * larger["linear"].derivative)


def test_the_picture_and_the_data_of_the_script_are_of_the_same_row() -> None:
    data = row_of_scores.movable(RELATIVE.tolist(), -2, EPS).data
    assert (data["scores"], data["size"], data["eps"]) == ([0.9, 0.2, 0.5, 0.01], -2, -8)
    figure = row_of_scores.figure(RELATIVE, -2, EPS)
    left, right = figure.axes
    shown = row_of_scores.rows(0.01 * RELATIVE, EPS)
    drawn = {line.get_label(): line for line in right.lines}
    for place, (name, row) in enumerate(shown.items()):
        assert left.lines[place].get_ydata() == pytest.approx(row.weights.numpy())
        assert data["styles"][name]["label"] in drawn
    plt.close(figure)
