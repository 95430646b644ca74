"""The study of Transformers are RNNs: its runs, Algorithm 1, what is kept, costs and the copy task's floor."""

import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from transnormer_lib.data.context_tasks import ContextTask
from transnormer_lib.project import Project
from transnormer_lib.report.parameters import resolve
from transnormer_lib.studies.common import row_losses
from transnormer_lib.studies.common.measured import Measured
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.studies.transformers_are_rnns import costs, figures, gradients, results, runs

PROJECT = Project(Path(__file__).resolve().parents[3])
NAME = "11_transformers_are_rnns"
QUICK = read(runs.Parameters, resolve(PROJECT, "quick", NAME))


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("preset", PROJECT.presets)
def test_rows_differ_in_their_attention_alone(preset: str) -> None:
    parameters = read(runs.Parameters, resolve(PROJECT, preset, NAME))
    base = runs.model(parameters.rows[0], parameters)
    for row in parameters.rows[1:]:
        other = runs.model(row, parameters)
        changed = {f.name for f in fields(base) if getattr(base, f.name) != getattr(other, f.name)}
        assert changed <= {"attention", "attention_options", "attention_dropout"}


def test_the_paper_preset_is_the_release_s_recipe() -> None:
    parameters = read(runs.Parameters, resolve(PROJECT, "paper", NAME))
    run = next(run for row, _, run in runs.search(parameters).judged() if row == "lsh-4")
    assert (run.data.task_name, run.data.length, run.data.batch_size) == ("duplicate-10", 128, 64)
    assert (run.model.layers, run.model.heads, run.model.head_dim, run.model.hidden_width) == (4, 8, 32, 1024)
    lsh = run.model.attention_options["reformer"]
    assert (lsh["hashes"], lsh["buckets"], lsh["chunk_size"]) == (4, 64, 32)
    rule = run.optimizer
    assert (rule.rule, rule.learning_rate, rule.end_learning_rate, rule.drop_after) == ("radam", 1e-3, 1e-4, 3000)
    assert (rule.weight_decay, run.steps, run.model.dropout) == (0.01, 10_000, 0.1)


def test_unknown_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="rows='lsh': must be one of"):
        replace(QUICK, rows=("lsh",))
    with pytest.raises(ValueError, match="cost_rows='sparse': must be one of"):
        replace(QUICK, cost_rows=("sparse",))


@pytest.mark.parametrize(("c", "m"), [(4, 4), (5, 3), (2, 7)])
def test_algorithm_1_is_the_gradient_of_the_numerator(c: int, m: int) -> None:
    leaves = [drawn(11, size, seed=s).requires_grad_() for s, size in enumerate((c, c, m))]
    g = drawn(11, m, seed=9)
    forward = gradients.forward(*leaves)
    torch.testing.assert_close(forward, (leaves[0] @ leaves[1].mT).tril() @ leaves[2])
    torch.testing.assert_close(gradients.states_kept(*leaves), forward)
    expected = torch.autograd.grad(forward, leaves, g)
    for ours, theirs in zip(gradients.algorithm_1(*(x.detach() for x in leaves), g), expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_kept_bytes_count_each_storage_once() -> None:
    x = torch.ones(100, requires_grad=True)
    assert gradients.kept_bytes(lambda: x * x) == 400
    assert gradients.kept_bytes(lambda: x.exp()) == 400
    assert gradients.largest_allocation(lambda: torch.ones(10).repeat(30)) == 1200


def test_costs_are_measured_per_sample_and_a_row_ends_at_its_longest_length() -> None:
    small = replace(
        QUICK, cost_lengths=(16, 32), cost_tokens=64, cost_rounds=1, cost_head_dim=4, cost_longest={"lsh-1": 16}
    )
    found = costs.measure(replace(small, cost_rows=("softmax", "linear", "lsh-1")))
    assert [(cost.row, cost.length) for cost in found] == [
        ("softmax", 16), ("linear", 16), ("lsh-1", 16), ("softmax", 32), ("linear", 32),
    ]  # fmt: skip
    assert all(cost.peak_bytes > 0 and len(cost.seconds) == 1 for cost in found)
    assert {line["row"] for line in costs.table(found, 16)} == {"softmax", "linear", "lsh-1"}
    assert figures.costs(found).axes


def test_lengths_at_which_linear_attention_is_smaller_are_those_at_which_both_are_measured() -> None:
    sizes = {("linear", 8): 5, ("softmax", 8): 5, ("linear", 16): 9, ("softmax", 16): 20, ("linear", 32): 9}
    found = [costs.Cost(row, n, (1.0,), size) for (row, n), size in sizes.items()]
    assert costs.in_common(found, "softmax") == [8, 16]
    assert costs.smaller(found, "softmax") == [16]
    assert costs.in_common(found, "lsh-1") == []


def test_the_floor_is_the_entropy_of_the_symbols() -> None:
    task = ContextTask("duplicate-10", 128)
    symbols = sum(task.symbols) / len(task.symbols)
    assert results.floor(task, 2000).bits == pytest.approx(symbols / (symbols + 1) * math.log2(10), rel=2e-3)


def curve(row: str, *bits: float, status: str = "finished") -> Measured:
    points = [{"step": n, "bits_per_token": b, "accuracy": 0.5} for n, b in enumerate(bits, 1)]
    config = SimpleNamespace(waypoints=range(1, len(bits)), steps=len(bits))
    run: Any = SimpleNamespace(record={"status": status, "validation": points}, config=config)
    return Measured(row, 0, bits[-1], run)


def test_roughness_is_the_sum_of_the_rises() -> None:
    found = results.roughness([curve("a", 3, 2, 1), curve("b", 3, 1, 2, 1, 1.5), curve("c", 3, status="diverged")])
    assert found == {"a": [0.0], "b": [1.5], "c": [math.inf]}
    assert [line["row"] for line in results.table([curve("a", 3, 2), curve("b", 3, 1)])] == ["b", "a"]
    assert figures.convergence(row_losses.curves([curve("linear", 3, 2)]), {"floor": 3.0}).axes


def test_rows_are_told_beside_linear_attention_at_the_longest_length() -> None:
    found = [
        costs.Cost(row, n, (seconds * n,), size)
        for n in (8, 16)
        for row, seconds, size in (("linear", 1.0, 10), ("softmax", 3.0, 25))
    ]
    said = "Over linear attention's at 16 tokens: softmax 3.0 and 2.5."
    assert costs.beside_linear(found) == said
    assert costs.beside_linear(found[:3]).startswith("At 16 tokens nothing is measured beside")
    assert costs.beside_linear(found[3:]).startswith("At 16 tokens nothing is measured beside")
