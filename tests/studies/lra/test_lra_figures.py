"""The figures of the Long Range Arena show what they are given: every node, both labels."""

import numpy as np
import pytest

from transnormer_lib.analysis import listops_steps
from transnormer_lib.data import listops, pathfinder
from transnormer_lib.studies.lra import figures as draw


def test_the_highest_average_is_on_top_and_ours_are_marked_by_shape_too() -> None:
    (axes,) = draw.published_averages({"A": 50.0, "B": 60.0}, ["B"]).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["B", "A"]
    assert [line.get_marker() for line in axes.lines] == ["v", "o"]


def test_a_tree_shows_the_value_of_every_node() -> None:
    nodes = listops_steps.steps(listops.encode("[MAX 2 [SM 7 8 ] 1 ]"))
    (axes,) = draw.tree(nodes).axes
    assert [text.get_text() for text in axes.texts] == ["MAX = 5", "2", "SM = 5", "7", "8", "1"]
    assert len(axes.lines) == len(nodes) - 1


def test_pathfinder_shows_both_labels_and_refuses_more_than_there_are() -> None:
    scenes = pathfinder.scenes(16, 5)
    titles = [axes.get_title() for axes in draw.pathfinder(scenes, 2).axes if axes.get_title()]
    assert titles == ["label 1: one snake"] * 2 + ["label 0: two snakes"] * 2
    with pytest.raises(ValueError, match="count=17: the scenes have fewer images of one label"):
        draw.pathfinder(scenes, 17)


def test_an_image_and_its_line_have_the_same_values() -> None:
    image = np.arange(16).reshape(4, 4)
    _, right = draw.image_as_sequence(image, 2, 4).axes
    assert right.lines[0].get_ydata().tolist() == list(range(16))
    assert right.lines[1].get_ydata().tolist() == [8, 9, 10, 11]
