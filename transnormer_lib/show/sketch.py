"""A small picture that a reader draws in JupyterLab, a pixel per click; in a report it stands as it is given."""

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.show.controls import HEADLESS

_WHITE = 255
_SIDE = "18px"  # of the square that stands for a pixel

Picture = NDArray[np.uint8]


def sketch(draw: Callable[[Picture], None], start: Picture) -> None:
    """Call ``draw`` with ``start`` [rows, columns], uint8; in JupyterLab again whenever a reader changes a pixel.

    A click turns a dark pixel white and a bright one black; "Clear" turns all black. Raises ValueError for a start of
    another shape or type.
    """
    if start.ndim != 2 or not start.size or start.dtype != np.uint8:
        raise ValueError(f"start: has shape {start.shape} and type {start.dtype}, must be [rows, columns] of uint8")
    if os.environ.get(HEADLESS):
        draw(start)
        return
    import ipywidgets
    from IPython.display import display

    picture, output = start.copy(), ipywidgets.Output()
    places = list(np.ndindex(picture.shape))
    names = [f"row {row + 1}, column {column + 1}" for row, column in places]
    square = ipywidgets.Layout(width=_SIDE, height=_SIDE, margin="0", padding="0")
    pixels = [ipywidgets.Button(tooltip=name, layout=square) for name in names]
    clear = ipywidgets.Button(description="Clear")

    def redraw() -> None:
        for place, pixel in zip(places, pixels, strict=True):
            level = picture[place]
            pixel.style.button_color = f"rgb({level}, {level}, {level})"
        with output:
            output.clear_output(wait=True)
            draw(picture.copy())

    def turn(place: tuple[int, ...]) -> None:
        picture[place] = 0 if picture[place] > _WHITE // 2 else _WHITE
        redraw()

    def wipe() -> None:
        picture[:] = 0
        redraw()

    for place, pixel in zip(places, pixels, strict=True):
        pixel.on_click(lambda _, place=place: turn(place))
    clear.on_click(lambda _: wipe())
    columns = ipywidgets.Layout(grid_template_columns=f"repeat({picture.shape[1]}, {_SIDE})", grid_gap="1px")
    display(ipywidgets.VBox([ipywidgets.GridBox(pixels, layout=columns), clear, output]))
    redraw()
