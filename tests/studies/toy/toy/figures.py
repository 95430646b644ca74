"""The figure: the loss of every run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def losses(bits: Sequence[float]) -> "Figure":
    """Loss in bits per byte, a point per seed."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(4, 2))
    axes.plot(range(len(bits)), bits, "o")
    axes.set(xlabel="seed", ylabel="bits per byte")
    return figure
