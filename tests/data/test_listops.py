"""ListOps: every tree is well formed and worth its label, and the trees are distributed as published."""

import random
import statistics
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from transnormer_lib.data import listops
from transnormer_lib.data.examples import Examples

SMALL = {"min_length": 10, "max_length": 60, "max_depth": 5, "max_args": 5}
Tree = int | tuple[str, list["Tree"]]


@pytest.fixture(scope="module")
def published() -> Examples:
    return listops.generate(1500, 1, workers=1)


def words(examples: Examples, index: int) -> list[str]:
    return listops.text(examples.sequence(index)).split()


def parse(source: list[str]) -> Tree:
    """The tree that these words spell, all of them."""
    rest = iter(source)
    tree = node(next(rest), rest)
    assert list(rest) == []
    return tree


def node(word: str, rest: Iterator[str]) -> Tree:
    if word.isdigit():
        return int(word)
    arguments = []
    while (following := next(rest)) != "]":
        arguments.append(node(following, rest))
    return word, arguments


def value(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    operator, arguments = tree
    values = [value(argument) for argument in arguments]
    if operator == "[MED":
        return int(statistics.median(values))
    return {"[MIN": min(values), "[MAX": max(values), "[SM": sum(values) % 10}[operator]


def depth(tree: Tree) -> int:
    return 1 if isinstance(tree, int) else 1 + max(depth(argument) for argument in tree[1])


def operators(tree: Tree) -> Iterator[tuple[str, list[Tree]]]:
    if not isinstance(tree, int):
        yield tree
        for argument in tree[1]:
            yield from operators(argument)


def test_the_label_of_a_tree_is_its_value(published: Examples) -> None:
    for index in range(300):
        assert value(parse(words(published, index))) == published.labels[index]


def test_trees_keep_to_the_published_length_depth_and_arity(published: Examples) -> None:
    assert published.lengths.min() > 500
    assert published.lengths.max() < 2000
    trees = [parse(words(published, index)) for index in range(300)]
    assert max(map(depth, trees)) == 10
    assert {len(arguments) for tree in trees for _, arguments in operators(tree)} == set(range(2, 11))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shortest=st.integers(1, 40),
    room=st.integers(10, 200),
    deepest=st.integers(3, 12),
    widest=st.integers(2, 25),
)
def test_every_shape_of_tree_is_kept_and_evaluated(
    seed: int, shortest: int, room: int, deepest: int, widest: int
) -> None:
    longest = shortest + room
    shape = {"min_length": shortest, "max_length": longest, "max_depth": deepest, "max_args": widest}
    # A shallow tree of few arguments cannot be long: such windows are refused.
    share = length_distribution(longest, deepest, widest)[shortest + 1 :].sum() / 0.25
    if share < 2e-3:
        return
    made = listops.generate(5, seed, workers=1, **shape)
    for index in range(5):
        tree = parse(words(made, index))
        assert value(tree) == made.labels[index]
        assert depth(tree) <= deepest
        assert max(len(arguments) for _, arguments in operators(tree)) <= widest
        assert shortest < made.lengths[index] < longest


def length_distribution(max_length: int, max_depth: int, max_args: int) -> NDArray[np.float64]:
    """The probability of every length below ``max_length``, from the definition, by convolution; roots of any kind."""
    leaf = np.zeros(max_length)
    leaf[1] = 1
    lengths = leaf
    for _ in range(max_depth - 1):
        arguments, operator = lengths, np.zeros(max_length)
        for _ in range(2, max_args + 1):
            arguments = np.convolve(arguments, lengths)[:max_length]
            operator[2:] += arguments[:-2] / (max_args - 1)
        lengths = 0.75 * leaf + 0.25 * operator
    return lengths


def p_of_lengths(examples: Examples, shape: dict[str, int], bins: int) -> float:
    """p of a chi-square test of the lengths against their exact distribution within the window."""
    expected = length_distribution(shape["max_length"], shape["max_depth"], shape["max_args"])
    expected = expected[shape["min_length"] + 1 :]
    cumulative = expected.cumsum() / expected.sum()
    _, bin_of = np.unique(np.minimum((cumulative * bins).astype(int), bins - 1), return_inverse=True)
    bins = bin_of.max() + 1  # a length that is more frequent than a bin takes several
    observed = np.bincount(bin_of[examples.lengths - shape["min_length"] - 1], minlength=bins)
    shares = np.bincount(bin_of, weights=expected, minlength=bins) / expected.sum()
    return float(stats.chisquare(observed, shares * len(examples)).pvalue)


def test_lengths_follow_the_published_distribution_within_the_window(published: Examples) -> None:
    shape = {"min_length": 500, "max_length": 2000, "max_depth": 10, "max_args": 10}
    assert p_of_lengths(published, shape, bins=20) > 0.001


def test_lengths_of_small_trees_follow_the_distribution_and_not_a_near_one() -> None:
    made = listops.generate(20_000, 5, workers=1, **SMALL)
    assert p_of_lengths(made, SMALL, bins=25) > 0.001
    # The test can fail: one more argument, or one more level, is another distribution.
    assert p_of_lengths(made, SMALL | {"max_args": 6}, bins=25) < 1e-6
    assert p_of_lengths(made, SMALL | {"max_depth": 6}, bins=25) < 1e-6


def naive(rng: random.Random, level: int) -> Tree:
    """A tree as the definition says it, one node after the other."""
    if level == SMALL["max_depth"] or rng.random() > 0.25:
        return rng.randrange(10)
    arguments = [naive(rng, level + 1) for _ in range(rng.randint(2, SMALL["max_args"]))]
    return rng.choice(["[MIN", "[MAX", "[MED", "[SM"]), arguments


def spelled(tree: Tree) -> list[str]:
    return [str(tree)] if isinstance(tree, int) else [tree[0], *(w for a in tree[1] for w in spelled(a)), "]"]


def test_operators_arities_digits_and_answers_are_as_often_as_with_a_naive_generator() -> None:
    rng, plain = random.Random(2), []
    while len(plain) < 3000:
        tree = naive(rng, 1)
        if SMALL["min_length"] < len(spelled(tree)) < SMALL["max_length"]:
            plain.append(tree)
    made = listops.generate(3000, 3, workers=1, **SMALL)
    ours = [parse(words(made, index)) for index in range(len(made))]

    def root(tree: Tree) -> str:
        assert not isinstance(tree, int)
        return f"{tree[0]} {len(tree[1])}"

    def nested(tree: Tree) -> int:
        assert not isinstance(tree, int)
        return sum(not isinstance(argument, int) for argument in tree[1])

    for feature in (value, depth, root, nested, lambda tree: f"{root(tree)[:4]} {value(tree)}"):
        counts = [Counter(map(feature, trees)) for trees in (ours, plain)]
        kinds = [kind for kind in counts[0] | counts[1] if counts[0][kind] + counts[1][kind] >= 10]
        table = [[count[kind] for kind in kinds] for count in counts]
        assert stats.chi2_contingency(table).pvalue > 0.001


def same(one: Examples, other: Examples) -> bool:
    return (
        np.array_equal(one.tokens, other.tokens)
        and np.array_equal(one.offsets, other.offsets)
        and np.array_equal(one.labels, other.labels)
    )


def test_the_number_of_processes_changes_nothing() -> None:
    assert same(listops.generate(1100, 4, workers=1, **SMALL), listops.generate(1100, 4, workers=2, **SMALL))


@pytest.mark.parametrize("count", [1, 511, 512, 513, 900])
def test_fewer_trees_of_a_seed_are_the_first_of_more(count: int) -> None:
    more, fewer = listops.generate(1100, 4, workers=1, **SMALL), listops.generate(count, 4, workers=1, **SMALL)
    assert len(fewer) == count
    assert np.array_equal(fewer.tokens, more.tokens[: fewer.tokens.size])
    assert np.array_equal(fewer.labels, more.labels[:count])


def test_no_tree_of_a_seed_occurs_twice_or_under_another_seed(published: Examples) -> None:
    other = listops.generate(1500, 2, workers=1)
    trees = {examples.sequence(index).tobytes() for examples in (published, other) for index in range(len(examples))}
    assert len(trees) == 3000


def test_the_parts_are_the_whole() -> None:
    config = listops.TreeConfig(**SMALL)
    parts = list(listops.parts(1100, 4, config, workers=1))
    assert [len(part) for part in parts] == [512, 512, 76]
    whole = listops.generate(1100, 4, workers=1, **SMALL)
    assert np.array_equal(np.concatenate([part.tokens for part in parts]), whole.tokens)


def test_the_published_spelling_is_read_with_and_without_its_parentheses(published: Examples) -> None:
    tokens = published.sequence(0)
    assert np.array_equal(listops.encode(listops.text(tokens)), tokens)
    assert np.array_equal(listops.encode(listops.text(tokens).replace("]", "X")), tokens)
    source = "( ( ( [MAX 2 ) ( ( ( [MIN 4 ) 7 ) ] ) ) ] )"
    assert listops.text(listops.encode(source)) == "[MAX 2 [MIN 4 7 ] ]"
    with pytest.raises(ValueError, match=r"source: has the word '\[FIRST'"):
        listops.encode("[FIRST 1 2 ]")


def test_shortcuts_get_what_they_can_read_and_no_more() -> None:
    # Flat lists: the root's line is the whole tree. With nested ones it is not.
    flat = {"min_length": 3, "max_length": 30, "max_depth": 2, "max_args": 10}
    scores = listops.shortcuts(
        listops.generate(2000, 1, workers=1, **flat), listops.generate(500, 2, workers=1, **flat)
    )
    assert scores.root_and_digits == 1
    assert scores.most_common_class < scores.root_operator < 0.6


def test_shortcuts_of_the_published_trees_are_those_known(published: Examples) -> None:
    scores = listops.shortcuts(listops.generate(6000, 2, workers=1), published)
    assert scores.most_common_class == pytest.approx(0.174, abs=0.03)
    assert scores.root_operator == pytest.approx(0.369, abs=0.04)
    assert scores.root_operator + 0.05 < scores.root_and_digits < 0.55


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"count": 0}, "count=0: must be a whole number of at least 1"),
        ({"seed": -1}, "seed=-1: must be a whole number of at least 0"),
        ({"seed": 2**32}, "seed=4294967296: must be below 2"),
        ({"workers": 0}, "workers=0: must be a whole number of at least 1"),
        ({"min_length": 0}, "min_length=0: must be a whole number of at least 1"),
        ({"max_length": 501}, "max_length=501: must leave a length above min_length=500"),
        ({"max_depth": 1}, "max_depth=1: must be a whole number of at least 2"),
        ({"max_depth": 101}, "max_depth=101: must be at most 100"),
        ({"max_args": 1}, "max_args=1: must be from 2 to 25"),
        ({"max_depth": 2}, "min_length=500: only 0 of .* trees are longer"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        listops.generate(**({"count": 1, "seed": 0} | changed))
    assert "\n" not in str(refused.value)
