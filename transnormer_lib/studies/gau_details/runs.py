"""The runs behind Tables 1 and 2: language models that differ in what stands in for the softmax.

A row's name is its mechanism, with ``+varied`` where training sequences have varied lengths:

- ``relu2-n2``, ``relu2-n``, ``relu2-ns``, ``relu2-s2``: Table 1, GAU with relu(q·k)² over this factor.
- ``relu2-table-2``: Table 2's first row, relu(q·k / √s)² / (n s), which is Table 1's n·s over s.
- ``relu2-scaled``, ``softmax``, ``softmax_plus``: Table 2's other rows. ``relu2-rows``: the squared ReLU with rows that
  sum to one. (``attention.gau`` has the equations.)
- ``relu2-normed``: ``relu2-ns`` with TransNormer's RMSNorm of A v in front of the gate.
- ``ungated``: softmax_plus without the gate, with as many parameters. ``mean``: the gate without attention, every token
  reads the mean of all values.
- ``roformer-v2``: attention and FFN in place of two gated units.
- ``relu2/relu2``, ``relu2-rows/relu2-rows``, ``relu2-normed/relu2-normed``: the squared ReLU among several heads in
  TransNormer's backbone, as it is, with rows that sum to one, and with an RMSNorm in place of a normaliser.
"""

from dataclasses import dataclass, replace
from typing import Any

from transnormer_lib.data.corpora import corpus_vocabulary_size
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.studies.common import language_models, rates
from transnormer_lib.training.config import RunConfig

VARIED = "+varied"
# Options of the unit by row; a row that is not here is named as its normaliser. Table 1's factors divide relu(q·k)².
UNITS: dict[str, dict[str, Any]] = {
    **{name: {"normaliser": name, "scale": False} for name in ("relu2-n2", "relu2-n", "relu2-ns", "relu2-s2")},
    "relu2-table-2": {"normaliser": "relu2-ns"},
    "relu2-normed": {"normaliser": "relu2-ns", "scale": False, "norm_after": True},
    "ungated": {"gate": False},
}
OTHERS = ("roformer-v2", "relu2/relu2", "relu2-rows/relu2-rows", "relu2-normed/relu2-normed")


@dataclass(frozen=True)
class Parameters(rates.RateSearch):
    """The notebook's parameters that decide what is trained and measured."""

    rows: tuple[str, ...]  # as at the head of this file
    seeds: tuple[int, ...]  # one run per row and seed; orderings are judged over them
    s: int  # width of a unit's queries and keys
    shortest: int  # training sequences of the varied rows have from so many to ``length`` tokens
    other_lengths: tuple[int, ...]  # at which trained models are measured besides; up to four times ``length``
    probe_rows: tuple[str, ...]  # rows whose matrices' rank, sparsity and entropy are measured


def model(row: str, parameters: Parameters) -> ModelConfig:
    """The model of a row. It has room for four times the training length, and no absolute positions."""
    name = row.removesuffix(VARIED)
    shared: dict[str, Any] = {
        "kind": "decoder" if parameters.task == "causal" else "encoder",
        "vocab_size": corpus_vocabulary_size(parameters.corpus, parameters.vocabulary),
        "max_length": 4 * parameters.length,
        "dim": parameters.dim,
        "heads": parameters.heads,
        "init": parameters.init,
        "scale_embedding": False,
        "dropout": parameters.dropout,
    }
    if name in OTHERS:
        return architecture(name, layers=parameters.layers, rotary="rope", positions="none", **shared)
    unit = {"s": parameters.s, "dropout": 0.0, **UNITS.get(name, {"normaliser": name})}
    if name == "ungated":
        # Without u a unit has a third fewer weights; wider values make up for it (3 e d = 2 e' d).
        unit["expansion"] = 3
    options = {"gau": unit}
    return architecture("gau", layers=2 * parameters.layers, attention_options=options, **shared)


def run(row: str, seed: int, rate: float, label: str, parameters: Parameters) -> RunConfig:
    """One pre-training."""
    whole = language_models.run(f"gau-{label}", model(row, parameters), seed, replace(parameters, learning_rate=rate))
    if not row.endswith(VARIED):
        return whole
    return replace(whole, data=replace(whole.data, shortest=parameters.shortest))


def search(parameters: Parameters) -> rates.Search:
    """Every row with every seed, each at its own learning rate."""

    def make(row: str, seed: int, rate: float, label: str) -> RunConfig:
        return run(row, seed, rate, label, parameters)

    return rates.Search(parameters, parameters.rows, parameters.seeds, make)


def runs(parameters: Parameters) -> list[RunConfig]:
    """The searches for the rates, then one run per row and seed."""
    return search(parameters).runs()
