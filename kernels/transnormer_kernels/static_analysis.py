"""Registers, spills and shared memory of every compiled kernel, without a GPU.

    python -m transnormer_kernels.static_analysis [--arch 90] [--only CASE] [--json FILE]

runs the operators on tensors of each head dimension and dtype, but only compiles each kernel that they launch, so the
compiled code is what a GPU would run. The assembler that Triton ships then reports registers and spills. The last
column marks kernels that are slower than necessary: they spill registers to memory, or their matrix products do not use
the tensor cores' own instructions (wgmma, on sm_90); and those that need more shared memory than such a GPU has.
"""

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction


@dataclass(frozen=True)
class Usage:
    """One compiled kernel: registers of a thread, bytes of them spilled to memory and back, bytes of shared memory."""

    case: str
    kernel: str
    warps: int
    registers: int
    spilled: int
    shared: int
    tensor_cores: bool  # its products use wgmma


# Bytes of shared memory that a program can have, by compute capability.
SHARED = {80: 166_912, 86: 101_376, 87: 166_912, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}


class _NoDevice:
    """The part of Triton's driver that a compilation needs."""

    def __init__(self, arch: int) -> None:
        self._target = GPUTarget("cuda", arch, 32)
        self.utils = SimpleNamespace(get_device_properties=lambda index: {"max_shared_mem": SHARED.get(arch, 2**62)})

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@contextmanager
def compiling(arch: int) -> Iterator[list[tuple[str, Any]]]:
    """Inside this context a launch only compiles the kernel for ``arch``; yields the list of (name, kernel)."""
    compiled: list[tuple[str, Any]] = []
    run: Callable[..., Any] = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        compiled.append((self.__name__, kernel))
        return kernel

    previous = driver._active  # the public name would look for a GPU
    driver.set_active(_NoDevice(arch))
    JITFunction.run = compile_only
    try:
        yield compiled
    finally:
        JITFunction.run = run
        driver._active = previous


def usage(case: str, name: str, kernel: Any) -> Usage:
    """A compiled kernel's resource usage, from the assembler."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(kernel.asm["ptx"])
        text = _assembled(source, re.findall(r"^\.target (\w+)", kernel.asm["ptx"], re.MULTILINE)[0])
    registers = re.search(r"Used (\d+) registers", text)
    spills = re.findall(r"(\d+) bytes spill", text)
    if registers is None or not spills:
        raise RuntimeError(f"the assembler reports no registers for {name}: {text}")
    return Usage(
        case, name, kernel.metadata.num_warps, int(registers[1]), sum(map(int, spills)), kernel.metadata.shared,
        "wgmma" in kernel.asm["ptx"],
    )  # fmt: skip


def _assembled(source: Path, target: str) -> str:
    """The assembler's report on ``source``. Triton ships several; the one for this version of PTX succeeds."""
    said = ""
    for tool in sorted((Path(triton.__file__).parent / "backends" / "nvidia" / "bin").glob("ptxas*")):
        command = [str(tool), "-v", f"--gpu-name={target}", str(source), "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stderr
        if done.returncode == 0:
            return said
    raise RuntimeError(f"no assembler of Triton {triton.__version__} takes {source.name} for {target}: {said}")


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """Every configuration: tile widths, dtypes, norms, with and without the rotation."""
    for d, dtype in itertools.product((64, 128), (torch.bfloat16, torch.float16, torch.float32)):
        for norm, causal, rotated in itertools.product(("embedding", "denominator"), (True, False), (False, True)):
            if rotated and d > 64:  # rotated before the kernels
                continue
            kind = "causal" if causal else "bidirectional"
            name = f"linear d{d} {str(dtype)[6:]} {norm} {kind}{' rotated' if rotated else ''}"
            yield name, partial(_linear, d, dtype, norm, causal, rotated)
        for w, scores, rotated in itertools.product((64, 128), ("softmax", "rela"), (False, True)):
            if (dtype, d, w) != (torch.float32, 128, 128):  # refused: needs too much shared memory
                name = f"diag d{d} {str(dtype)[6:]} w{w} {scores}{' rotated' if rotated else ''}"
                yield name, partial(_diag, d, dtype, w, scores, rotated)


def _inputs(d: int, dtype: torch.dtype, rotated: bool) -> tuple[list[torch.Tensor], Any, Any]:
    tensors = [torch.zeros(2, 1024, 2, d, dtype=dtype) for _ in range(3)]
    return tensors, torch.zeros(d // 2) if rotated else None, torch.zeros(d) if rotated else None


def _linear(d: int, dtype: torch.dtype, norm: str, causal: bool, rotated: bool) -> None:
    from transnormer_kernels.linear_ops import linear_attention, linear_attention_backward

    (q, k, v), theta, reflection = _inputs(d, dtype, rotated)
    fixed: tuple[Any, ...] = ("1+elu", norm, causal, 1e-8, "inside", 1e-6, None, None, 0)
    linear_attention(q, k, v, *fixed, None, None, theta, reflection, 0, 2, False, False)  # as without a gradient
    o, scale, _, _, kv, z = linear_attention(q, k, v, *fixed, None, None, theta, reflection, 0, 2, True, True)
    linear_attention_backward(o, None, None, q, k, v, o, scale, kv, z, *fixed, theta, reflection, 0, rotated)


def _diag(d: int, dtype: torch.dtype, w: int, scores: str, rotated: bool) -> None:
    from transnormer_kernels import diag_attention  # noqa: F401  registers the operators

    (q, k, v), theta, reflection = _inputs(d, dtype, rotated)
    norm = "embedding" if scores == "rela" else "none"
    fixed: tuple[Any, ...] = (w, scores, True, norm, 1e-8, "inside", None, theta, reflection)
    o, scale = torch.ops.transnormer.diag_attention(q, k, v, *fixed)
    torch.ops.transnormer.diag_attention_backward(o, q, k, v, o, scale, *fixed, rotated)


def analyse(arch: int, only: str = "") -> Iterator[Usage]:
    """``Usage`` of every kernel in the cases whose name contains ``only``, each compiled once."""
    seen = set()
    for case, launch in cases():
        if only not in case:
            continue
        with compiling(arch) as compiled:
            launch()
        for name, kernel in compiled:
            if kernel.hash not in seen:
                seen.add(kernel.hash)
                yield usage(case, name, kernel)


def main(arguments: list[str] | None = None) -> int:
    """Print the table; exit code 1 if a kernel spills or needs too much shared memory."""
    parser = argparse.ArgumentParser(prog="python -m transnormer_kernels.static_analysis", description=__doc__)
    parser.add_argument("--arch", type=int, default=90, help="compute capability, like 90 for an H100 or H200")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--json", type=Path, help="also write the table there")
    options = parser.parse_args(arguments)
    print(f"{'case':<46} {'kernel':<18} warps registers spilled shared", flush=True)
    found, fails = [], False
    for u in analyse(options.arch, options.only):
        found.append(u)
        too_large = u.shared > SHARED.get(options.arch, u.shared)
        fails |= too_large or u.spilled > 0
        note = ("" if u.tensor_cores else "  no wgmma") + ("  SPILLS" if u.spilled else "")
        note += "  TOO LARGE" if too_large else ""
        print(f"{u.case:<46} {u.kernel:<18} {u.warps:5} {u.registers:9} {u.spilled:7} {u.shared:6}{note}", flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(u) for u in found], indent=1) + "\n")
    return int(fails)


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("TRITON_INTERPRET=1: unset it, the interpreter compiles nothing")
    sys.exit(main())
