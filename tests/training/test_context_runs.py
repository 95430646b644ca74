"""Runs on look-up tasks: what is refused, what is measured, and that softmax attention learns to look up."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from transnormer_lib.data.batches import IGNORE
from transnormer_lib.data.context_tasks import VOCAB_SIZE, ContextTask
from transnormer_lib.models.architectures import architecture
from transnormer_lib.training.__main__ import read_config
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig, RunRefused
from transnormer_lib.training.evaluation import evaluate
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.setup import load_data
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.trainer import train


def run(name: str = "vanilla-matched", task: str = "recall-2", length: int = 8, **fields: object) -> RunConfig:
    model = architecture(
        name, kind="decoder", vocab_size=VOCAB_SIZE, max_length=length, dim=32, heads=2, layers=2, block_size=4
    )
    whole = RunConfig(
        name="look-up",
        model=model,
        data=DataConfig(task="context", task_name=task, length=length, batch_size=16),
        optimizer=OptimizerConfig(learning_rate=1e-2, schedule="cosine", warmup=3, clip_norm=1.0),
        steps=4,
        seed=0,
        validation_windows=50,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


def test_the_accuracy_and_the_loss_are_those_of_the_answers() -> None:
    trained = train(run(evaluations=1))
    task = ContextTask("recall-2", 8)
    (batch,) = task.held_out("validation", 50, 50)
    trained.model.eval()
    counted = batch["targets"] != IGNORE
    with torch.no_grad():
        logits = trained.model(batch["input_ids"])[counted]
    measured = trained.record["validation"][-1]
    right = (logits.argmax(-1) == batch["targets"][counted]).double().mean()
    assert measured["accuracy"] == pytest.approx(float(right))
    loss = torch.nn.functional.cross_entropy(logits, batch["targets"][counted])
    assert measured["nats_per_token"] == pytest.approx(float(loss), rel=1e-5)
    assert measured["bits_per_token"] == pytest.approx(float(loss) / 0.6931471805599453, rel=1e-5)


def test_results_do_not_depend_on_the_size_of_the_batches() -> None:
    one = run()
    model = train(one).model
    found = [
        evaluate(model, replace(one, data=replace(one.data, batch_size=size)), load_data(one), torch.device("cpu"))
        for size in (1, 7, 16)
    ]
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-5)


def test_a_softmax_decoder_learns_to_look_up() -> None:
    record = train(run(task="copy-1", length=2, steps=120, evaluations=1)).record
    assert record["validation"][-1]["accuracy"] > 0.9


def test_another_task_or_length_is_another_run(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    first = store.get(run())
    assert store.find(run()) is not None
    assert first.record["data"] == {"recall-2": ContextTask("recall-2", 8).fingerprint}
    others = [run(task="recall-1"), run(task="copy-2"), run(length=9), run(seed=1)]
    assert len({run_id(config) for config in (run(), *others)}) == 5


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="length=5: recall-2 needs at least 6 tokens"):
        run(length=5)
    with pytest.raises(ValueError, match=r"task_name='': task='classify', task='context'.* need one"):
        DataConfig(task="context")
    with pytest.raises(ValueError, match="a decoder trains on 'causal', 'context', 'pixels'"):
        run(model=replace(run().model, kind="encoder"))
    with pytest.raises(RunRefused, match=r"model.vocab_size=258: 'recall-2' has 66 ids"):
        load_data(run(model=replace(run().model, vocab_size=258)))
    with pytest.raises(RunRefused, match="measured_at_end='dev': must be one of"):
        train(run(measured_at_end=("dev",)))


def test_a_run_file_names_the_task_and_its_model_reads_no_text(tmp_path: Path) -> None:
    file = tmp_path / "look_up.yaml"
    file.write_text(
        "name: look-up\nmodel: {architecture: transnormer-t2, dim: 16, heads: 2, layers: 2}\nseed: 0\nsteps: 2\n"
        "data: {task: context, task_name: recall-2, length: 8, batch_size: 4}\noptimizer: {learning_rate: 0.01}\n"
    )
    stored = RunStore(tmp_path).get(read_config(file))
    assert set(stored.validation) >= {"accuracy", "nats_per_token"}
    with pytest.raises(ValueError, match="recall-2 has symbols of its own, so this model reads no text"):
        stored.generate("a text")
