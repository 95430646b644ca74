"""A run that starts from another run takes its backbone weights, and its run id depends on the other's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import classifier, config, fake_task

from transnormer_lib.training import trainer
from transnormer_lib.training.config import OptimizerConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.setup import build
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import RunFailed

BASE = config("transnormer-t2", "masked")


@pytest.fixture(autouse=True)
def _task(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_task(monkeypatch)


def test_the_backbone_starts_from_the_other_run_and_the_head_is_new(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = classifier(start_from=BASE, steps=0)
    started, base = store.get(run).model().state_dict(), store.get(BASE).model().state_dict()
    fresh = build(run).state_dict()
    for name, values in started.items():
        assert torch.equal(values, fresh[name] if name.startswith("head.") else base[name])
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == sorted([run_id(BASE), run_id(run)])


def test_the_other_run_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    train = trainer.train
    monkeypatch.setattr(trainer, "train", lambda run, *rest: trained.append(run.name) or train(run, *rest))
    store = RunStore(tmp_path)
    runs = [replace(classifier(start_from=BASE), seed=seed, name=f"tuned-{seed}") for seed in (0, 1)]
    for run in runs:
        record = store.get(run).record
        assert record["start_from"] == run_id(BASE)
        assert set(record["data"]) == {"acceptability", "wikipedia"}
        assert run_id(run, record["data"]) == run_id(run)
    assert trained == [BASE.name, "tuned-0", "tuned-1"]


def test_starting_from_another_run_makes_another_run() -> None:
    ids = {run_id(classifier(start_from=start)) for start in (None, BASE, replace(BASE, seed=1))}
    assert len(ids) == 3


def test_a_language_model_starts_from_another_too(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = replace(BASE, name="longer", start_from=BASE, steps=0)
    own, base = (store.get(which).model().state_dict() for which in (run, BASE))
    assert all(torch.equal(own[name], base[name]) for name in own if not name.startswith("head."))
    assert not torch.equal(own["head.dense.weight"], base["head.dense.weight"])


def test_a_start_from_a_run_that_diverged_fails_and_names_it(tmp_path: Path) -> None:
    broken = replace(BASE, optimizer=OptimizerConfig(learning_rate=1e36, schedule="constant"))
    with pytest.raises(RunFailed, match=f"starts from another: run {run_id(broken)}: diverged"):
        RunStore(tmp_path).get(classifier(start_from=broken))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 32}, r"start_from\.model\.dim=32: must equal the model's, 16"),
        ({"attention": ("norm", "norm")}, r"start_from\.model\.attention=\('norm', 'norm'\): must equal"),
    ],
    ids=["width", "mechanisms"],
)
def test_a_start_from_another_backbone_is_refused(change: dict[str, Any], message: str) -> None:
    model = replace(BASE.model, attention_options={}, **change)
    with pytest.raises(ValueError, match=message):
        classifier(start_from=replace(BASE, model=model))


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        ({"vocabulary": "bpe-512"}, {"vocabulary": "bytes"}, r"vocabulary='bytes': must equal the run's, 'bpe-512'"),
        ({"vocabulary": "bytes"}, {"vocabulary": "bpe-512"}, r"vocabulary='bpe-512': must equal the run's, 'bytes'"),
        (
            {"vocabulary": "bpe-512"},
            {"vocabulary": "bpe-512", "corpus": "wikitext-103"},
            r"corpus='wikitext-103': must equal the run's, 'wikipedia'",
        ),
    ],
    ids=["bytes", "pieces", "another-corpus"],
)
def test_a_start_from_another_vocabulary_of_equal_size_is_refused(
    ours: dict[str, str], theirs: dict[str, str], message: str
) -> None:
    start = replace(BASE, data=replace(BASE.data, **theirs))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"start_from\.data\.{message}"):
        classifier(data=ours, start_from=start)


@pytest.mark.parametrize("vocabulary", ["bytes", "gpt2-bpe"])
def test_a_vocabulary_independent_of_the_corpus_allows_another_corpus(vocabulary: str) -> None:
    start = replace(BASE, data=replace(BASE.data, vocabulary=vocabulary, corpus="wikitext-103"))
    assert classifier(data={"vocabulary": vocabulary}, start_from=start).start_from == start


def test_random_features_start_from_the_other_run_and_are_redrawn_by_the_run_s_own_seed(tmp_path: Path) -> None:
    base = config("performer", "masked", steps=3)
    runs = [replace(classifier("performer", start_from=base, steps=0), seed=seed) for seed in (0, 1)]
    [first, second] = [RunStore(tmp_path).get(run).model().state_dict() for run in runs]
    trained = RunStore(tmp_path).get(base).model().state_dict()
    names = [name for name in first if name.endswith("projection.omega")]
    assert all(torch.equal(first[name], trained[name]) and torch.equal(second[name], trained[name]) for name in names)
    seeds = [name for name in first if name.endswith("projection.seed")]
    assert all(len({int(state[name]) for state in (first, second, trained)}) > 1 for name in seeds)
    assert len(names) == len(seeds) == 2


def test_dropout_may_differ_from_the_run_it_starts_from() -> None:
    base = replace(BASE, model=replace(BASE.model, dropout=0.3))
    assert classifier(start_from=base).start_from == base


def test_weights_without_a_config_that_names_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="start_from: the config names a run to start from, and its weights are not"):
        trainer.train(classifier(start_from=BASE))
    with pytest.raises(ValueError, match="start_from: the config does not name a run"):
        trainer.train(classifier(), start=tmp_path / "model.safetensors")
