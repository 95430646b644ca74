"""The benchmark checks results before it times, counts bytes correctly, and survives failures. No time is asserted."""

import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transnormer_kernels.bench import floors, reference, results, run, table, timing
from transnormer_kernels.bench.__main__ import main
from transnormer_kernels.bench.cases import Aim, Case, cpu_cases, gpu_cases
from transnormer_kernels.bench.contestants import OURS, Contestant, Forward, Outputs, contestants
from transnormer_kernels.bench.errors import Judge, outputs_and_gradients, relative_error
from transnormer_kernels.bench.reference import Inputs

CPU = torch.device("cpu")
HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TINY = Case("tiny", "norm", 1, 64, 2, 16, backward=True, dtype="float32", aims=(Aim(("right", "wrong"), 2.0),))


def shortened(case: Case) -> Case:
    """A case with its options, at a size that takes the interpreter a second."""
    size = {"batch": 1, "length": 1 if case.operation == "step" else 128, "heads": 2, "head_dim": 16}
    return replace(case, **size, dtype="bfloat16" if HERE.type == "cuda" else "float32")


def everyone(_: Case) -> bool:
    return True


def named(name: str, build: object, **options: object) -> Contestant:
    return Contestant(name, everyone, build, on_cpu=True, **options)  # type: ignore[arg-type]


def right(case: Case) -> Forward:
    return lambda x: reference.specification(case, x)


def wrong(case: Case) -> Forward:
    def forward(x: Inputs) -> Outputs:
        return {"o": reference.specification(case, x)["o"] * 1.001}

    return forward


def raising(case: Case) -> Forward:
    raise RuntimeError("no kernel image is available\nand a second line")


def quiet_run(*peers: Contestant, case: Case = TINY, **options: object) -> tuple[dict, list[str]]:
    said: list[str] = []
    options = {"device": CPU, "repeats": 2, "say": said.append} | options
    return run.run([case], peers, **options), said  # type: ignore[arg-type]


def statuses(result: dict) -> dict[str, str]:
    return {row["name"]: row["status"] for row in result["cases"][0]["rows"]}


CASES_OF_A_GPU = {case.name: case for case in gpu_cases()}
CASES = {f"{case.name}, {case.dtype}": case for case in (*cpu_cases(), *gpu_cases())}


@pytest.mark.parametrize("name", CASES)
def test_the_short_form_is_the_specification(name: str) -> None:
    case = replace(CASES[name], batch=2, length=1 if CASES[name].operation == "step" else 256, heads=3, head_dim=8)
    x = reference.make_inputs(replace(case, dtype="float64"), CPU, seed=0).to(torch.float64)
    exact = outputs_and_gradients(lambda x: reference.specification(case, x), case, x)
    short = outputs_and_gradients(lambda x: reference.short_form(case, x), case, x)
    assert exact.keys() == short.keys()
    assert ("dtheta" in exact) == (case.rotated and case.backward)
    for key, y in exact.items():
        assert relative_error(short[key], y) < 1e-11, key


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("scores", ["softmax", "rela"])
def test_the_short_form_of_blocks_is_the_specification(scores: str, causal: bool) -> None:
    case = replace(TINY, operation="diag", block_size=32, scores=scores, causal=causal, dtype="float64")
    x = reference.make_inputs(case, CPU, seed=0)
    assert relative_error(reference.short_form(case, x)["o"], reference.specification(case, x)["o"]) < 1e-12


def test_a_prefix_of_the_specification_needs_no_later_token() -> None:
    case = replace(TINY, dtype="float64", rotated=True, eps_placement="outside")
    x = reference.make_inputs(case, CPU, seed=0)
    cut = replace(x, q=x.q[:, :20], k=x.k[:, :20], v=x.v[:, :20])
    whole = reference.specification(case, x)["o"][:, :20]
    torch.testing.assert_close(reference.specification(replace(case, length=20), cut)["o"], whole)


@pytest.mark.parametrize("name", CASES)
def test_bytes_are_those_of_the_tensors(name: str) -> None:
    case = shortened(CASES[name])
    x = reference.make_inputs(case, HERE, seed=0)
    outputs = outputs_and_gradients(right(case), case, x)
    forward = [x.q, x.k, x.v, outputs["o"]]
    if case.operation == "step":
        forward += [x.state, outputs["state"]]
    tables = [torch.empty(2, case.length, case.head_dim // 2), x.reflection] if case.rotated else []
    backward = []
    if case.backward:
        gradients = [y for key, y in outputs.items() if key.startswith("d")]
        backward = [x.q, x.k, x.v, x.g, *gradients, *tables]
        if case.norm == "embedding":
            backward.append(outputs["o"])
    assert floors.moved_bytes(case) == sum(tensor.nbytes for tensor in (*forward, *tables, *backward))


@pytest.mark.parametrize(
    ("name", "per_token_head"),
    [
        ("norm causal d64", 8 * 64),
        ("norm causal d128", 8 * 128),
        ("norm causal d64, backward too", 24 * 64),
        ("norm bidirectional d64", 8 * 64),
        ("diag T2 d64, w 32", 8 * 64),
        ("diag T2 d64, w 64, backward too", 22 * 64),
        ("diag T1 d64, w 64, backward too", 24 * 64),
    ],
)
def test_floors_are_multiples_of_the_head_dimension_in_bfloat16(name: str, per_token_head: int) -> None:
    assert floors.moved_bytes(CASES_OF_A_GPU[name]) == per_token_head * 2**20


def test_a_decoding_step_moves_its_state_twice() -> None:
    case = CASES_OF_A_GPU["decode d128, batch 256"]
    assert floors.moved_bytes(case) == (8 * 128**2 + 8 * 128) * 256 * 32


def test_a_rotation_adds_its_tables_to_the_floor() -> None:
    plain, turned = CASES_OF_A_GPU["norm causal d64"], CASES_OF_A_GPU["norm causal d64, as released"]
    assert floors.moved_bytes(turned) - floors.moved_bytes(plain) == 4 * (4096 * 64 + 64)


@pytest.mark.parametrize("cases", [gpu_cases(), cpu_cases()], ids=["gpu", "cpu"])
def test_names_are_unique_and_aims_are_at_contestants_that_enter(cases: tuple[Case, ...]) -> None:
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        entering = {contestant.name for contestant in contestants() if contestant.enters(case)}
        assert OURS in entering
        assert {name for aim in case.aims for name in aim.against} <= entering


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES_OF_A_GPU)
def test_our_kernels_take_part_in_every_case_and_are_right(name: str) -> None:
    case = shortened(CASES_OF_A_GPU[name])
    ours = next(c for c in contestants() if c.name == OURS)
    errors, bounds = Judge(case, HERE).judge(ours, ours.build)
    assert {key: error for key, error in errors.items() if not error <= bounds[key]} == {}


def test_a_wrong_peer_is_marked_wrong_and_left_out_of_comparisons() -> None:
    result, said = quiet_run(named(OURS, right), named("right", right), named("wrong", wrong))
    assert statuses(result) == {OURS: "measured", "right": "measured", "wrong": "wrong"}
    row = result["cases"][0]["rows"][2]
    assert row["errors"]["o"] == pytest.approx(1e-3, rel=1e-2)
    assert row["errors"]["o"] > row["bounds"]["o"]
    assert "o is off by 1.0e-03" in row["reason"]
    assert any("WRONG" in line and "wrong" in line for line in said)
    (comparison,) = result["cases"][0]["comparisons"]
    assert comparison["fastest"] == "right"
    own, peer = (r["seconds"]["median"] for r in result["cases"][0]["rows"][:2])
    assert comparison["ratio"] == peer / own
    assert run.succeeded(result)


@pytest.mark.parametrize("build", [wrong, raising], ids=["wrong", "failed"])
def test_the_run_fails_if_ours_is_wrong_or_fails(build: object) -> None:
    result, _ = quiet_run(named(OURS, build), named("right", right))
    assert not run.succeeded(result)
    assert result["cases"][0]["comparisons"][0]["fastest"] == "right"
    assert result["cases"][0]["comparisons"][0]["ratio"] is None


def test_a_missing_gradient_and_a_nan_are_wrong() -> None:
    def no_gradient(case: Case) -> Forward:
        return lambda x: {"o": reference.specification(case, replace(x, k=x.k.detach()))["o"]}

    def nan(case: Case) -> Forward:
        return lambda x: {"o": reference.specification(case, x)["o"] * float("nan")}

    result, said = quiet_run(named("no gradient", no_gradient), named("nan", nan))
    assert set(statuses(result).values()) == {"wrong"}
    assert result["cases"][0]["rows"][0]["errors"]["dk"] is None
    assert result["cases"][0]["rows"][1]["errors"]["o"] is None
    assert any("off by all" in line for line in said)
    json.dumps(result, allow_nan=False)


def test_a_missing_and_a_failing_peer_are_reported_and_stop_no_other() -> None:
    missing = named("missing", right, package="no_such_package")
    result, said = quiet_run(missing, named("raising", raising), named("right", right))
    assert statuses(result) == {"missing": "left out", "raising": "failed", "right": "measured"}
    reasons = {row["name"]: row["reason"] for row in result["cases"][0]["rows"]}
    assert reasons["missing"] == "no_such_package is not installed"
    assert reasons["raising"] == "RuntimeError: no kernel image is available"
    assert "  left out, no_such_package is not installed: missing" in said
    assert any("failed: RuntimeError: no kernel image" in line for line in said)


def test_what_needs_a_gpu_is_left_out_on_a_cpu() -> None:
    result, _ = quiet_run(Contestant(OURS, everyone, right))
    assert result["cases"][0]["rows"][0]["reason"] == "needs a CUDA device"
    assert run.succeeded(result)


def test_a_peer_is_checked_against_the_function_it_computes() -> None:
    bare = {"phi": "identity", "norm": "none"}

    def without_norm(case: Case) -> Forward:
        return right(replace(case, phi="identity", norm="none"))

    result, _ = quiet_run(named("bare", without_norm, computes=bare), named("not bare", without_norm))
    assert statuses(result) == {"bare": "measured", "not bare": "wrong"}
    assert result["cases"][0]["rows"][0]["computes"] == bare


def test_when_time_is_up_only_ours_are_measured() -> None:
    result, _ = quiet_run(named(OURS, right), named("right", right), seconds=0.0)
    assert statuses(result) == {OURS: "measured", "right": "left out"}
    assert "used up" in result["cases"][0]["rows"][1]["reason"]


def test_a_lost_gpu_ends_the_process_and_a_resumed_run_continues_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, lost = tmp_path / "result.json", []

    def breaking(case: Case) -> Forward:
        lost.append(True)
        raise RuntimeError("an illegal memory access was encountered")

    peers = (named("right", right), named("breaking", breaking), named("last", right))
    monkeypatch.setattr(run, "_lost", lambda device: bool(lost))
    with pytest.raises(run.DeviceLost, match="tiny, breaking: RuntimeError: an illegal memory access"):
        quiet_run(*peers, path=path)
    before = results.read(path)
    assert statuses(before) == {"right": "measured", "breaking": "failed"}
    lost.clear()
    after, _ = quiet_run(*peers, path=path, resumed=results.read(path))
    assert statuses(after) == {"right": "measured", "breaking": "failed", "last": "measured"}
    assert after["cases"][0]["rows"][:2] == before["cases"][0]["rows"]
    assert after["copy_bytes_per_second"] == before["copy_bytes_per_second"]
    assert after["seconds"] > before["seconds"]


def test_a_process_that_dies_leaves_a_row_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "result.json"

    def dying(case: Case) -> Forward:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quiet_run(named("dying", dying), path=path)
    (row,) = results.read(path)["cases"][0]["rows"]
    assert (row["status"], row["reason"]) == ("failed", "the process died in it")


def test_the_command_runs_on_this_machine_and_writes_the_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    command = ["--quick", "--only", "diag T1", "--repeats", "2", "--json", str(tmp_path)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "No CUDA device" in said
    assert "quick: no result" in said
    assert "left out, needs a CUDA device: compiled" in said
    (path,) = tmp_path.glob("kernels-*-quick.json")
    result = results.read(path)
    assert set(result) == {
        "schema", "device", "kind", "capability", "driver", "l2_bytes", "threads", "versions", "commit", "date",
        "quick", "repeats", "copy_bytes_per_second", "seconds", "cases",
    }  # fmt: skip
    (case,) = result["cases"]
    assert set(case) == {
        "name", "dtype", "shape", "options", "tensors", "bytes", "floor_seconds", "aim_of_floor", "comparisons", "rows",
    }  # fmt: skip
    assert case["floor_seconds"] == case["bytes"] / result["copy_bytes_per_second"]
    assert case["bytes"] == sum(case["tensors"].values())
    for row in case["rows"]:
        if row["status"] == "left out":
            assert set(row) == {"name", "status", "reason"}
            continue
        assert set(row) == {
            "name", "status", "reason", "computes", "errors", "bounds", "worst", "checked_shape", "times", "seconds",
            "how", "note", "of_floor",
        }  # fmt: skip
        assert row["status"] == "measured"
        assert row["how"] == "clock"
        assert len(row["times"]) == 2
        assert row["seconds"]["min"] <= row["seconds"]["median"] <= row["seconds"]["max"]
        assert row["of_floor"] == case["floor_seconds"] / row["seconds"]["median"]
        assert set(row["errors"]) == set(row["bounds"]) == {"o", "dq", "dk", "dv"}
    assert set(table.whole(result)) <= set(said.splitlines()) | {f"\n{line}" for line in said.splitlines()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "no such case"], "only='no such case': no case contains it"),
        (["--json", "FILE", "--resume"], "cannot be read as a result"),
    ],
    ids=["unknown case", "nothing to resume"],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(tmp_path / "nothing.json") if argument == "FILE" else argument for argument in arguments]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_result_is_named_after_its_device_and_day() -> None:
    result = {"device": "NVIDIA H200", "date": "2026-11-21T23:59:00+00:00", "quick": False}
    assert results.file_name(result) == "kernels-nvidia-h200-2026-11-21.json"


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"schema": 0, "cases": []}')
    with pytest.raises(ValueError, match="must be a result of this benchmark, schema 1"):
        results.read(path)


@pytest.mark.parametrize(("size", "sets"), [(2**30, 2), (60 * 2**20, 4), (2**20, 240), (2**10, 256)])
def test_the_sets_together_exceed_the_cache_four_times_where_256_suffice(size: int, sets: int) -> None:
    assert timing.sets_needed(size, 60 * 2**20) == sets


def test_reducing_a_case_keeps_what_decides_the_launch() -> None:
    for case in gpu_cases():
        reduced = case.reduced(2**27)
        assert (reduced.batch, reduced.heads, reduced.head_dim) == (case.batch, case.heads, case.head_dim)
        assert reduced.length % 128 == 0 or case.operation == "step"
        assert reduced.batch * reduced.heads * reduced.length**2 <= 2**27


def stand_in(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, normalize: bool) -> torch.Tensor:
    """Linear attention with flash-linear-attention's documented arguments."""
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()).tril() * scale
    if normalize:
        scores = scores / scores.sum(-1, keepdim=True)
    return torch.einsum("bhij,bjhd->bihd", scores, v.double()).to(v.dtype)


def chunk_linear_attn(q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=True):
    return stand_in(q, k, v, q.shape[-1] ** -0.5 if scale is None else scale, normalize), None


def fused_chunk_linear_attn(
    q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=True, head_first=True
):
    assert not head_first
    return chunk_linear_attn(q, k, v, scale, normalize=normalize)


def fused_recurrent_linear_attn(q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=False):
    state = initial_state + k[:, 0, :, :, None] * v[:, 0, :, None, :]
    o = (scale * q[:, 0, :, None, :].to(state.dtype) @ state)[..., 0, :]
    return o[:, None].to(v.dtype), state if output_final_state else None


PEERS = [
    (contestant.name, case.name)
    for contestant in contestants()
    for case in (
        CASES_OF_A_GPU["norm causal d64, backward too"],
        CASES_OF_A_GPU["norm bidirectional d64"],
        CASES_OF_A_GPU["scaled 1+elu causal d64"],
        CASES_OF_A_GPU["norm causal d64, as released, backward too"],
        CASES_OF_A_GPU["decode d128, batch 1"],
        CASES_OF_A_GPU["diag T2 d64, w 64, backward too"],
        CASES_OF_A_GPU["diag T1 d64, w 64, backward too"],
    )
    if (
        contestant.enters(case)
        and contestant.name not in (OURS, "FlexAttention", "flash-attn varlen")
        and not contestant.name.startswith("SDPA ")
    )
    or (contestant.enters(case) and contestant.name in ("SDPA blocks", "SDPA softmax"))
]


@pytest.mark.parametrize(("peer", "name"), PEERS, ids=lambda value: value)
def test_every_peer_is_given_what_it_documents(peer: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fla = types.ModuleType("fla.ops.linear_attn")
    vars(fla).update({f.__name__: f for f in (chunk_linear_attn, fused_chunk_linear_attn, fused_recurrent_linear_attn)})
    for module in ("fla", "fla.ops", "fla.ops.linear_attn"):
        monkeypatch.setitem(sys.modules, module, fla)
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    case = replace(shortened(CASES_OF_A_GPU[name]), dtype="float32")
    contestant = next(c for c in contestants() if c.name == peer)
    errors, bounds = Judge(case, CPU).judge(contestant, contestant.build)
    assert {key: error for key, error in errors.items() if not error <= bounds[key]} == {}


@pytest.mark.gpu
def test_a_call_that_cannot_be_captured_is_timed_by_events() -> None:
    x = torch.ones(1024, device="cuda")
    captured = timing.measure([lambda: x + 1], HERE, 3)
    assert (captured.how, captured.note) == ("cuda graph", "")
    waiting = timing.measure([lambda: (x + 1).sum().item()], HERE, 3)
    assert waiting.how == "events"
    assert waiting.note.startswith("no graph: ")
    assert timing.measure([lambda: x + 1], HERE, 3).how == "cuda graph"
