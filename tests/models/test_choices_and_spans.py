"""Classifiers of groups of sequences: one of several candidates, or a span of tokens."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transnormer_lib.choices import TaskKind
from transnormer_lib.data.examples import END, START
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.classifier import Classifier, best_spans, build_classifier, span_losses, with_head
from transnormer_lib.models.config import ClassifierHead

B, C, N = 3, 4, 16
SIZES = torch.tensor([4, 2, 3])  # candidates of each example
ROWS = pytest.mark.parametrize("row", ["vanilla", "gau", "transnormer-t2"])


def model(row: str, kind: TaskKind, pooling: str = "mean") -> Classifier:
    config = architecture(
        row, kind="encoder", vocab_size=20, max_length=N, dim=16, heads=2, layers=2, block_size=8, dropout=0.0
    )
    classes = C if kind == "choice" else 2
    head = ClassifierHead(classes=classes, head_width=8, pooling=pooling, kind=kind)  # type: ignore[arg-type]
    return build_classifier(with_head(config, head), seed=0).eval()


def groups(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids and padding of groups of unequal size with sequences of unequal length."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, N + 1, (B, C, 1), generator=draw)
    mask = torch.arange(N) >= lengths
    mask |= (torch.arange(C) >= SIZES[:, None])[..., None]
    return torch.randint(20, (B, C, N), generator=draw), mask


@ROWS
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_the_scores_of_a_group_are_those_of_its_sequences_alone(row: str, pooling: str) -> None:
    ids, mask = groups()
    choice = model(row, "choice", pooling)
    logits = choice(ids, mask)
    for example, candidate in product(range(B), range(C)):
        if candidate < SIZES[example]:
            one = choice(ids[example, candidate][None, None], mask[example, candidate][None, None])
            torch.testing.assert_close(one, logits[example : example + 1, candidate : candidate + 1])


@ROWS
def test_missing_candidates_have_no_probability_and_change_nothing(row: str) -> None:
    ids, mask = groups()
    choice = model(row, "choice")
    logits = choice(ids, mask)
    assert (logits.softmax(-1)[~(torch.arange(C) < SIZES[:, None])] == 0.0).all()
    other = ids.masked_fill(mask, 7)
    assert torch.equal(choice(other, mask), logits)


@ROWS
def test_the_loss_of_a_choice_is_the_cross_entropy_of_a_softmax_over_the_candidates(row: str) -> None:
    ids, mask = groups()
    targets = torch.tensor([3, 0, 2])
    choice = model(row, "choice")
    logits = choice(ids, mask)
    nats = [
        -(one[target].exp() / one[:size].exp().sum()).log()
        for one, target, size in zip(logits, targets, SIZES, strict=True)
    ]
    torch.testing.assert_close(choice(ids, mask, targets), torch.stack(nats).mean())


@ROWS
def test_permuting_candidates_permutes_their_scores(row: str) -> None:
    ids, mask = groups()
    order = torch.tensor([2, 0, 3, 1])
    choice = model(row, "choice")
    torch.testing.assert_close(choice(ids[:, order], mask[:, order]), choice(ids, mask)[:, order])


@ROWS
@pytest.mark.parametrize("kind", ["choice", "span"])
def test_padding_changes_nothing_and_every_gradient_is_finite(row: str, kind: TaskKind) -> None:
    ids, mask = groups()
    targets = torch.tensor([1, 0, 2])
    if kind == "span":
        targets = torch.zeros_like(ids)
        targets[:, :2, 0], targets[:, :2, 2] = START, END
    grouped = model(row, kind).train()
    grouped(ids, mask, targets).backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in grouped.parameters())
    assert grouped.head[0].weight.grad.abs().sum() > 0  # type: ignore[union-attr,operator]
    none = torch.zeros_like(mask)
    torch.testing.assert_close(grouped(ids, None), grouped(ids, none))


def test_padding_and_missing_windows_are_in_no_span() -> None:
    ids, mask = groups()
    logits = model("vanilla", "span")(ids, mask)
    assert logits.shape == (B, C, N, 2)
    assert torch.equal(logits.isneginf().all(-1), mask)
    assert torch.equal(logits.isneginf().any(-1), mask)


@pytest.mark.parametrize("windows", [1, 2], ids=["in-one-window", "in-two"])
def test_the_loss_of_a_span_is_the_mean_of_both_cross_entropies_over_all_windows(windows: int) -> None:
    logits = torch.randn(2, 3, 5, 2, generator=torch.Generator().manual_seed(0))
    marks = torch.zeros(2, 3, 5, dtype=torch.int64)
    marks[0, :windows, 2], marks[0, :windows, 4] = START, END
    marks[1, 1, 3] = START + END
    starts, ends = (logits[..., way].flatten(1).softmax(1).reshape(2, 3, 5) for way in (0, 1))
    expected = [
        -(starts[0, :windows, 2].sum().log() + ends[0, :windows, 4].sum().log()) / 2,
        -(starts[1, 1, 3].log() + ends[1, 1, 3].log()) / 2,
    ]
    torch.testing.assert_close(span_losses(logits, marks), torch.stack(expected))
    plain = torch.nn.functional.cross_entropy(logits[1].flatten(0, 1).T, torch.tensor([8, 8]))
    torch.testing.assert_close(span_losses(logits, marks)[1], plain)


@settings(deadline=None)
@given(seed=st.integers(0, 2**30), windows=st.integers(1, 3), length=st.integers(1, 7), longest=st.integers(1, 9))
def test_the_best_span_is_that_of_an_exhaustive_search(seed: int, windows: int, length: int, longest: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, windows, length, 2, generator=draw)
    allowed = torch.rand(2, windows, length, generator=draw) < 0.6
    allowed[:, 0, 0] = True
    for one, fine, found in zip(logits, allowed, best_spans(logits, allowed, longest).tolist(), strict=True):
        spans = [
            (w, a, b)
            for w, a, b in product(range(windows), range(length), range(length))
            if a <= b < a + longest and fine[w, a] and fine[w, b]
        ]
        assert tuple(found) == max(spans, key=lambda s: float(one[s[0], s[1], 0] + one[s[0], s[2], 1]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "choice", "pairs": True}, "pairs=True: a head of kind='choice' reads groups"),
        ({"kind": "span", "classes": 3}, "classes=3: a head of kind='span' has 2"),
        ({"kind": "tree"}, "kind='tree': must be one of 'label', 'choice', 'span'"),
    ],
    ids=["pairs", "classes", "unknown"],
)
def test_a_head_that_cannot_be_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClassifierHead(**{"classes": 2} | fields)


def test_sequences_without_their_group_are_refused() -> None:
    with pytest.raises(ValueError, match=r"input_ids.shape=\(2, 16\): must be \[B, C, N\] with kind='choice'"):
        model("vanilla", "choice")(torch.zeros(2, N, dtype=torch.int64))
