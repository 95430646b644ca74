"""Sliders and fields that redraw a figure in JupyterLab; in a report the figure stands as it is first drawn."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEADLESS = "TRANSNORMER_HEADLESS"  # set where nobody can move a slider: in the report's kernel


@dataclass(frozen=True)
class Slider:
    """A number from ``low`` to ``high`` in steps; whole numbers if all four are."""

    start: float
    low: float
    high: float
    step: float = 1

    def __post_init__(self) -> None:
        if not self.low <= self.start <= self.high or self.step <= 0:
            raise ValueError(f"{self}: needs low <= start <= high and a step above zero")


def explore(draw: Callable[..., None], **choices: Slider | list[Any] | str) -> None:
    """Call ``draw`` with the first value of every choice; in JupyterLab again whenever a reader changes one.

    A choice is a :class:`Slider`, a list of values of which the first is chosen, or a text that can be edited. Raises
    ValueError for anything else and for an empty list.
    """
    for name, choice in choices.items():
        if not choice or not isinstance(choice, Slider | list | str):
            raise ValueError(f"{name}={choice!r}: must be a Slider, a list of values or a text")
    if os.environ.get(HEADLESS):
        draw(**{name: _first(choice) for name, choice in choices.items()})
        return
    import ipywidgets
    from IPython.display import display

    fields = {name: _field(name, choice) for name, choice in choices.items()}
    display(ipywidgets.VBox([*fields.values(), ipywidgets.interactive_output(draw, fields)]))


def _first(choice: Slider | list[Any] | str) -> Any:
    return choice.start if isinstance(choice, Slider) else choice[0] if isinstance(choice, list) else choice


def _field(name: str, choice: Slider | list[Any] | str) -> Any:
    import ipywidgets

    shared = {"description": name.replace("_", " "), "style": {"description_width": "8em"}, "layout": {"width": "32em"}}
    if isinstance(choice, str):
        return ipywidgets.Text(choice, continuous_update=False, **shared)
    if isinstance(choice, list):
        return ipywidgets.Dropdown(options=choice, **shared)
    numbers = {"value": choice.start, "min": choice.low, "max": choice.high, "step": choice.step}
    whole = all(isinstance(number, int) for number in numbers.values())
    slider = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
    return slider(continuous_update=False, **numbers, **shared)
