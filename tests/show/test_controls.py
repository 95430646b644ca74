"""Sliders in JupyterLab: drawn once in a report, drawn again for every change, and a clear error for a wrong choice."""

from typing import Any

import pytest

from transnormer_lib.show import controls
from transnormer_lib.show.controls import Slider, explore


class Drawn:
    """Notes what it was asked to draw."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, size: float, kernel: str, text: str) -> None:
        self.calls.append({"size": size, "kernel": kernel, "text": text})


CHOICES = {"size": Slider(-2, -6, 1), "kernel": ["linear", "softmax"], "text": "The "}
FIRST = {"size": -2, "kernel": "linear", "text": "The "}


def test_in_a_report_a_figure_is_drawn_once_with_the_first_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(controls.HEADLESS, "1")
    drawn = Drawn()
    explore(drawn, **CHOICES)
    assert drawn.calls == [FIRST]


def test_every_change_draws_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    monkeypatch.delenv(controls.HEADLESS, raising=False)
    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    drawn = Drawn()
    explore(drawn, **CHOICES)
    assert drawn.calls == [FIRST]
    size, kernel, text, _ = shown[0].children
    size.value = 1
    kernel.value = "softmax"
    text.value = "Once"
    assert drawn.calls[-1] == {"size": 1, "kernel": "softmax", "text": "Once"}
    assert len(drawn.calls) == 4


@pytest.mark.parametrize("slider", [Slider(1, 0, 4), Slider(0.5, 0.0, 1.0, 0.1)], ids=["whole", "real"])
def test_a_slider_of_whole_numbers_gives_whole_numbers(slider: Slider, monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    monkeypatch.delenv(controls.HEADLESS, raising=False)
    monkeypatch.setattr(IPython.display, "display", lambda *_: None)
    found: list[Any] = []
    explore(lambda size: found.append(size), size=slider)
    assert found == [slider.start]
    assert type(found[0]) is type(slider.start)


@pytest.mark.parametrize("choice", [[], "", 3, None, (1, 2)], ids=repr)
def test_a_choice_that_is_none_is_refused(choice: Any) -> None:
    with pytest.raises(ValueError, match=r"size=.*: must be a Slider, a list of values or a text"):
        explore(lambda size: None, size=choice)


@pytest.mark.parametrize("numbers", [(2, 3, 4), (5, 3, 4), (3, 3, 4, 0)], ids=str)
def test_a_slider_outside_its_own_range_is_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="needs low <= start <= high"):
        Slider(*numbers)
