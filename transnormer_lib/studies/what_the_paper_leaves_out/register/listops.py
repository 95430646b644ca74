"""Checks on ListOps: brackets, seeds, and the accuracy of shortcuts."""

import math
from collections import defaultdict
from itertools import product

from transnormer_lib.analysis.listops_steps import steps
from transnormer_lib.data import listops
from transnormer_lib.studies.lra import published as arena
from transnormer_lib.studies.what_the_paper_leaves_out.register import released_forms
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check

_TREES = 4000  # to fit the shortcuts, and as many to measure them


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
            "share of answers that two seeds have in common": share,
            "standard error of an accuracy of 40 % on 2,000 trees, in points": error,
            "best and second-best row of Table 6": scores[:2],
        },
        {
            "the same seed gives the same trees": same,
            "another seed gives different trees": share < 0.5,
            "the lead in Table 6 is within two standard errors": scores[0] - scores[1] < 2 * error,
        },
    )


@check("listops-brackets-dropped")
def brackets_dropped() -> Found:
    read: dict[tuple[int, ...], dict[int, str]] = defaultdict(dict)  # a tree for each answer, by sequence
    trees = _small_trees()
    for tree in trees:
        sequence = tuple(int(token) for token in released_forms.read_from_file(tree))
        read[sequence].setdefault(steps(listops.encode(tree))[0].value, tree)
    ambiguous = [list(by_answer.values()) for by_answer in read.values() if len(by_answer) > 1]
    return Found(
        {
            "small trees": len(trees),
            "sequences without the brackets": len(read),
            "sequences with more than one answer": len(ambiguous),
            "two trees that become the same sequence": ambiguous[0][:2] if ambiguous else [],
        },
        {"trees with different answers become one sequence": bool(ambiguous)},
        (Effect("sequences with more than one answer", 0, len(ambiguous)),),
    )


def _small_trees() -> list[str]:
    """Operators over four digits, two or three of which are in a nested list."""
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
    common, root, digits = (
        100 * share for share in (rules.most_common_class, rules.root_operator, rules.root_and_digits)
    )
    scores = [arena.table_6(row, "listops") for row in arena.PUBLISHED]
    return Found(
        {
            f"accuracy of shortcuts on {_TREES:,} trees (%)": {
                "the most common answer": common,
                "the root's operator": root,
                "the root's operator and direct digits": digits,
            },
            "lowest and highest score of Table 6": [min(scores), max(scores)],
            "rows of Table 6 below the last shortcut": sum(score < digits for score in scores),
        },
        {
            "the shortcut by the root's operator is within the range of Table 6": min(scores) < root < max(scores),
            "no row is clearly above the last shortcut": max(scores) < digits + 1.5,
            "most rows are more than ten points above the most common answer": sum(s > common + 10 for s in scores)
            > len(scores) / 2,
        },
    )
