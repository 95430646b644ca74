"""A picture drawn by hand in JupyterLab: shown once in a report, again for every click, and what is none is refused."""

from typing import Any

import numpy as np
import pytest

from transnormer_lib.show import controls
from transnormer_lib.show.sketch import sketch

START = np.array([[0, 200, 90], [255, 0, 0]], dtype=np.uint8)


def test_in_a_report_the_given_picture_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(controls.HEADLESS, "1")
    drawn: list[Any] = []
    sketch(drawn.append, START)
    assert [one.tolist() for one in drawn] == [START.tolist()]


def test_a_click_turns_one_pixel_and_draws_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    monkeypatch.delenv(controls.HEADLESS, raising=False)
    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    drawn: list[Any] = []
    sketch(drawn.append, START)
    grid, clear, _ = shown[0].children
    levels = [pixel.style.button_color for pixel in grid.children]
    assert levels[:3] == ["rgb(0, 0, 0)", "rgb(200, 200, 200)", "rgb(90, 90, 90)"]
    assert [pixel.tooltip for pixel in grid.children][4] == "row 2, column 2"
    for number in (1, 2, 4):  # bright, dark, black
        grid.children[number].click()
    assert drawn[-1].tolist() == [[0, 0, 255], [255, 255, 0]]
    assert [pixel.style.button_color for pixel in grid.children][4] == "rgb(255, 255, 255)"
    clear.click()
    assert not drawn[-1].any()
    assert len(drawn) == 5
    assert START.any(), "the given picture was drawn on"


@pytest.mark.parametrize(
    "start", [np.zeros(4, np.uint8), np.zeros((2, 2)), np.zeros((0, 3), np.uint8)], ids=["line", "float", "empty"]
)
def test_what_is_no_picture_is_refused(start: Any) -> None:
    with pytest.raises(ValueError, match=r"start: has shape .*, must be \[rows, columns\] of uint8"):
        sketch(lambda picture: None, start)
