"""A figure's drawing, in which letters are placed more briefly, looks as matplotlib wrote it."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.show import figures
from transnormer_lib.show.data_uri import data_uri

pytestmark = pytest.mark.browser


def _mechanisms() -> Figure:
    fig, panels = plt.subplots(1, 2)
    for number, style in enumerate(figures.STYLE.values()):
        panels[0].plot([1, 10, 100], [1 + number, 20, 3 + number], **style.line())
    panels[0].set(xscale="log", yscale="log", xlabel="length $n$", title="Score, by −1 and Ä")
    panels[0].legend(fontsize=5, ncols=2)
    panels[1].text(0.1, 0.5, r"$\partial p_{ij}/\partial s_{ik} \leq \frac{1}{4}$", rotation=30)
    panels[1].fill_between([0, 1], [0, 1], [1, 2], alpha=0.3)
    return fig


def _map() -> Figure:
    fig, ax = plt.subplots()
    fig.colorbar(ax.imshow(np.arange(64).reshape(8, 8), cmap="viridis"))
    ax.annotate("here", (3, 3), (6, 1), arrowprops={"arrowstyle": "->"})
    return fig


@pytest.fixture(autouse=True)
def house_theme() -> Iterator[None]:
    with mpl.rc_context():
        figures.theme()
        yield
    plt.close("all")


@pytest.mark.parametrize("draw", [_mechanisms, _map])
def test_a_short_drawing_looks_as_the_whole_one(draw: Callable[[], Figure], browser: Any) -> None:
    fig = draw()
    whole = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "transnormer"}):
        fig.savefig(whole, format="svg", bbox_inches="tight")
    short = figures.adaptive_svg(fig)
    assert len(short) < 0.8 * len(whole.getvalue())
    seen = [_photograph(browser, svg) for svg in (whole.getvalue(), short)]
    difference = np.abs(seen[0] - seen[1])
    assert seen[0].std() > 10, "nothing is drawn"
    # Of 255: a line that moved by a hundredth of a point changes the softness of its edge, a lost letter much more.
    assert (difference > 64).mean() < 5e-5
    assert difference.mean() < 0.5


def _photograph(browser: Any, svg: str) -> np.ndarray:
    page = browser.new_page(device_scale_factor=2)
    page.set_content(f'<img src="{data_uri("image/svg+xml", svg)}">')
    picture = Image.open(io.BytesIO(page.locator("img").screenshot()))
    page.close()
    return np.asarray(picture.convert("RGB"), dtype=float)
