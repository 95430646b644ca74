"""Every registered mechanism in a decoder, an encoder and a classifier, from a one-line config."""

from __future__ import annotations

import pytest
import torch

from transnormer_lib.attention import config_class, is_recurrent, names
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.classifier import ClassifierConfig, build_classifier
from transnormer_lib.models.flops import forward_flops
from transnormer_lib.models.language_model import build_model, count_parameters

SIZES = {"vocab_size": 31, "max_length": 48, "dim": 16, "heads": 2, "layers": 2}
CAUSAL = [name for name in names() if not config_class(name).causal_refusal]
each = pytest.mark.parametrize("name", names())


def tokens(b: int, n: int) -> torch.Tensor:
    return torch.randint(0, 31, (b, n), generator=torch.Generator().manual_seed(0))


@each
def test_an_encoder_trains(name):
    config = architecture(name, kind="encoder", **SIZES)
    model, ids = build_model(config, seed=0), tokens(2, 48)
    loss = model(ids, targets_BN=ids)
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) == count_parameters(config)
    assert forward_flops(config, 48) > 0


@pytest.mark.parametrize("name", CAUSAL)
def test_a_decoder_trains_and_sees_no_future(name):
    model, ids = build_model(architecture(name, kind="decoder", **SIZES), seed=0), tokens(2, 48)
    loss = model(ids, targets_BN=ids)
    loss.backward()
    assert loss.isfinite()
    other = ids.clone()
    other[:, 30:] = (ids[:, 30:] + 1) % 31
    model.eval()
    torch.testing.assert_close(model(ids)[:, :30], model(other)[:, :30], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in CAUSAL if is_recurrent(name)])
def test_a_decoder_steps_as_it_reads(name):
    model, ids = build_model(architecture(name, kind="decoder", **SIZES), seed=0).double().eval(), tokens(2, 20)
    with torch.no_grad():
        expected = model(ids)
    logits, states = model.prefill(ids[:, :7])
    torch.testing.assert_close(logits, expected[:, 6])
    for i in range(7, 20):
        logits, states = model.step(ids[:, i], states)
        torch.testing.assert_close(logits, expected[:, i])


@pytest.mark.parametrize("name", [name for name in names() if name not in CAUSAL])
def test_a_decoder_is_refused_where_no_causal_form_is_published(name):
    with pytest.raises(ValueError, match="causal=True: "):
        build_model(architecture(name, kind="decoder", **SIZES), seed=0)


@each
@pytest.mark.parametrize("pairs", [False, True], ids=["one", "pairs"])
def test_a_classifier_trains_and_padding_changes_nothing(name, pairs):
    config = ClassifierConfig(model=architecture(name, kind="encoder", **SIZES), classes=3, pairs=pairs)
    model = build_classifier(config, seed=0)
    ids = tokens(8, 48)
    ids = ids.view(4, 2, 48) if pairs else ids
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[..., 25:] = True
    loss = model(ids, mask, torch.zeros(len(ids), dtype=torch.long))
    loss.backward()
    assert loss.isfinite()
    model.double().eval()
    torch.testing.assert_close(model(ids, mask), model(ids[..., :25]))
