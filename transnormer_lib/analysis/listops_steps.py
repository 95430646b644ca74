"""A ListOps tree node by node: what has to be computed, in which order, and how far apart its parts stand."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.data import listops


@dataclass(frozen=True)
class Step:
    """A node of a tree."""

    number: int  # in the order in which nodes open; the root is 0
    parent: int | None
    depth: int  # of the root: 0
    operator: str  # MIN, MAX, MED or SM; "" for a digit
    value: int
    place: float  # across, digits at 0, 1, 2, ...; an operator over the middle of its arguments
    first: int  # its first and last token in the sequence
    last: int
    arguments: tuple[int, ...]  # values of its children


def steps(tokens: NDArray[Any]) -> list[Step]:
    """Every node of a tree in tokens, a parent before its children. Raises ValueError where the brackets do not fit."""
    words = [listops.VOCABULARY[token] for token in tokens]
    found: dict[int, Step] = {}
    opened: list[tuple[int, str, int, list[int]]] = []  # number, operator, first token, children
    count = digits = 0
    for at, word in enumerate(words):
        if at and not opened:
            raise ValueError(f"tokens: {len(words) - at} stand after the end of the tree")
        if word.startswith("["):
            if opened:
                opened[-1][3].append(count)
            opened.append((count, word[1:], at, []))
            count += 1
            continue
        if word == "]":
            number, operator, first, children = opened.pop()
            values = tuple(found[child].value for child in children)
            value, place = result(operator, values), (found[children[0]].place + found[children[-1]].place) / 2
        else:
            number, operator, first, values = count, "", at, ()
            value, place = int(word), float(digits)
            count, digits = count + 1, digits + 1
            if opened:
                opened[-1][3].append(number)
        parent = opened[-1][0] if opened else None
        found[number] = Step(number, parent, len(opened), operator, value, place, first, at, values)
    if opened:
        raise ValueError(f"tokens: {len(opened)} lists are not closed")
    return [found[number] for number in sorted(found)]


def result(operator: str, values: tuple[int, ...]) -> int:
    """MIN, MAX, MED (rounded down) or SM (modulo 10) of digits. Raises ValueError for another name or no digit."""
    if not values:
        raise ValueError(f"values={values!r}: must hold at least one digit")
    if operator == "MIN":
        return min(values)
    if operator == "MAX":
        return max(values)
    if operator == "MED":
        return int(np.median(values))
    if operator == "SM":
        return sum(values) % 10
    raise ValueError(f"operator={operator!r}: must be one of {', '.join(listops.OPERATORS)}")


def reductions(tokens: NDArray[Any]) -> list[tuple[str, str]]:
    """The tree as text before each step, innermost list first from the left, and the list that the step replaces."""
    words, lines = listops.text(tokens).split(), []
    while "]" in words:
        end = words.index("]")
        start = max(at for at in range(end) if words[at].startswith("["))
        values = tuple(int(word) for word in words[start + 1 : end])
        value = result(words[start][1:], values)
        lines.append((" ".join(words), " ".join(words[start : end + 1]) + f" = {value}"))
        words[start : end + 1] = [str(value)]
    return [*lines, (words[0], "the answer")]
