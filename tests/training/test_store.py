"""Properties of the trainer and the store: equal configs give equal bits; no half-written run is ever returned."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import RUN_CONDITIONS, config

from transnormer_lib.training import store as store_module
from transnormer_lib.training import trainer
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import RunFailed


def _lasting(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in RUN_CONDITIONS}


@pytest.mark.parametrize("task", ["causal", "masked"])
@pytest.mark.parametrize("name", ["vanilla", "linear", "transnormer-t1", "transnormer-t2"])
def test_training_twice_gives_the_same_bits_and_leaves_the_random_state_alone(name: str, task: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, record, _ = trainer.train(config(name, task))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    second, again, _ = trainer.train(config(name, task))
    assert _lasting(record) == _lasting(again)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_another_seed_is_another_run() -> None:
    assert trainer.train(config(seed=1))[1]["train_loss"] != trainer.train(config(seed=2))[1]["train_loss"]


@pytest.mark.parametrize("name", ["vanilla", "transnormer-t2"])
def test_training_lowers_the_validation_loss(name: str) -> None:
    record = trainer.train(config(name, steps=60, evaluations=2)).record
    untrained = trainer.train(config(name, steps=0)).record
    losses = [v["nats_per_token"] for v in (*untrained["validation"], *record["validation"])]
    assert losses == sorted(losses, reverse=True)
    assert [v["step"] for v in record["validation"]] == [30, 60]


def test_a_run_whose_loss_is_not_finite_stops_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build = trainer.build

    def broken(*arguments: Any) -> Any:
        model = build(*arguments)
        with torch.no_grad():
            model.embedding.weight.fill_(float("nan"))
        return model

    monkeypatch.setattr(trainer, "build", broken)
    run = RunStore(tmp_path).get(config())
    assert run.record["status"] == "diverged"
    assert run.record["steps"] == 1
    with pytest.raises(RunFailed, match="diverged after 1 steps"):
        _ = run.validation


def test_a_vocabulary_of_another_size_is_refused() -> None:
    wrong = config()
    with pytest.raises(ValueError, match=r"model\.vocab_size=7"):
        trainer.train(replace(wrong, model=replace(wrong.model, vocab_size=7)))


def test_a_stored_run_is_loaded_and_gives_back_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RunStore(tmp_path)
    trained = store.get(config())
    monkeypatch.setattr(trainer, "train", lambda *_: pytest.fail("trained again"))
    loaded = store.get(config())
    assert loaded == trained
    assert loaded.config == config()
    monkeypatch.undo()
    expected = trainer.train(config()).model
    assert all(torch.equal(a, b) for a, b in zip(loaded.model().parameters(), expected.parameters(), strict=True))


@pytest.mark.parametrize("moment", ["save_model", "train"])
def test_an_interrupted_run_is_never_returned(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors import torch as weights

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(weights if moment == "save_model" else trainer, moment, interrupt)
        with pytest.raises(KeyboardInterrupt):
            RunStore(tmp_path).get(config())
    assert RunStore(tmp_path).find(config()) is None
    assert RunStore(tmp_path).get(config()).record["status"] == "finished"
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == [run_id(config())]


def test_a_record_is_complete_enough_to_judge_the_run(tmp_path: Path) -> None:
    run = RunStore(tmp_path).get(config())
    record = json.loads((run.path / "record.json").read_text())
    assert record["tokens"] == 8 * 4 * 32
    assert record["parameters"] == sum(p.numel() for p in run.model().parameters())
    assert len(record["train_loss"]) == record["steps"] == 8
    assert {"commit", "dirty", "versions", "device"} <= set(record["provenance"])
    assert len(record["data"]["wikipedia"]) == 64
    assert record["seconds"] > 0
    assert record["tokens_per_second"] > record["tokens"] / record["seconds"]
    assert record["flops"] > 0
    assert record["peak_memory"]["bytes"] > 10**7
    assert record["divergence"] is None


def test_two_runs_of_one_config_differ_only_in_their_run_conditions(tmp_path: Path) -> None:
    first, second = (RunStore(tmp_path / name).get(config()).record for name in ("a", "b"))
    assert _lasting(first) == _lasting(second)
    assert set(RUN_CONDITIONS) <= set(first)


def test_gradient_statistics_come_back_as_they_were_trained(tmp_path: Path) -> None:
    run = RunStore(tmp_path).get(config(gradients="norms"))
    trained = trainer.train(config(gradients="norms")).gradients
    stored = run.gradients()
    assert trained is not None
    assert (stored.names, stored.counted) == (trained.names, trained.counted)
    for name in ("norms", "mean_norm", "mean_square", "elementwise_rsd"):
        assert torch.equal(getattr(stored, name), getattr(trained, name))
    with pytest.raises(ValueError, match="gradients='none'"):
        RunStore(tmp_path).get(config()).gradients()


def test_processes_waiting_for_another_job_exchange_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import utils

    messages: list[Any] = []
    other = RunStore(tmp_path)._lock(config())
    other.acquire()

    def broadcast(values: list[Any]) -> list[Any]:
        messages.append(values[0])
        if len(messages) == 3:
            other.release()
        return values

    monkeypatch.setattr(utils, "broadcast_object_list", broadcast)
    monkeypatch.setattr(store_module, "launched_processes", lambda: 2)
    monkeypatch.setattr(store_module, "_WAIT", 0.01)
    assert RunStore(tmp_path).get(config()).record["status"] == "finished"
    assert messages == [False, False, False, True, False]  # no lock three times; the lock; the run does not exist
