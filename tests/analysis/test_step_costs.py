"""Costs of a training step: every model at every length, and memory that grows as it must."""

from transnormer_lib.analysis import step_costs
from transnormer_lib.models.architectures import architecture

SIZE = {"kind": "encoder", "vocab_size": 20, "max_length": 128, "dim": 24, "heads": 12, "layers": 1}


def test_every_model_is_measured_at_every_length_and_a_stored_matrix_grows_quadratically() -> None:
    stored = architecture("roformer-v2", **SIZE, attention_options={"softmax": {"impl": "reference"}})
    cells = step_costs.measure({"stored": stored}, [32, 64, 128], batch=1, rounds=2)
    assert [(cell.model, cell.length) for cell in cells] == [("stored", n) for n in (32, 64, 128)]
    assert all(len(cell.seconds) == 2 and min(cell.seconds) > 0 for cell in cells)
    small, middle, large = (cell.peak_bytes for cell in cells)
    assert large - middle > 2.2 * (middle - small)  # 4 if all of it were the matrices


def test_without_rounds_memory_alone_is_measured() -> None:
    (cell,) = step_costs.measure({"fused": architecture("roformer-v2", **SIZE)}, [32], batch=1, rounds=0)
    assert cell.seconds == ()
    assert cell.peak_bytes > 0
