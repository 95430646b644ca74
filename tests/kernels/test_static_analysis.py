"""Checks of the compiled kernels without a GPU."""

import json
import os
import subprocess
import sys

import pytest
import torch
from linear_cases import specification
from transnormer_kernels import linear_ops, norm_attention
from transnormer_kernels.configurations import Configuration, configuration, entries, tile_width
from transnormer_kernels.static_analysis import SHARED


@pytest.mark.slow
def test_the_compiled_kernels_of_the_paper_s_configuration_do_not_spill(tmp_path):
    table = tmp_path / "table.json"
    command = [sys.executable, "-m", "transnormer_kernels.static_analysis", "--only", "d64 bfloat16 embedding causal"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [*command, "--json", str(table)], env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kernels = {(row["case"], row["kernel"]): row for row in json.loads(table.read_text())}
    assert {name for _, name in kernels} >= {"segment_states", "scan", "outputs", "segment_gradients", "gradients"}
    assert all(row["spilled"] == 0 and 0 < row["registers"] <= 255 for row in kernels.values())
    products = {"segment_states", "outputs", "segment_gradients", "gradients"}
    assert all(row["tensor_cores"] for (_, name), row in kernels.items() if name in products)


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 128])
def test_no_linear_kernel_needs_more_shared_memory_than_a_small_gpu_has(width, tmp_path):
    table = tmp_path / "table.json"
    command = [sys.executable, "-m", "transnormer_kernels.static_analysis", "--only", f"linear d{width} bfloat16"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command += ["--arch", "89", "--json", str(table)]
    subprocess.run(command, env=environment, check=False, capture_output=True, timeout=280)
    kernels = json.loads(table.read_text())
    assert {row["kernel"] for row in kernels} >= {"segment_states", "outputs", "segment_gradients", "gradients"}
    assert [(row["case"], row["kernel"], row["shared"]) for row in kernels if row["shared"] > SHARED[89]] == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("head_dim", [16, 64, 80, 128])
@pytest.mark.parametrize("kernel", ["segment_states", "outputs", "segment_gradients", "gradients"])
def test_every_kernel_has_a_configuration_whose_parts_fill_the_tile(kernel, head_dim, dtype):
    for extras in range(8):
        entry = configuration(kernel, head_dim, dtype, extras)
        assert linear_ops.SAVED_SEGMENT % entry.rows == 0
        assert tile_width(head_dim) % min(entry.part, tile_width(head_dim)) == 0


TILES = sorted({(e.rows, e.part) for key, e in entries().items() if key[0] in ("outputs", "gradients")})


@pytest.mark.slow
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: f"{tile[0]}-rows-{tile[1]}-columns")
@pytest.mark.parametrize("norm", ["embedding", "denominator"])
def test_rows_and_parts_of_a_tile_change_nothing_but_the_rounding(tile, norm, monkeypatch):
    monkeypatch.setattr(linear_ops, "configuration", lambda *_: Configuration(tile[0], 4, 1, tile[1]))
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 40, 2, 80, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(3))
    ours, (theirs, _) = norm_attention(q, k, v, norm=norm), specification(q, k, v, norm=norm)
    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    g = torch.cos(q.detach())
    gradients = zip(torch.autograd.grad(ours, [q, k, v], g), torch.autograd.grad(theirs, [q, k, v], g), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-8, atol=1e-8 * b.abs().max()) for a, b in gradients)
