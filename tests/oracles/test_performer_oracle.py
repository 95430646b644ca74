"""Performer against performer-pytorch's FastAttention, in float64, with one projection matrix for both.

Where the two differ, and what is done about it:

- In a causal layer the package takes the largest exponent of all keys as the stabiliser, which our
  ``stabiliser="all-keys"`` is. Our default takes those a query sees, and is held against the package's bidirectional
  form, one prefix at a time. Without ``causal`` the two are the same.
- In the gradient the package treats the stabilisers as constants, which with ε they are not. Where gradients are
  compared, the package's ``detach`` is taken out.
- Its causal form adds 1e-6 to the sums of features in the denominator alone, a constant of the function, which is
  called with 0 here: our denominator is the sum itself.
- It has no padding mask; neither has this test.
- Where its CUDA kernel is not installed it takes its plain causal form, which it is made to take here in any case.
"""

from functools import partial

import pytest
import torch

from transnormer_lib.attention import build

package = pytest.importorskip("performer_pytorch.performer_pytorch")

HEADS, HEAD_DIM, FEATURES = 2, 8, 20  # two whole blocks of orthogonal rows and a part of one


def both(kernel: str, causal: bool, impl: str, stabiliser: str):
    oracle = package.FastAttention(HEAD_DIM, FEATURES, causal=causal, generalized_attention=kernel == "relu").double()
    oracle.causal_linear_fn = partial(package.causal_linear_attention_noncuda, eps=0.0)
    fields = {"heads": HEADS, "head_dim": HEAD_DIM, "features": FEATURES, "causal": causal, "chunk_size": 16}
    ours = build("performer", {**fields, "kernel": kernel, "stabiliser": stabiliser, "impl": impl}).double()
    ours.projection.omega = oracle.projection_matrix.clone()
    return oracle, ours.eval()


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
@pytest.mark.parametrize(
    ("causal", "stabiliser"),
    [(False, "seen"), (False, "all-keys"), (True, "all-keys")],
    ids=["bidirectional", "bidirectional-all-keys", "causal-all-keys"],
)
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_outputs_and_gradients_are_those_of_performer_pytorch(kernel, causal, stabiliser, impl, scale, monkeypatch):
    torch.manual_seed(0)
    oracle, ours = both(kernel, causal, impl, stabiliser)
    monkeypatch.setattr(torch.Tensor, "detach", lambda x: x)
    generator, results = torch.Generator().manual_seed(1), []
    x = [scale * torch.randn(3, HEADS, 45, HEAD_DIM, generator=generator, dtype=torch.float64) for _ in range(3)]
    w = torch.randn(x[0].shape, generator=generator, dtype=torch.float64)
    for module in (oracle, ours):
        leaves = [t.clone().requires_grad_() for t in x]
        o = module(*leaves)
        (o * w).sum().backward()
        results.append([o.data, *(t.grad for t in leaves)])
    for ours_is, theirs_is in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours_is, theirs_is, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("scale", [1.0, 4.0, 12.0])
def test_a_causal_output_is_the_packages_bidirectional_one_on_the_prefix_that_ends_there(kernel, impl, scale):
    torch.manual_seed(0)
    oracle, ours = both(kernel, True, impl, "seen")
    oracle.causal_linear_fn, oracle.causal = None, False
    x = [scale * torch.randn(2, HEADS, 37, HEAD_DIM, dtype=torch.float64) for _ in range(3)]
    expected = [oracle(*(t[:, :, : i + 1] for t in x))[:, :, -1] for i in range(37)]
    torch.testing.assert_close(ours(*x), torch.stack(expected, 2), rtol=1e-9, atol=1e-9)


def test_its_random_matrix_and_ours_have_orthogonal_blocks_of_the_same_shape():
    oracle, ours = both("softmax", False, "chunked", "seen")
    theirs, mine = oracle.create_projection(), build("performer", {"heads": 1, "head_dim": 8, "features": 20})
    for omega in (theirs, mine.projection.omega):
        directions = torch.nn.functional.normalize(omega.double(), dim=-1)
        for block in directions.split(HEAD_DIM):
            torch.testing.assert_close(block @ block.mT, torch.eye(len(block), dtype=torch.float64), rtol=0, atol=1e-6)
    assert theirs.shape == mine.projection.omega.shape == ours.projection.omega.shape
