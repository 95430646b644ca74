"""ParallelAttention: several attentions in one layer, their outputs concatenated and projected."""

import pytest
import torch

from transnormer_lib.attention import MultiHeadAttention, ParallelAttention, build

HEADS, HEAD_DIM, DIM = 2, 4, 8


def parallel(*, causal: bool = False, impl: str = "auto") -> ParallelAttention:
    torch.manual_seed(0)
    shared = {"heads": HEADS, "head_dim": HEAD_DIM, "causal": causal, "impl": impl}
    both = [build("diag", {**shared, "block_size": 4}), build("norm", {**shared, "phi": "elu"})]
    return ParallelAttention(DIM, both).double().eval()


def tokens(n: int, b: int = 2) -> torch.Tensor:
    return torch.randn(b, n, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_it_is_the_sum_of_its_attentions_each_through_its_part_of_the_projection() -> None:
    layer, x = parallel(), tokens(11)
    expected = layer.out_proj.bias
    for branch, part in zip(layer.branches, layer.out_proj.weight.split(DIM, dim=1), strict=True):
        alone = MultiHeadAttention(DIM, branch.attention).double()
        alone.load_state_dict({**branch.state_dict(), "out_proj.weight": part, "out_proj.bias": torch.zeros(DIM)})
        expected = expected + alone(x)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_the_fast_form_agrees_with_the_specification(causal: bool) -> None:
    fast, slow = parallel(causal=causal, impl="chunked"), parallel(causal=causal, impl="reference")
    slow.load_state_dict(fast.state_dict())
    torch.testing.assert_close(fast(tokens(11)), slow(tokens(11)), rtol=1e-10, atol=1e-10)


def test_padding_changes_nothing_at_real_tokens() -> None:
    layer, x = parallel(), tokens(11)
    mask = torch.zeros(2, 11, dtype=torch.bool)
    mask[:, 7:] = True
    torch.testing.assert_close(layer(x, mask)[:, :7], layer(x[:, :7]))


def test_weights_are_those_of_the_attentions_one_after_the_other() -> None:
    layer, x = parallel(), tokens(6)
    weights = layer.weights(x)
    assert weights.shape == (2, 2 * HEADS, 6, 6)
    for branch, own in zip(layer.branches, weights.split(HEADS, dim=1), strict=True):
        torch.testing.assert_close(own, branch.weights(x))


def test_decoding_gives_what_reading_gives() -> None:
    layer, x = parallel(causal=True), tokens(11)
    expected = layer(x)
    state = layer.initial_state(2, dtype=torch.float64)
    for i in range(5):
        y, state = layer.step(x[:, i], state)
        torch.testing.assert_close(y, expected[:, i])
    y, state = layer.prefill(x[:, :5])
    torch.testing.assert_close(y, expected[:, :5])
    for i in range(5, 11):
        y, state = layer.step(x[:, i], state)
        torch.testing.assert_close(y, expected[:, i])
    assert int(state["position"]) == 11


def test_one_attention_is_no_parallel_layer() -> None:
    with pytest.raises(ValueError, match=r"attentions=1: must be at least two"):
        ParallelAttention(DIM, [build("norm", {"heads": HEADS, "head_dim": HEAD_DIM})])
