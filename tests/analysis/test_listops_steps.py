"""A ListOps tree taken apart gives the generator's answer, and what does not fit together is refused."""

import numpy as np
import pytest

from transnormer_lib.analysis import listops_steps
from transnormer_lib.data import listops

SMALL = {"min_length": 14, "max_length": 40, "max_depth": 4, "max_args": 4, "workers": 1}


def test_the_root_has_the_generator_s_answer() -> None:
    trees = listops.generate(50, 3, **SMALL)
    for index, label in enumerate(trees.labels):
        tokens = trees.sequence(index)
        assert listops_steps.steps(tokens)[0].value == label
        assert listops_steps.reductions(tokens)[-1] == (str(label), "the answer")


def test_a_tree_is_taken_apart_node_by_node() -> None:
    nodes = listops_steps.steps(listops.encode("[MAX 2 [SM 7 8 ] 1 ]"))
    told = [(n.operator, n.value, n.parent, n.depth, n.first, n.last) for n in nodes]
    assert told == [
        ("MAX", 5, None, 0, 0, 7),
        ("", 2, 0, 1, 1, 1),
        ("SM", 5, 0, 1, 2, 5),
        ("", 7, 2, 2, 3, 3),
        ("", 8, 2, 2, 4, 4),
        ("", 1, 0, 1, 6, 6),
    ]
    assert nodes[0].arguments == (2, 5, 1)
    assert nodes[2].place == (nodes[3].place + nodes[4].place) / 2


def test_the_list_that_closes_first_is_replaced_first() -> None:
    lines = listops_steps.reductions(listops.encode("[MIN [MED 1 4 ] [MAX 3 0 ] ]"))
    assert [text for text, _ in lines] == ["[MIN [MED 1 4 ] [MAX 3 0 ] ]", "[MIN 2 [MAX 3 0 ] ]", "[MIN 2 3 ]", "2"]
    assert lines[0][1] == "[MED 1 4 ] = 2"


@pytest.mark.parametrize(
    ("source", "fault"), [("[MAX 1 2", "1 lists are not closed"), ("1 2", "1 stand after the end")]
)
def test_brackets_that_do_not_fit_are_refused(source: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        listops_steps.steps(listops.encode(source))


def test_an_operator_without_arguments_or_name_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold at least one digit"):
        listops_steps.result("MAX", ())
    with pytest.raises(ValueError, match="operator='SUM': must be one of MIN, MAX, MED, SM"):
        listops_steps.result("SUM", (1, 2))


def test_a_digit_alone_is_a_tree() -> None:
    (only,) = listops_steps.steps(np.array([listops.VOCABULARY.index("7")]))
    assert (only.value, only.parent, only.operator) == (7, None, "")
