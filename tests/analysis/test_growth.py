"""Growth along the path to zero: the exponents that the kernels' slopes near zero dictate."""

import pytest
import torch

from transnormer_lib.analysis.bounds_norm import sharp_constant
from transnormer_lib.analysis.growth import growth
from transnormer_lib.analysis.kernel_maps import KERNELS

DECADES = [10.0**-k for k in range(11)]


def follow(name: str, seed: int = 0, **options):
    generator = torch.Generator().manual_seed(seed)
    return growth(KERNELS[name], DECADES, n=6, d=4, generator=generator, **options)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "curve", "slope"),
    [
        *[(name, curve, -1.0) for name in sorted(KERNELS) for curve in ("s", "p by s")],
        *[("1+elu", curve, 0.0) for curve in "qk"],
        *[(name, curve, -0.5) for name in ("elu", "relu") for curve in "qk"],
    ],
)
def test_the_exponent_of_growth(name, curve, slope, seed):
    assert follow(name, seed).slope(curve) == pytest.approx(slope, abs=1e-6)


def test_with_1_plus_elu_nothing_above_one_half_reaches_q_or_k_over_ten_decades():
    found = follow("1+elu")
    assert float(found.curves["s"].max()) > 1e8
    assert max(float(found.curves[curve].max()) for curve in "qk") <= 0.5


@pytest.mark.parametrize("norm", ["rms", "rms-outside"])
def test_norm_attention_saturates_below_its_sharp_constant(norm):
    found = follow("1+elu", norm=norm, norm_eps=1e-6)
    constant = sharp_constant(norm, 1e-6)
    assert float(found.curves["s"].max()) <= constant
    assert float(found.curves["s"][-1]) > 0.05 * constant
    assert float(found.curves["s"][-1] / found.curves["s"][-2]) == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize("epsilons", [[1.0], [1.0, 0.0]], ids=["one-value", "a-zero"])
def test_a_path_without_two_positive_points_is_refused(epsilons):
    with pytest.raises(ValueError, match="at least two positive"):
        growth(KERNELS["relu"], epsilons, n=2, d=2, generator=torch.Generator())


def test_an_unknown_curve_is_refused():
    with pytest.raises(ValueError, match="curve='v'"):
        follow("relu").slope("v")
