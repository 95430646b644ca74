"""The benchmark of the kernels, and of the library's chunked form on a machine without a GPU.

``transnormer_kernels.bench`` measures the kernels. On a CPU only PyTorch's own forms remain there, so the chunked form
is compared with PyTorch's fused attention.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transnormer_kernels.bench import results
from transnormer_kernels.bench.__main__ import bench
from transnormer_kernels.bench.run import succeeded

from transnormer_lib.analysis import benchmarks

_QUICK_LENGTHS = (256, 512)


def measure(
    *,
    only: str = "",
    repeats: int = 20,
    quick: bool = False,
    lengths: Sequence[int] | None = None,
    path: Path | None = None,
) -> tuple[dict[str, Any], bool]:
    """Measure; print the result as it grows and write it to ``path``. Returns it, and whether our rows are right.

    The schema is that of ``transnormer_kernels.bench``. On a CPU and without ``only``, "library" is added, which holds
    what ``benchmarks.attention`` measured. If ``path`` is a folder, the result gets a name in it.
    Raises ValueError if no case's name contains ``only``, and for ``lengths`` on a GPU, where cases have their own.
    """
    if lengths and (torch.cuda.is_available() or only):
        why = "the cases chosen by --only have their own" if only else "the cases of a GPU have their own"
        raise ValueError(f"lengths={list(lengths)}: {why}")
    result: dict[str, Any] = {"cases": []}
    if find_spec("triton") is None:
        print("Triton is not installed: its kernels and their benchmark are left out.")
        right = True
    else:
        result = bench(only=only, repeats=repeats, quick=quick, path=path)
        right = succeeded(result)
        if path is not None and path.is_dir():
            path = path / results.file_name(result)
    if result.get("kind") != "cuda" and not only:
        library = benchmarks.attention(lengths or (_QUICK_LENGTHS if quick else None), min(repeats, 5))
        print(f"\nthe library's chunked form: {library.as_text()}")
        result["library"] = json.loads(library.as_json())
        if path is not None:
            results.write(result, path)
    return result, right
