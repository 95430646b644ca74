"""BigBird against transformers' BigBirdBlockSparseAttention, copied weights and random blocks."""

import numpy as np
import pytest
import torch

from transnormer_lib.attention import BigBirdAttention, BigBirdConfig

modeling = pytest.importorskip("transformers.models.big_bird.modeling_big_bird")


@pytest.mark.parametrize("padded", [0, 3])
@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_bigbird_is_that_of_transformers_given_its_random_blocks(impl, padded, monkeypatch):
    """What differs, and how it is met.

    transformers draws its blocks with NumPy, and only in training mode, which changes nothing else in it. Its blocks
    are recorded and put in place of ours. It asks for a length that is a multiple of the block, and takes the last
    block of the padded sequence for the global one: padding is therefore less than a block.
    """
    torch.manual_seed(0)
    heads, head_dim, c, r, n = 2, 6, 4, 3, 80
    config = modeling.BigBirdConfig(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        block_size=c,
        num_random_blocks=r,
        max_position_embeddings=n,
        attention_probs_dropout_prob=0.0,
    )
    theirs = modeling.BigBirdBlockSparseAttention(config, seed=5).double().train()
    recorded = []
    draw = theirs._bigbird_block_rand_mask_with_head
    monkeypatch.setattr(
        theirs, "_bigbird_block_rand_mask_with_head", lambda **given: recorded.append(draw(**given)) or recorded[-1]
    )
    real = torch.ones(2, n, dtype=torch.float64)
    real[1, n - padded :] = 0.0
    masks = modeling.BigBirdModel.create_masks_for_block_sparse_attn(real, c)
    blocked, band, from_mask, to_mask = masks
    x = torch.randn(2, n, heads * head_dim, dtype=torch.float64)
    expected, _ = theirs(x, band, from_mask, to_mask, blocked, blocked)

    ours = BigBirdAttention(BigBirdConfig(heads, head_dim, impl=impl, block_size=c, random_blocks=r)).double().eval()
    middle = torch.from_numpy(np.stack(recorded[0])).long()  # [H, G - 2, R]
    assert middle.unique().numel() > 5  # random indeed
    plan = torch.nn.functional.pad(middle, (0, 0, 1, 1))[None]
    monkeypatch.setattr(ours, "plan", lambda blocks_B, rows: plan.expand(len(blocks_B), -1, -1, -1))
    q, k, v = (
        project(x).unflatten(-1, (heads, -1)).transpose(1, 2) for project in (theirs.query, theirs.key, theirs.value)
    )
    actual = ours(q, k, v, real == 0).transpose(1, 2).flatten(2)
    keep = real[..., None]
    torch.testing.assert_close(actual * keep, expected * keep, rtol=1e-9, atol=1e-9)
    print(f"largest difference {((actual - expected) * keep).abs().max():.1e}")
