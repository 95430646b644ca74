"""What a notebook displays is HTML: elements stay elements, and only text is escaped."""

from collections.abc import Callable
from html.parser import HTMLParser

import matplotlib
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from transnormer_lib.show import cards, figures, tables


def _figure() -> None:
    fig, ax = plt.subplots()
    ax.plot([0, 1])
    figures.show(fig, caption="A line.", alt="A line.", name="line")


SHOWN: dict[str, tuple[Callable[[], object], set[str]]] = {
    "a figure": (_figure, {"figure", "img", "figcaption"}),
    "a table": (lambda: tables.show_table([{"a": 1, "b": 2}], caption="One row."), {"table", "caption", "td"}),
    "a list": (lambda: tables.show_list(["One sentence."]), {"ul", "li"}),
}


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)


@pytest.mark.parametrize("what", SHOWN)
def test_elements_are_displayed_as_elements(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: displayed.append(data))
    show, tags = SHOWN[what]
    show()
    (one,) = displayed
    assert tags <= _Tags(one["text/html"]).seen
    assert "&lt;" not in one["text/html"]


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((0.1, 0.25), "ahead by 0.1 to 0.25"),
        ((-0.25, -0.1), "behind by 0.1 to 0.25"),
        ((-0.1, 0.25), "from 0.1 behind to 0.25 ahead"),
    ],
    ids=["ahead", "behind", "both"],
)
def test_an_interval_says_on_which_side_it_lies(interval: tuple[float, float], words: str) -> None:
    assert cards._lead(*interval) == words
