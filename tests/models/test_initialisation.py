"""Counting a model draws no weight, and so costs neither the compiler's import nor the random state."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.classifier import ClassifierConfig, build_classifier, count_classifier_parameters
from transnormer_lib.models.initialisation import undrawn
from transnormer_lib.models.language_model import build_model, count_parameters

SIZE = {"kind": "encoder", "vocab_size": 50, "max_length": 32, "dim": 16, "heads": 2, "layers": 2, "block_size": 8}


@pytest.mark.parametrize("name", ["vanilla", "linear", "performer", "transformer-ls", "flash", "transnormer-t2"])
def test_an_undrawn_model_has_the_parameters_of_a_drawn_one(name: str) -> None:
    config = architecture(name, **SIZE)
    assert count_parameters(config) == count_parameters(build_model(config, 0))
    classifier = ClassifierConfig(model=config, classes=3)
    assert count_classifier_parameters(classifier) == build_classifier(classifier, 0).parameter_count()


def test_counting_leaves_torchs_random_state_as_it_was() -> None:
    before = torch.random.get_rng_state()
    for name in ("performer", "reformer", "transnormer-t2"):
        count_parameters(architecture(name, **SIZE))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_nothing_is_drawn_inside_and_everything_afterwards() -> None:
    with undrawn():
        kept = torch.full((4,), 7.0)
        assert torch.equal(kept.normal_(), torch.full((4,), 7.0))
        assert torch.equal(torch.nn.init.uniform_(kept), torch.full((4,), 7.0))
    drawn: Tensor = torch.full((4,), 7.0).normal_()
    assert not (drawn == 7.0).any()


def test_counting_does_not_import_torchs_compiler() -> None:
    code = """
import sys
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.flops import training_flops
config = architecture("transnormer-t2", kind="decoder", vocab_size=50, max_length=32, dim=16, heads=2, layers=2)
training_flops(config, 32, 1)
raise SystemExit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
