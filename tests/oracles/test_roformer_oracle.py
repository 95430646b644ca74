"""RoFormerV1 against transformers' RoFormer, weights copied, in float64: parameters, logits, padding."""

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip("transformers")

from transnormer_lib.models.architectures import architecture  # noqa: E402
from transnormer_lib.models.language_model import LanguageModel, build_model, count_parameters  # noqa: E402

SIZE = {"vocab_size": 37, "max_length": 24, "dim": 32, "heads": 4, "layers": 2}


def theirs(vocab_size: int, max_length: int, dim: int, heads: int, layers: int) -> nn.Module:
    config = transformers.RoFormerConfig(
        vocab_size=vocab_size,
        embedding_size=dim,
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * dim,
        max_position_embeddings=max_length,
        layer_norm_eps=1e-5,
    )
    return transformers.RoFormerForMaskedLM(config)


def copied(model: nn.Module) -> LanguageModel:
    """Our model with the weights of ``model``."""
    ours = build_model(architecture("roformer-v1", kind="encoder", **SIZE), seed=0).double().eval()
    roformer, head = model.roformer, model.cls.predictions
    pairs = [
        (ours.embedding, roformer.embeddings.word_embeddings),
        (ours.segments, roformer.embeddings.token_type_embeddings),
        (ours.embedding_norm, roformer.embeddings.LayerNorm),
        (ours.head.dense, head.transform.dense),
        (ours.head.norm, head.transform.LayerNorm),
    ]
    for block, layer in zip(ours.stack(), roformer.encoder.layer, strict=True):
        inner = layer.attention.self
        pairs += [
            (block.attention.q_proj, inner.query),
            (block.attention.k_proj, inner.key),
            (block.attention.v_proj, inner.value),
            (block.attention.out_proj, layer.attention.output.dense),
            (block.attention_norm, layer.attention.output.LayerNorm),
            (block.feed_forward.up, layer.intermediate.dense),
            (block.feed_forward.down, layer.output.dense),
            (block.feed_forward_norm, layer.output.LayerNorm),
        ]
    with torch.no_grad():
        for mine, other in pairs:
            (mine.gain if hasattr(mine, "gain") else mine.weight).copy_(other.weight)
            if getattr(mine, "bias", None) is not None:
                mine.bias.copy_(other.bias)
        ours.head.bias.copy_(head.bias)
    return ours


def off_its_start(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.2 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("padding", [0, 5], ids=["whole", "padded"])
def test_roformer_v1_is_transformers_roformer(padding: int) -> None:
    other = off_its_start(theirs(**SIZE))
    ours = copied(other)
    ids = torch.randint(SIZE["vocab_size"], (3, 19), generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(3, 19, dtype=torch.bool)
    mask[1, 19 - padding :] = padding > 0
    expected: Tensor = other(ids, attention_mask=(~mask).long()).logits
    # Its sines and cosines are held in float32.
    torch.testing.assert_close(ours(ids, mask)[~mask], expected[~mask], rtol=1e-5, atol=1e-5)


def test_roformer_v1_has_as_many_trained_parameters_as_transformers_roformer() -> None:
    with torch.device("meta"):
        whole = theirs(50_000, 1536, 768, 12, 12)
    trained = sum(p.numel() for p in whole.parameters() if p.requires_grad)
    config = architecture(
        "roformer-v1", kind="encoder", vocab_size=50_000, max_length=512, dim=768, heads=12, layers=12
    )
    assert count_parameters(config) == trained == 124_099_664
