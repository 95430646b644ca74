"""Checks on ListOps: what brackets and seeds are worth, and how far shortcuts get."""

import math
from collections import defaultdict
from itertools import product

from transnormer_lib.analysis.listops_steps import steps
from transnormer_lib.data import listops
from transnormer_lib.studies.lra import published as arena
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check

_TREES = 4000  # on which the rules of thumb are fitted, and as many on which they are measured


@check("listops-unseeded")
def unseeded() -> Found:
    first, again, other = (listops.generate(64, seed, workers=1) for seed in (1, 1, 2))
    same = bool(first.tokens.shape == again.tokens.shape and (first.tokens == again.tokens).all())
    share = float((first.labels == other.labels).mean())
    examples, accuracy = 2000, 0.4
    error = 100 * math.sqrt(accuracy * (1 - accuracy) / examples)
    scores = sorted((arena.table_6(row, "listops") for row in arena.PUBLISHED), reverse=True)
    return Found(
        {
            "answers that two seeds have in common": share,
            "standard error of 40 % on 2,000 trees, in points": error,
            "best and second of Table 6": scores[:2],
        },
        {
            "one seed gives the same trees": same,
            "another seed gives others": share < 0.5,
            "the lead in Table 6 is within two standard errors": scores[0] - scores[1] < 2 * error,
        },
    )


@check("listops-brackets-dropped")
def brackets_dropped() -> Found:
    values: dict[tuple[int, ...], set[int]] = defaultdict(set)
    example: dict[tuple[int, ...], dict[int, str]] = defaultdict(dict)
    trees = _small_trees()
    for tree in trees:
        read = tuple(int(token) for token in released_forms.read_from_file(tree))
        value = steps(listops.encode(tree))[0].value
        values[read].add(value)
        example[read].setdefault(value, tree)
    ambiguous = sum(len(found) > 1 for found in values.values())
    shown = next((list(by.values())[:2] for by in example.values() if len(by) > 1), [])
    return Found(
        {
            "small trees": len(trees),
            "sequences that are left of them": len(values),
            "of these, such with more than one answer": ambiguous,
            "two trees that become the same": shown,
        },
        {"trees of different answers become one sequence": ambiguous > 0},
        (Effect("sequences with more than one answer", 0, ambiguous),),
    )


def _small_trees() -> list[str]:
    """An operator over four digits, some of which stand in a list of their own."""
    digits = ("1", "5", "8", "9")
    trees = []
    for outer, inner in product(listops.OPERATORS, repeat=2):
        for size in (2, 3):
            inside, rest = digits[1 : 1 + size], digits[1 + size :]
            trees.append(" ".join([f"[{outer}", digits[0], f"[{inner}", *inside, "]", *rest, "]"]))
    return trees


@check("listops-shortcuts")
def shortcuts() -> Found:
    train, test = (listops.generate(_TREES, seed, workers=1) for seed in (1, 2))
    rules = listops.shortcuts(train, test)
    percent = {
        "the most common answer": 100 * rules.most_common_class,
        "the root's operator": 100 * rules.root_operator,
        "and its direct digits": 100 * rules.root_and_digits,
    }
    scores = {row: arena.table_6(row, "listops") for row in arena.PUBLISHED}
    within = sum(score < percent["and its direct digits"] for score in scores.values())
    return Found(
        {
            f"accuracy on {_TREES:,} trees of rules that read little (%)": percent,
            "lowest and highest of Table 6": [min(scores.values()), max(scores.values())],
            "rows of Table 6 below the last rule": within,
        },
        {
            "the rule of the root's operator is within the range of Table 6": min(scores.values())
            < percent["the root's operator"]
            < max(scores.values()),
            "no row is clearly above the last rule": max(scores.values()) < percent["and its direct digits"] + 1.5,
            "most rows are above the most common answer by more than ten points": sum(
                score > percent["the most common answer"] + 10 for score in scores.values()
            )
            > len(scores) / 2,
        },
    )
