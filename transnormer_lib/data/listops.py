"""ListOps of the Long Range Arena (Tay et al. 2021), generated: nested list operations, the answer is a digit.

    [MAX 4 3 [MIN 2 3 ] 1 0 [MED 1 5 8 9 2 ] ]      → 5

The definition follows google-research/long-range-arena (lra_benchmarks/data/listops.py at cd31e5c). A node is a digit
with probability 3/4, and always at the greatest depth (the root has depth 1); otherwise it is one of four operators
with 2 to 10 arguments, all equally likely. MED is the median rounded down, SM the sum modulo 10. The length counts 1
for a digit and 2 for an operator (itself and its closing bracket), which is the number of tokens that a model sees,
since the loader drops the parentheses of the published files. It is strictly between 500 and 2,000.

Many trees grow at once, level by level, arities first: the arities decide the length, and a tree outside the window is
dropped before its operators and digits are drawn. The original rejects the same trees, so the distribution is the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transnormer_lib.checks import check_count
from transnormer_lib.data.chunks import in_chunks
from transnormer_lib.data.examples import Examples, joined

OPERATORS = ("MIN", "MAX", "MED", "SM")
# Token names by id. The published loader writes the closing bracket as X, because its tokenizer would drop it.
VOCABULARY = ("<pad>", *"0123456789", *(f"[{name}" for name in OPERATORS), "]")
PAD_ID = 0
CLASSES = 10
_DIGIT = VOCABULARY.index("0")  # id of digit d: _DIGIT + d
_OPERATOR = VOCABULARY.index("[MIN")  # id of operator o: _OPERATOR + o
_CLOSE = VOCABULARY.index("]")
_LEAF_SHARE = 4  # one node in four is an operator

_CHUNK = 512  # examples per chunk
_PATIENCE, _RAREST = 1 << 16, 1e-3  # after this many trees, refuse a window that keeps a smaller share of them


@dataclass(frozen=True)
class TreeConfig:
    """Which trees are drawn and which of them are kept; the defaults are the published ones."""

    min_length: int = 500  # keep trees longer than this
    max_length: int = 2000  # and shorter than this, in tokens
    max_depth: int = 10  # depth at which every node is a digit; the root has depth 1
    max_args: int = 10  # an operator has 2 to this many arguments

    def __post_init__(self) -> None:
        check_count("min_length", self.min_length)
        if self.max_length < self.min_length + 2:
            raise ValueError(f"max_length={self.max_length!r}: must leave a length above min_length={self.min_length}")
        check_count("max_depth", self.max_depth, 2)
        if self.max_depth > 100:
            raise ValueError(f"max_depth={self.max_depth!r}: must be at most 100")
        if not 2 <= self.max_args <= 25:
            raise ValueError(f"max_args={self.max_args!r}: must be from 2 to 25")


def generate(count: int, seed: int, *, workers: int | None = None, **settings: int) -> Examples:
    """``count`` trees as token ids (uint8, see ``VOCABULARY``) and their values; ``settings``: see ``TreeConfig``.

    The result depends only on ``seed`` and the settings, not on ``workers`` (processes; default: one per core); fewer
    examples of a seed are the first of more. Use a different seed for every split. Raises ValueError if a number is out
    of range, or the window keeps almost no tree.
    """
    return joined(list(parts(count, seed, TreeConfig(**settings), workers=workers)))


def parts(count: int, seed: int, config: TreeConfig | None = None, *, workers: int | None = None) -> Iterator[Examples]:
    """As :func:`generate`, part by part, to save memory."""
    return in_chunks(partial(_chunk, config or TreeConfig()), count, _CHUNK, seed, workers)


def text(tokens: NDArray[Any]) -> str:
    """The tokens in writing: ``[MAX 2 9 [MIN 4 7 ] 0 ]``."""
    return " ".join(VOCABULARY[token] for token in tokens)


def encode(source: str) -> NDArray[np.uint8]:
    """The ids of a written tree. As in the published files, it may have parentheses, which are dropped, and X for ].

    Raises ValueError if the tree has an unknown word.
    """
    words = source.replace("(", " ").replace(")", " ").split()
    if unknown := next((word for word in words if word not in _IDS), None):
        raise ValueError(f"source: has the word {unknown!r}: must be a digit, ] or one of [MIN, [MAX, [MED, [SM")
    return np.array([_IDS[word] for word in words], np.uint8)


_IDS = {name: index for index, name in enumerate(VOCABULARY) if index != PAD_ID} | {"X": _CLOSE}


@dataclass(frozen=True)
class Level:
    """The nodes of many trees at one depth, tree by tree; the children of a node are neighbours at the next depth."""

    tree: NDArray[np.int32]  # [n] the tree of each node, ascending
    arity: NDArray[np.uint8]  # [n] its number of children; 0: a digit

    def of(self, kept: NDArray[np.bool_]) -> "Level":
        """The nodes of the ``kept`` [trees] trees, renumbered."""
        stays = kept[self.tree]
        return Level((kept.cumsum(dtype=np.int32) - 1)[self.tree[stays]], self.arity[stays])


def _chunk(config: TreeConfig, rng: np.random.Generator, needed: int) -> Examples:
    made: list[Examples] = []
    found = drawn = 0
    while found < _CHUNK:
        trees = 3 * (_CHUNK - found) + 64  # the published window keeps about one in three
        levels = _grow(config, rng, trees)
        drawn += trees
        if levels:
            made.append(_written(levels, rng))
            found += len(made[-1])
        if drawn >= _PATIENCE and found < _RAREST * drawn:
            raise ValueError(
                f"min_length={config.min_length!r}: only {found} of {drawn} trees are longer and shorter than "
                f"max_length={config.max_length} (max_depth={config.max_depth}, max_args={config.max_args})"
            )
    whole = joined(made)
    offsets = whole.offsets[: needed + 1]
    return Examples(whole.tokens[: offsets[-1]], offsets, whole.labels[:needed])


def _grow(config: TreeConfig, rng: np.random.Generator, trees: int) -> list[Level]:
    """The levels, from the root down, of those of ``trees`` trees that the window keeps; [] if it keeps none.

    All roots are operators, because a single digit is never in the window.
    """
    arities = config.max_args - 1  # 2 to max_args, equally likely
    tree, lengths = np.arange(trees, dtype=np.int32), np.zeros(trees, np.int64)
    levels = []
    for depth in range(1, config.max_depth + 1):
        if depth == config.max_depth:
            arity = np.zeros(tree.size, np.uint8)
        else:
            draw = rng.integers(0, arities if depth == 1 else _LEAF_SHARE * arities, tree.size, dtype=np.uint8)
            arity = np.where(draw < arities, draw + 2, 0).astype(np.uint8)
        levels.append(Level(tree, arity))
        operators = tree[arity > 0]
        lengths += np.bincount(tree, minlength=trees) + np.bincount(operators, minlength=trees)
        # A tree that is already too long stops growing.
        alive = lengths < config.max_length
        tree = tree.repeat(np.where(alive[tree], arity, 0))
        if tree.size == 0:
            break
    kept = (lengths > config.min_length) & (lengths < config.max_length)
    return [level.of(kept) for level in levels] if kept.any() else []


def _written(levels: list[Level], rng: np.random.Generator) -> Examples:
    """Trees with these levels and random operators and digits, as tokens and values."""
    sizes = _sizes(levels)
    offsets = np.concatenate([[0], sizes[0]]).cumsum()
    tokens = np.full(offsets[-1], _CLOSE, np.uint8)  # every other token is a closing bracket
    start = offsets[:-1]  # the first token of each node of the level
    kinds = [
        np.where(
            level.arity > 0,
            rng.integers(_OPERATOR, _OPERATOR + len(OPERATORS), level.arity.size, dtype=np.uint8),
            rng.integers(_DIGIT, _DIGIT + 10, level.arity.size, dtype=np.uint8),
        )
        for level in levels
    ]
    for depth, (level, kind) in enumerate(zip(levels, kinds, strict=True)):
        tokens[start] = kind
        if depth + 1 < len(levels):
            before = sizes[depth + 1].cumsum() - sizes[depth + 1]  # tokens of the nodes to its left
            operator = np.flatnonzero(level.arity)
            first = _first_children(level.arity)[operator]
            start = (start[operator] + 1 - before[first]).repeat(level.arity[operator]) + before
    return Examples(tokens, offsets, _values(levels, kinds).astype(np.int64))


def _sizes(levels: list[Level]) -> list[NDArray[np.int64]]:
    """The number of tokens of every node's subtree, level by level."""
    sizes: list[NDArray[np.int64]] = []
    for level in reversed(levels):
        size = np.ones(level.arity.size, np.int64)
        if sizes:
            operator = np.flatnonzero(level.arity)
            size[operator] = 2 + np.add.reduceat(sizes[-1], _first_children(level.arity)[operator])
        sizes.append(size)
    return sizes[::-1]


def _values(levels: list[Level], kinds: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    """The values of the roots, computed from the lowest level up."""
    below = np.empty(0, np.uint8)
    for level, kind in zip(reversed(levels), reversed(kinds), strict=True):
        value = kind - np.uint8(_DIGIT)
        first = _first_children(level.arity)
        for arity in np.unique(level.arity[level.arity > 0]):
            node = np.flatnonzero(level.arity == arity)
            arguments = np.sort(below[first[node, None] + np.arange(arity)], axis=1)
            middle = (arguments[:, (arity - 1) // 2] + arguments[:, arity // 2]) // 2
            total = arguments.sum(axis=1, dtype=np.int64) % 10
            results = np.stack([arguments[:, 0], arguments[:, -1], middle, total.astype(np.uint8)])
            value[node] = results[kind[node] - _OPERATOR, np.arange(node.size)]
        below = value
    return below


def _first_children(arity: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The index of each node's first child in the next level."""
    following: NDArray[np.int64] = arity.cumsum(dtype=np.int64)
    return following - arity


@dataclass(frozen=True)
class Shortcuts:
    """Accuracies in [0, 1] of rules that read only the root and its direct digits; compare scores with them."""

    most_common_class: float
    root_operator: float  # the most frequent answer for the root's operator
    root_and_digits: float  # … for the operator and its result on its direct digits, without nested lists


def shortcuts(train: Examples, test: Examples) -> Shortcuts:
    """The rules, fitted on ``train`` and measured on ``test``. A case not in ``train`` is left to the previous rule."""
    keys = [_keys(examples) for examples in (train, test)]
    answer = np.full(len(test), np.bincount(train.labels, minlength=CLASSES).argmax())
    accuracies = [float((answer == test.labels).mean())]
    for rule in range(2):
        seen, asked = keys[0][rule], keys[1][rule]
        counts = np.zeros((max(seen.max(), asked.max()) + 1, CLASSES), np.int64)
        np.add.at(counts, (seen, train.labels), 1)
        answer = np.where(counts[asked].any(axis=1), counts[asked].argmax(axis=1), answer)
        accuracies.append(float((answer == test.labels).mean()))
    return Shortcuts(*accuracies)


def _keys(examples: Examples) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[n] the root's operator; [n] the operator and its result on the direct digits (10: none) as one number."""
    tokens, n = examples.tokens, len(examples)
    opening = (tokens >= _OPERATOR) & (tokens < _CLOSE)
    # Brackets are balanced in every tree, so one running sum serves all trees, and no tree is 128 deep.
    depth = (opening.view(np.int8) - (tokens == _CLOSE).view(np.int8)).cumsum(dtype=np.int8)
    direct = np.flatnonzero((depth == 1) & (tokens < _OPERATOR))
    example = examples.offsets.searchsorted(direct, side="right") - 1
    counts = np.bincount(example * 10 + tokens[direct] - _DIGIT, minlength=n * 10).reshape(n, 10)
    digits = counts.sum(axis=1)
    ranks = counts.cumsum(axis=1)
    middle = [(ranks > rank[:, None]).argmax(axis=1) for rank in ((digits - 1) // 2, digits // 2)]
    lowest, highest = (counts > 0).argmax(axis=1), 9 - (counts[:, ::-1] > 0).argmax(axis=1)
    results = np.stack([lowest, highest, sum(middle) // 2, counts @ np.arange(10) % 10])
    operator = tokens[examples.offsets[:-1]].astype(np.int64) - _OPERATOR
    result = np.where(digits > 0, results[operator, np.arange(n)], 10)
    return operator, operator * 11 + result
