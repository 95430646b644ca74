"""``python -m transnormer_kernels.bench``: see the package's docstring.

Exit code 0: our own rows are correct, or left out for lack of a GPU; 1: one is wrong or failed; 2: a user's mistake,
reported in one line.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from transnormer_kernels.bench import results
from transnormer_kernels.bench.cases import Case, cpu_cases, gpu_cases
from transnormer_kernels.bench.contestants import contestants
from transnormer_kernels.bench.run import DeviceLost, run, succeeded


def _chosen(kind: str, only: str, quick: bool) -> list[Case]:
    """The cases of a device whose name contains ``only``. Raises ValueError if there is none."""
    cases = gpu_cases() if kind == "cuda" else cpu_cases()
    chosen = [case.quick() if quick else case for case in cases if only in case.name]
    if not chosen:
        names = "; ".join(case.name for case in cases)
        raise ValueError(f"only={only!r}: no case contains it; there are {names}")
    return chosen


def bench(
    *,
    only: str = "",
    repeats: int = 20,
    quick: bool = False,
    seconds: float = 440.0,
    path: Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Measure on the GPU if there is one, else on the CPU, and print each row as soon as it is measured.

    ``path``: the JSON file, or a folder in which it gets its name. ``resume`` continues the unfinished result there.
    Raises ValueError for a name that no case contains, and for a file that is not a result.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cases = _chosen(device.type, only, quick)
    if device.type == "cpu":
        print(
            "No CUDA device: the kernels and the peers that need one are left out; PyTorch's own forms, short lengths."
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json") if path is None or path.is_dir() else path
        resumed = results.read(file) if resume else None
        if resumed is not None and (resumed["kind"], resumed["quick"]) != (device.type, quick):
            was = f"{'--quick ' if resumed['quick'] else ''}{resumed['kind']}"
            raise ValueError(f"{file}: belongs to another run, {was}, and cannot be resumed here")
        try:
            result = run(
                cases, contestants(), device=device, repeats=repeats, quick=quick, seconds=seconds, path=file,
                resumed=resumed, say=lambda line: print(line, flush=True),
            )  # fmt: skip
        except DeviceLost as lost:
            print(f"  the GPU was lost ({lost}); a fresh process continues", flush=True)
            result = _in_fresh_processes(only, repeats, quick, seconds, file)
    if path is not None and path.is_dir():
        file = path / results.file_name(result)
        results.write(result, file)
        print(file)
    return result


def _in_fresh_processes(only: str, repeats: int, quick: bool, seconds: float, file: Path) -> dict[str, Any]:
    """Resume the result in ``file`` until it is complete."""
    command = [sys.executable, "-m", "transnormer_kernels.bench", "--resume", "--json", str(file), "--only", only]
    command += ["--repeats", str(repeats), "--seconds", str(seconds), *(["--quick"] if quick else [])]
    subprocess.run(command, check=False)
    return results.read(file)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 1")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m transnormer_kernels.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="CASE", help="only cases whose name contains this")
    parser.add_argument("--repeats", type=_positive, default=20, help="timed stretches per contestant (default: 20)")
    parser.add_argument("--quick", action="store_true", help="short lengths, only to check that everything works")
    parser.add_argument(
        "--seconds", type=_positive, default=440, help="after so many seconds, leave the remaining peers out"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there; a folder gets a new file")
    parser.add_argument("--resume", action="store_true", help="continue the unfinished result in --json FILE")
    options = parser.parse_args(arguments)
    if options.resume and (options.json is None or options.json.is_dir()):
        parser.error("--resume: needs --json FILE")
    try:
        result = bench(
            only=options.only, repeats=options.repeats, quick=options.quick, seconds=options.seconds,
            path=options.json, resume=options.resume,
        )  # fmt: skip
    except ValueError as mistake:
        print(f"bench: {mistake}", file=sys.stderr)
        return 2
    return 0 if succeeded(result) else 1


if __name__ == "__main__":
    raise SystemExit(main())
