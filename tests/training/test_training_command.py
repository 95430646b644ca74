"""``python -m transnormer_lib.training``: one run from one YAML, in one process or several."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from training_cases import RUN_CONDITIONS, classifier, config

from transnormer_lib.training import __main__ as command
from transnormer_lib.training import trainer
from transnormer_lib.training.config import RunConfig
from transnormer_lib.training.identity import run_id
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.trainer import train


def _write(path: Path, run: RunConfig, **changes: Any) -> Path:
    values = json.loads(json.dumps(asdict(run)))
    path.write_text(yaml.safe_dump(values | changes))
    return path


def test_a_yaml_is_trained_once_and_then_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(_write(tmp_path / "run.yaml", config())), "--store", str(tmp_path / "runs")]
    assert command.main(arguments) == 0
    run = RunStore(tmp_path / "runs").find(config())
    assert run is not None
    monkeypatch.setattr(trainer, "train", lambda *_: pytest.fail("trained again"))
    assert command.main(arguments) == 0
    told = capsys.readouterr().err.splitlines()
    assert [str(run.path) in line for line in told] == [True] * 3  # only the first time says where it will be


def test_where_the_run_will_be_is_told_when_its_training_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_config: RunConfig, progress: Any, *_: Any) -> None:
        progress(1, 4.0)
        progress(2, 4.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "train", interrupted)
    assert command.main([str(_write(tmp_path / "run.yaml", config())), "--store", str(tmp_path / "runs")]) == 130
    told, _ = capsys.readouterr().err.splitlines()
    assert told == f"run {config().name}: it will be in {tmp_path / 'runs' / run_id(config())}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "run.yaml: No such file or directory"),
        ("- 1\n- 2\n", "run.yaml: must hold a mapping of a run's fields, not list"),
        ("a: [", "run.yaml: not valid YAML"),
        ({"step": 3}, "run.yaml: step=3: Unexpected keyword argument"),
        ({"steps": -1}, "run.yaml: steps=-1: must be a whole number of at least 0"),
        ({"precision": "fp8"}, "run.yaml: precision='fp8'"),
        ({"data": {"corpus": "novels", "length": 8}}, "corpus='novels': must be 'wikipedia'"),
        ({"data": {"vocabulary": "bpe-512", "length": 8}}, "model.vocab_size="),
    ],
    ids=["absent", "list", "no-yaml", "unknown-field", "out-of-range", "no-option", "corpus", "vocabulary"],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    content: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.yaml"
    if isinstance(content, dict):
        _write(path, config(), **content)
    elif content is not None:
        path.write_text(content)
    assert command.main([str(path), "--store", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_missing_tracker_is_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from accelerate import tracking

    monkeypatch.setattr(tracking, "get_available_trackers", list)
    path = _write(tmp_path / "run.yaml", config())
    assert command.main([str(path), "--store", str(tmp_path), "--tracker", "tensorboard"]) == 2
    assert "needs the package tensorboard" in capsys.readouterr().err


def test_a_run_that_diverges_is_exit_code_1_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = config("vanilla", steps=4)
    run = replace(run, optimizer=replace(run.optimizer, learning_rate=1e36, schedule="constant", warmup=0))
    arguments = [str(_write(tmp_path / "run.yaml", run)), "--store", str(tmp_path)]
    assert command.main(arguments) == 1
    assert "diverged: activation of blocks.0.attention_norm not finite at step 1\n" in capsys.readouterr().err
    assert command.main(arguments) == 1


def _torchrun(path: Path, store: Path, **environment: str) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [sys.executable, *launcher, "-m", "transnormer_lib.training", str(path), "--store", str(store)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TRANSNORMER_CHECKPOINT_SECONDS": "0"} | environment,
    )


@pytest.mark.slow
@pytest.mark.parametrize("shared_by", ["copies", "shards"])
def test_two_processes_train_the_classifier_that_one_trains(shared_by: str, tmp_path: Path) -> None:
    """Copied (DDP) or sharded (FSDP): started from another run, best weights kept, a checkpoint at every step."""
    base = config("transnormer-t2", "masked", dropout=0.0, accumulate=2)
    run = classifier(start_from=base, dropout=0.0, evaluations=4, accumulate=2, keep="best", measured_at_end=("test",))
    environment = {"ACCELERATE_USE_FSDP": "true"} if shared_by == "shards" else {}
    store = tmp_path / "runs"
    job = _torchrun(_write(tmp_path / "run.yaml", run), store, **environment)
    error = job.communicate(timeout=240)[1]
    assert job.returncode == 0, error
    together, alone = RunStore(store).find(run), RunStore(tmp_path / "alone").get(run)
    assert together is not None
    assert together.record["processes"] == 2
    assert together.record["train_loss"] == pytest.approx(alone.record["train_loss"], rel=1e-4)
    for ours, theirs in zip(together.record["validation"], alone.record["validation"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)
    assert together.record["at_end"]["test"] == pytest.approx(alone.record["at_end"]["test"], rel=1e-3)
    ours, theirs = together.model().state_dict(), alone.model().state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert (ours[name] - theirs[name]).norm() <= 1e-2 * theirs[name].norm() + 1e-4, name


@pytest.mark.slow
@pytest.mark.parametrize("shared_by", ["copies", "shards"])
def test_two_processes_draw_the_random_features_that_one_draws(shared_by: str, tmp_path: Path) -> None:
    run = config("performer", "masked", dropout=0.0)
    options = {"performer": {**run.model.attention_options.get("performer", {}), "redraw_interval": 2}}
    run = replace(run, model=replace(run.model, attention_options=options))
    environment = {"ACCELERATE_USE_FSDP": "true"} if shared_by == "shards" else {}
    job = _torchrun(_write(tmp_path / "run.yaml", run), tmp_path / "runs", **environment)
    error = job.communicate(timeout=240)[1]
    assert job.returncode == 0, error
    together, alone = RunStore(tmp_path / "runs").find(run), train(run)
    assert together is not None
    assert together.record["train_loss"] == pytest.approx(alone.record["train_loss"], rel=1e-4)
    ours, theirs = together.model().state_dict(), alone.model.state_dict()
    names = [name for name in ours if ".projection." in name]
    assert {name.rpartition(".")[2] for name in names} == {"omega", "seed", "draws", "passes"}
    assert all(torch.equal(ours[name], theirs[name]) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["causal", "masked"])
def test_two_processes_train_what_one_trains(task: str, tmp_path: Path) -> None:
    run = config("transnormer-t2", task, dropout=0.0, evaluations=2, accumulate=2, gradients="norms")
    store = tmp_path / "runs"
    job = _torchrun(_write(tmp_path / "run.yaml", run), store)
    error = job.communicate(timeout=240)[1]
    assert job.returncode == 0, error
    assert error.count("nats_per_token") == 1  # only one process prints
    together, alone = RunStore(store).find(run), train(run)
    assert together is not None
    assert [p.name for p in store.iterdir() if p.is_dir()] == [together.path.name]
    assert together.record["processes"] == 2
    assert together.record["train_loss"] == pytest.approx(alone.record["train_loss"], rel=1e-4)
    for ours, theirs in zip(together.record["validation"], alone.record["validation"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    assert alone.gradients is not None
    norms = [statistics.norms.norm(dim=1).tolist() for statistics in (together.gradients(), alone.gradients)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-2)


def _two_processes(path: Path, store: Path, **environment: str) -> list[subprocess.Popen[bytes]]:
    """Start the processes as torchrun does, but without it, because its children would outlive a kill."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"OMP_NUM_THREADS": "1", "TRANSNORMER_CHECKPOINT_SECONDS": "0"}
    command = [sys.executable, "-m", "transnormer_lib.training", str(path), "--store", str(store)]
    shared |= environment
    return [
        subprocess.Popen(command, env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")
    ]


def _kill_at_a_checkpoint(jobs: list[subprocess.Popen[bytes]], store: Path) -> None:
    while not list(store.glob(".partial-*/checkpoints/step-*")) and jobs[0].poll() is None:
        time.sleep(0.002)
    for job in jobs:
        job.kill()
        job.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)  # six starts of Python; on a loaded machine each takes a minute
def test_two_killed_processes_resume_to_the_same_bits(tmp_path: Path) -> None:
    run = config("transnormer-t2", steps=40)
    path = _write(tmp_path / "run.yaml", run)
    records = []
    for name in ("killed", "undisturbed"):
        store = tmp_path / name
        jobs = _two_processes(path, store)
        if name == "killed":
            _kill_at_a_checkpoint(jobs, store)
            jobs = _two_processes(path, store)
        assert [job.wait(timeout=240) for job in jobs] == [0, 0]
        found = RunStore(store).find(run)
        assert found is not None
        same = {key: value for key, value in found.record.items() if key not in RUN_CONDITIONS}
        records.append((same, (found.path / "model.safetensors").read_bytes(), found.record["sessions"]))
    assert [sessions for _, _, sessions in records] == [2, 1]
    assert records[0][:2] == records[1][:2]


@pytest.mark.slow
def test_two_processes_begin_anew_where_the_table_of_their_shards_is_damaged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = config("transnormer-t2", steps=40)
    path, store = _write(tmp_path / "run.yaml", run), tmp_path / "runs"
    _kill_at_a_checkpoint(_two_processes(path, store, ACCELERATE_USE_FSDP="true"), store)
    checkpoint = max(store.glob(".partial-*/checkpoints/step-*"))
    (checkpoint / "pytorch_model_fsdp_0" / ".metadata").write_bytes(b"")
    jobs = _two_processes(path, store, ACCELERATE_USE_FSDP="true", TRANSNORMER_CHECKPOINT_SECONDS="60")
    assert [job.wait(timeout=240) for job in jobs] == [0, 0]
    found = RunStore(store).find(run)
    assert found is not None
    assert found.record["sessions"] == 1
    damage = "pytorch_model_fsdp_0/.metadata is not what was written; its digest differs; the run begins anew"
    assert capfd.readouterr().err.count(f"{checkpoint}: {damage}\n") == 1


@pytest.mark.slow
def test_processes_that_do_not_divide_the_batch_are_refused_in_one_line(tmp_path: Path) -> None:
    job = _torchrun(_write(tmp_path / "run.yaml", config(accumulate=4)), tmp_path)
    error = job.communicate(timeout=240)[1]
    assert job.returncode != 0
    assert error.count("data.batch_size=4: must be divisible by accumulate=4 times 2 processes") == 1


@pytest.mark.parametrize(
    ("task", "name", "length", "vocab_size", "features"),
    [
        ("context", "duplicate-10", 22, 11, 0),
        ("context", "recall-4", 32, 66, 0),
        ("speech", "spoken-digits-0", 160, 11, 13),
    ],
)
def test_what_a_task_decides_need_not_be_written(
    task: str, name: str, length: int, vocab_size: int, features: int, tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    run = {
        "name": "mine",
        "data": {"task": task, "task_name": name, "length": length, "batch_size": 4},
        "model": {"architecture": "linear", "dim": 16, "heads": 2, "layers": 2, "dropout": 0.0},
        "optimizer": {"learning_rate": 0.01, "schedule": "constant", "warmup": 0, "clip_norm": 1.0},
        "steps": 2,
        "seed": 0,
    }
    path.write_text(yaml.safe_dump(run))
    model = command.read_config(path).model
    assert (model.vocab_size, model.features, model.max_length) == (vocab_size, features, length)
