"""``transnormer bench``: the speed of attention, training, decoding and the kernels."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib.cli.common import mistake, positive

if TYPE_CHECKING:
    from transnormer_lib.analysis.benchmarks import Benchmark
    from transnormer_lib.analysis.step_products import StepBenchmark


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add the command to the parser's."""
    bench = commands.add_parser(
        "bench", parents=[common], help="measure the speed of attention, training, decoding or the kernels here"
    )
    bench.add_argument("what", choices=("attention", "training", "decoding", "kernels"))
    bench.add_argument(
        "--lengths", type=_lengths, help="tokens per sequence, or before a step, like 512,1024 (default: standard)"
    )
    bench.add_argument("--repeats", type=positive, help="rounds, each with all competitors (default: 5; kernels: 20)")
    bench.add_argument("--threads", type=positive, help="CPU threads (default: the preset's)")
    bench.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    bench.add_argument("--only", default="", metavar="CASE", help="kernels: the cases whose name contains this")
    bench.add_argument("--quick", action="store_true", help="kernels: short lengths, to check that everything works")
    bench.add_argument("--plot", type=Path, metavar="FILE.svg", help="kernels: draw the result")
    bench.add_argument("--read", type=Path, metavar="FILE.json", help="kernels: show this result, measure nothing")
    bench.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> int:
    from dataclasses import replace

    for name in ("only", "quick", "plot", "read"):
        if options.what != "kernels" and getattr(options, name):
            raise mistake(f"{name}: belongs to bench kernels, not to bench {options.what}")
    if options.read is not None:
        return _bench_read(options)

    from transnormer_lib.project import find_project

    preset = find_project(options.root).preset(options.preset)
    if options.threads:
        preset = replace(preset, threads=options.threads)
    os.environ.update(preset.environment)  # before torch is imported
    if options.what == "kernels":
        return _bench_kernels(options)
    from transnormer_lib.analysis import benchmarks, step_products

    def told(line: str) -> None:
        print(f"bench {options.what}: {line}", file=sys.stderr, flush=True)

    measures: dict[str, Callable[..., Benchmark | StepBenchmark]] = {
        "attention": benchmarks.attention, "training": benchmarks.training, "decoding": step_products.benchmark
    }  # fmt: skip
    result = measures[options.what](options.lengths, options.repeats or 5, told=told)
    print(result.as_text())
    if options.json is not None:
        from transnormer_lib.files import write_text

        write_text(options.json, result.as_json() + "\n")
    return 0


def _bench_kernels(options: argparse.Namespace) -> int:
    from transnormer_lib.studies.speed import kernel_benchmark

    try:
        result, right = kernel_benchmark.measure(
            only=options.only, repeats=options.repeats or 20, quick=options.quick, lengths=options.lengths,
            path=options.json,
        )  # fmt: skip
    except ValueError as wrong:
        raise mistake(str(wrong)) from wrong
    if options.plot is not None:
        _plot_kernels(result, options.plot)
    return 0 if right else 1


def _bench_read(options: argparse.Namespace) -> int:
    """Print and plot a result measured before, perhaps on another machine."""
    from transnormer_kernels.bench import results, table

    try:
        result = results.read(options.read)
    except ValueError as wrong:
        raise mistake(str(wrong)) from wrong
    for line in table.whole(result):
        print(line)
    if options.plot is not None:
        _plot_kernels(result, options.plot)
    return 0


def _plot_kernels(result: dict[str, Any], path: Path) -> None:
    from transnormer_lib.files import write_text
    from transnormer_lib.show import figures
    from transnormer_lib.studies.speed import kernel_figures

    figures.theme()
    try:
        figure = kernel_figures.speed(result)
    except ValueError as wrong:
        raise mistake(str(wrong)) from wrong
    write_text(path, figures.adaptive_svg(figure))


def _lengths(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]
