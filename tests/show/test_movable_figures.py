"""Figures that a visitor can move: their data reach the page as text; what the script could not use is refused."""

import base64
import json
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")
from matplotlib import pyplot as plt

from transnormer_lib.show import figures
from transnormer_lib.show.movable import LARGEST, Movable, packed

HOSTILE = {"label": "\"'><script>alert(1)</script><img src=//evil.example onerror=x> & −"}


class Found(HTMLParser):
    """The tags of some HTML, and the attributes of its figure."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.figure: dict[str, str | None] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "figure":
            self.figure = dict(attrs)


def shown(moves: Movable | None) -> str:
    fig, _ = plt.subplots()
    html = figures.element(fig, caption="What it shows.", alt="Nothing.", name="demo", moves=moves).html
    plt.close(fig)
    return str(html)


def test_the_data_come_back_as_they_were_and_add_no_element() -> None:
    found = Found(shown(Movable("cost", HOSTILE, beside=True)))
    assert found.tags == ["figure", "img", "figcaption"]
    assert json.loads(str(found.figure["data-values"])) == HOSTILE
    assert found.figure["data-movable"] == "cost"
    assert "data-beside" in found.figure


def test_an_opening_tag_with_data_ends_where_a_page_looks_for_its_end() -> None:
    html = shown(Movable("cost", HOSTILE))
    assert html.index(">") == html.index("><img ")


def test_a_figure_that_does_not_move_has_no_data() -> None:
    assert set(Found(shown(None)).figure) == {"class", "id"}


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("bars", {}, "kind='bars'"),
        ("cost", {"value": float("nan")}, "JSON"),
        ("cost", {"text": "x" * LARGEST}, f"must not exceed {LARGEST:,}"),
    ],
    ids=["kind", "not a number", "too large"],
)
def test_what_the_script_could_not_draw_is_refused(kind: str, data: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Movable(kind, data)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "largest"), [("u1", 255), ("<u2", 65535)])
def test_packed_numbers_come_back_within_half_a_step(kind: str, largest: int) -> None:
    numbers = np.random.default_rng(0).random((3, 50))
    back = np.frombuffer(base64.b64decode(packed(numbers, kind)), kind) / largest  # type: ignore[arg-type]
    assert np.abs(back - numbers.ravel()).max() <= 0.5 / largest + 1e-12


@pytest.mark.parametrize("number", [-0.1, 1.1, float("nan")])
def test_a_number_outside_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        packed(np.array([0.5, number]), "u1")


def test_a_look_has_a_lighter_colour_for_dark_mode_and_the_dashes_of_the_still_picture() -> None:
    looks = {name: figures.look(name) for name in ("softmax", "linear", "transnormer-t2")}
    assert looks["softmax"]["colour"] == ["#000000", "#e8eaed"]
    assert looks["linear"]["dashes"] == [9.0, 3.6]
    assert looks["transnormer-t2"]["dashes"] == []
