"""CTC's loss and its decoding, and the transcribers: what padding must not change, and PyTorch's LSTM as an oracle."""

from itertools import groupby, product

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transnormer_lib.data.batches import IGNORE
from transnormer_lib.models.config import BILSTM, ModelConfig
from transnormer_lib.models.flops import forward_flops
from transnormer_lib.models.transcriber import BiLstm, build_transcriber, ctc_loss, greedy, spliced

LSH = {"hashes": 2, "chunk_size": 4, "chunking": "across", "duplicates": "each"}
ROWS = ("softmax", "linear", "reformer", BILSTM)


def config(row: str, **fields: object) -> ModelConfig:
    return ModelConfig(
        **{  # type: ignore[arg-type]
            "kind": "encoder",
            "vocab_size": 5,
            "features": 3,
            "max_length": 32,
            "dim": 8,
            "heads": 2,
            "attention": (row,) * 2,
            "attention_options": {"reformer": LSH} if row == "reformer" else {},
            **fields,
        }
    )


def says(path: tuple[int, ...]) -> list[int]:
    return [symbol for symbol, _ in groupby(path) if symbol]


def enumerated(log_p_NV: Tensor, target: list[int]) -> Tensor:
    """−log of the sum over all paths that say the target."""
    frames, symbols = log_p_NV.shape
    paths = [path for path in product(range(symbols), repeat=frames) if says(path) == target]
    return -torch.stack([log_p_NV[range(frames), path].sum() for path in paths]).logsumexp(0)


@pytest.mark.parametrize("target", [[1], [2, 1], [1, 1], [1, 2, 1], [2, 2, 1]], ids=str)
@pytest.mark.parametrize("frames", [5, 6])
def test_the_loss_is_the_sum_over_all_paths_in_double_precision(target: list[int], frames: int) -> None:
    torch.manual_seed(frames)
    logits = torch.randn(1, frames, 3, dtype=torch.float64, requires_grad=True)
    ours = ctc_loss(logits, torch.tensor([target])) * len(target)
    oracle = enumerated(logits[0].log_softmax(-1), target)
    torch.testing.assert_close(ours, oracle, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, oracle)))


def test_a_batch_has_the_nats_per_symbol_of_its_utterances_together() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 6, 3, dtype=torch.float64)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    whole = ctc_loss(logits, torch.tensor([[1, 2], [2, IGNORE]]), padding)
    log_p = logits.log_softmax(-1)
    alone = enumerated(log_p[0], [1, 2]) + enumerated(log_p[1, :4], [2])
    torch.testing.assert_close(whole, alone / 3)


def test_a_target_that_has_too_few_frames_costs_infinitely_much() -> None:
    assert ctc_loss(torch.zeros(1, 2, 3), torch.tensor([[1, 1]])).isinf()  # needs a blank between


def test_greedy_reads_the_likeliest_path() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 5, 3)
    padding = torch.arange(5) >= torch.tensor([5, 5, 4, 2])[:, None]
    for row, (string, hidden) in enumerate(zip(logits, padding, strict=True)):
        log_p = string[~hidden].log_softmax(-1)
        best = max(product(range(3), repeat=len(log_p)), key=lambda p, q=log_p: float(q[range(len(q)), p].sum()))
        assert greedy(logits, padding)[row] == says(best)


def test_greedy_does_not_always_find_the_likeliest_string() -> None:
    log_p = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()
    assert greedy(log_p[None]) == [[]]
    assert enumerated(log_p, [1]).exp().reciprocal().item() == pytest.approx(0.64)


@pytest.mark.parametrize("row", ROWS)
def test_padding_changes_nothing(row: str) -> None:
    torch.manual_seed(0)
    model = build_transcriber(config(row, context=2), 0).eval().double()
    frames = torch.randn(2, 13, 3, dtype=torch.float64)
    padding = torch.arange(13) >= torch.tensor([13, 9])[:, None]
    frames[padding] = 0.0
    alone = model(frames[1:, :9])
    torch.testing.assert_close(model(frames, padding)[1:, :9], alone)


def test_the_bilstm_is_pytorchs_over_packed_sequences() -> None:
    torch.manual_seed(0)
    model = build_transcriber(config(BILSTM, dim=6, heads=1), 0).eval().double()
    assert isinstance(model, BiLstm)
    oracle = nn.LSTM(3, 6, num_layers=2, bidirectional=True, batch_first=True).double()
    with torch.no_grad():
        for name, weight in oracle.named_parameters():
            kind, number = name.removesuffix("_reverse").rsplit("_l", 1)
            side = model.back if name.endswith("_reverse") else model.onward
            weight.copy_(getattr(side[int(number)], f"{kind}_l0"))
    frames, lengths = torch.randn(3, 10, 3, dtype=torch.float64), torch.tensor([10, 4, 7])
    packed = pack_padded_sequence(frames, lengths, batch_first=True, enforce_sorted=False)
    hidden, _ = pad_packed_sequence(oracle(packed)[0], batch_first=True)
    padding = torch.arange(10) >= lengths[:, None]
    ours = model(frames, padding)
    torch.testing.assert_close(ours[~padding], model.head(hidden)[~padding])


@pytest.mark.parametrize("row", ROWS)
def test_the_seed_alone_decides_the_first_weights(row: str) -> None:
    first, again, other = (build_transcriber(config(row), seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_spliced_frames_are_those_on_either_side() -> None:
    frames = torch.arange(1.0, 9.0).view(1, 4, 2)
    joined = spliced(frames, 1)
    assert joined[0, 0].tolist() == [0, 0, 1, 2, 3, 4]
    assert joined[0, 3].tolist() == [5, 6, 7, 8, 0, 0]
    assert torch.equal(spliced(frames, 0), frames)


def test_the_lstms_operations_grow_with_the_frames() -> None:
    lstm = config(BILSTM, heads=1)
    weights = 2 * 4 * 8 * (3 + 8) + 2 * 4 * 8 * (16 + 8) + 16 * 5
    assert forward_flops(lstm, 10) == 2 * 10 * weights


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "decoder"}, "features=3"),
        ({"features": 0, "context": 1}, "context=1"),
        ({"segments": 2}, "segments=2: a model with features reads frames"),
        ({"attention": (BILSTM, "softmax")}, "bilstm"),
    ],
    ids=["decoder", "context", "segments", "mixed"],
)
def test_a_config_that_fits_no_transcriber_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config("softmax", **fields)
