"""The ``transnormer`` command.

Exit codes: 0 success; 1 something failed; 2 a user's mistake, explained in one line; 130 interrupted. Imports are lazy,
so that ``--help`` answers at once.
"""

import argparse
import itertools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transnormer_lib import __version__

if TYPE_CHECKING:
    from transnormer_lib.analysis.benchmarks import Benchmark
    from transnormer_lib.analysis.step_products import StepBenchmark
    from transnormer_lib.project import Preset, Project


def _report(options: argparse.Namespace) -> int:
    from transnormer_lib.project import find_project
    from transnormer_lib.report.make import make_report
    from transnormer_lib.report.signals import on_ending

    on_ending(signal.default_int_handler)  # `kill` and a closed terminal end a report as Ctrl-C does
    project = find_project(options.root)
    if options.compare:
        from transnormer_lib.report.compare import compare

        return compare(project, options.compare)
    return make_report(project, options.preset, options.only, options.cores, options.snakemake)


def _claims(options: argparse.Namespace) -> int:
    import json

    from transnormer_lib.project import UserMistake, find_project

    project = find_project(options.root)
    project.preset(options.preset)
    path = project.report_dir(options.preset) / "claims.json"
    if not path.exists():
        hint = f"run: transnormer report --preset {options.preset}"
        raise UserMistake(f"preset={options.preset!r}: has no report yet; {hint}")
    if options.keep:
        if not options.only:
            raise _mistake("keep: needs --only, the notebooks whose results to keep")
        from transnormer_lib.report.keep import keep

        os.environ.update(project.preset(options.preset).environment)  # before torch is imported
        for notebook in project.select(options.only):
            print(f"kept: {keep(project, options.preset, notebook).relative_to(project.root)}")
        return 0
    judged = json.loads(path.read_text(encoding="utf-8"))
    if options.only:
        chosen = project.select(options.only)
        judged = [claim for claim in judged if claim["notebook"] in chosen]
    if options.json:
        print(json.dumps(judged, indent=1, ensure_ascii=False))
        return 0
    for claim in judged:
        print(f"{claim['verdict']:15} {claim['locus']:20} {claim['id']}")
    return 0


def _chosen(options: argparse.Namespace) -> "tuple[Project, Preset, list[str]]":
    """The project, its preset, whose environment is now set, and the notebooks. Call it before torch is imported."""
    from transnormer_lib.project import find_project
    from transnormer_lib.report.signals import on_ending

    on_ending(signal.default_int_handler)
    project = find_project(options.root)
    preset, notebooks = project.preset(options.preset), project.select(options.only)
    os.environ.update(preset.environment)
    return project, preset, notebooks


def _plan(options: argparse.Namespace) -> int:
    import json

    project, preset, notebooks = _chosen(options)
    from transnormer_lib.report import plan

    device = plan.measure_device(gpu=preset.device == "gpu")
    runs = plan.plan(project, options.preset, notebooks, device)
    print(json.dumps(plan.as_json(runs), indent=1) if options.json else plan.as_text(runs, device, options.preset))
    return 0


def _train(options: argparse.Namespace) -> int:
    if options.config is not None:
        if options.only or options.run_pattern or options.jobs > 1:
            raise _mistake("config: give one run's YAML, or --preset with --only, --run and --jobs, not both")
        from transnormer_lib.training.__main__ import main as train_one

        return train_one([str(options.config)] + (["--tracker", options.tracker] if options.tracker else []))
    project, _, notebooks = _chosen(options)
    from transnormer_lib.report.train import train_lacking

    return train_lacking(project, options.preset, notebooks, options.run_pattern, options.tracker, options.jobs)


def _sweep(options: argparse.Namespace) -> int:
    if options.json and not options.dry_run:
        raise _mistake("json: belongs to --dry-run")
    if options.dry_run and (options.processes > 1 or options.snakemake):
        raise _mistake("dry-run: trains nothing, so it takes neither --processes nor arguments after --")
    project, preset, notebooks = _chosen(options)
    if options.dry_run:
        return _forecast(options, project, preset, notebooks)
    from transnormer_lib.report.sweep import sweep

    return sweep(
        project, options.preset, notebooks, options.run_pattern, options.cores, options.processes, options.snakemake
    )


def _forecast(options: argparse.Namespace, project: "Project", preset: "Preset", notebooks: list[str]) -> int:
    import json

    from transnormer_lib.report import forecast, plan

    device = plan.measure_device(gpu=preset.device == "gpu")
    found = forecast.forecast(project, options.preset, notebooks, options.run_pattern, device)
    if options.json:
        print(json.dumps(forecast.as_json(found), indent=1))
    else:
        print(forecast.as_text(found, options.preset, options.cores))
    return 0


def _bench(options: argparse.Namespace) -> int:
    from dataclasses import replace

    for name in ("only", "quick", "plot", "read"):
        if options.what != "kernels" and getattr(options, name):
            raise _mistake(f"{name}: belongs to bench kernels, not to bench {options.what}")
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

    measures: dict[str, Callable[[list[int] | None, int], Benchmark | StepBenchmark]] = {
        "attention": benchmarks.attention, "training": benchmarks.training, "decoding": step_products.benchmark
    }  # fmt: skip
    result = measures[options.what](options.lengths, options.repeats or 5)
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
    except ValueError as mistake:
        raise _mistake(str(mistake)) from mistake
    if options.plot is not None:
        _plot_kernels(result, options.plot)
    return 0 if right else 1


def _bench_read(options: argparse.Namespace) -> int:
    """Print and plot a result measured before, perhaps on another machine."""
    from transnormer_kernels.bench import results, table

    try:
        result = results.read(options.read)
    except ValueError as mistake:
        raise _mistake(str(mistake)) from mistake
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
    except ValueError as mistake:
        raise _mistake(str(mistake)) from mistake
    write_text(path, figures.adaptive_svg(figure))


def _data(options: argparse.Namespace) -> int:
    import json

    from transnormer_lib.project import find_project

    for name, owner in (("json", "list"), ("accept", "check")):
        if getattr(options, name) and options.what != owner:
            raise _mistake(f"{name}: belongs to data {owner}, not to data {options.what}")
    from transnormer_lib.data import sources
    from transnormer_lib.data.faults import DataFault
    from transnormer_lib.report import data

    try:
        sources.data_root()
    except DataFault as fault:
        raise _mistake(str(fault)) from fault
    needed, heading = None, "every data set that the companion can read"
    if options.preset is not None:
        project = find_project(options.root)
        project.preset(options.preset)
        needed = data.needs(project, options.preset, project.select(options.only))
        heading = f"what preset {options.preset!r} needs"
    elif options.only:
        raise _mistake("only: needs --preset, whose parameters name the data")
    if options.what == "fetch":
        return data.fetch(needed)
    if options.what == "check":
        return data.check(needed, accept=options.accept)
    rows = data.entries(needed, hashed=True)
    print(json.dumps(rows, indent=1, default=vars) if options.json else data.listing(rows, heading))
    return 0


def _runs(options: argparse.Namespace) -> int:
    import json

    if (options.what == "list") == (options.name is not None):
        raise _mistake("run: show and generate need a run's name or folder, export and import a file; list takes none")
    if options.what in ("export", "import"):
        return _carry(options)
    from transnormer_lib.report import runs
    from transnormer_lib.training.store import RunStore
    from transnormer_lib.training.stored_run import RunDamaged, RunFailed

    store = RunStore(options.store)
    if options.what == "list":
        found = runs.entries(store)
        print(json.dumps(found, indent=1) if options.json else runs.table(found))
        return 0
    try:
        run = store.load(options.name)
        if options.what == "show":
            print(json.dumps(run.record, indent=1) if options.json else runs.shown(run))
            return 0
        from transnormer_lib.models.sampling import Sampling

        sampling = Sampling(options.temperature, options.top_k, options.top_p)
        pieces = run.stream(options.prompt, options.tokens, sampling, options.seed, options.stop or ())
        for piece in itertools.chain([options.prompt], pieces, ["\n"]):
            print(piece, end="", flush=True)
    except (RunDamaged, RunFailed) as problem:
        print(f"transnormer: {problem}", file=sys.stderr)
        return 1
    except ValueError as mistake:
        raise _mistake(str(mistake)) from mistake
    return 0


def _export(options: argparse.Namespace) -> int:
    from transnormer_lib.training.export import export
    from transnormer_lib.training.store import RunStore
    from transnormer_lib.training.stored_run import RunDamaged, RunFailed

    try:
        export(RunStore(options.store).load(options.name), options.folder)
    except (RunDamaged, RunFailed) as problem:
        print(f"transnormer: {problem}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as mistake:
        raise _mistake(str(mistake)) from mistake
    print(f"exported: {', '.join(sorted(path.name for path in options.folder.iterdir()))} in {options.folder}")
    return 0


def _carry(options: argparse.Namespace) -> int:
    """Export the records of a preset's stored runs, or import those of a file."""
    project, _, notebooks = _chosen(options)
    from transnormer_lib.report.plan import StoredRuns
    from transnormer_lib.report.train import runs_of
    from transnormer_lib.training import carried
    from transnormer_lib.training.store import RunStore
    from transnormer_lib.training.stored_run import RunDamaged, read_run

    store, file = RunStore(options.store), Path(options.name)
    try:
        if options.what == "import":
            new, known = carried.read(file, store)
            print(f"runs: {new} records added to {store.root}, {known} were there")
            return 0
        stored = StoredRuns(store.root)
        configs = [config for notebook in notebooks for config in runs_of(project, options.preset, notebook)]
        written = carried.write([read_run(found[0]) for config in configs if (found := stored.find(config))], file)
        print(f"runs: {written} records of {len({config.name for config in configs})} runs in {file}")
        return 0
    except RunDamaged as damage:
        print(f"transnormer: {damage}", file=sys.stderr)
        return 1
    except ValueError as mistake:
        raise _mistake(str(mistake)) from mistake


def _repeat(options: argparse.Namespace) -> int:
    project, _, notebooks = _chosen(options)
    from transnormer_lib.report.repeat import repeat

    return repeat(project, options.preset, notebooks, options.sample, options.seed, options.tolerance)


def _mistake(line: str) -> ValueError:
    from transnormer_lib.project import UserMistake

    return UserMistake(line)


def _lengths(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="transnormer", description="Check 'The Devil in Linear Transformer' (TransNormer) claim by claim."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Options that several commands share.
    common, chosen, cores, named = (argparse.ArgumentParser(add_help=False) for _ in range(4))
    for parent in (common, chosen):
        parent.add_argument("--preset", default="quick", help="the scale, a folder of params/ (default: quick)")
        parent.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    chosen.add_argument("--only", nargs="+", metavar="NN", help="notebooks by number or name (default: all)")
    cores.add_argument("--cores", type=_positive, default=_cores(), help="jobs at a time (default: all cores)")
    named.add_argument("--run", dest="run_pattern", metavar="PATTERN", help="runs whose name matches, like '*-seed0'")
    after = "Arguments after -- go to Snakemake: transnormer"

    report = commands.add_parser(
        "report",
        parents=[chosen, cores],
        help="run the stale notebooks, publish reports/PRESET/index.html",
        epilog=f"{after} report --preset paper -- --executor slurm",
    )
    report.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="run nothing; show what differs between two presets, claims.json or kept files, or such at COMMIT:PATH",
    )
    report.set_defaults(run=_report)

    claims = commands.add_parser("claims", parents=[chosen], help="print the verdicts of the last report")
    claims.add_argument("--json", action="store_true", help="print the ledger as JSON")
    claims.add_argument(
        "--keep",
        action="store_true",
        help="write verdicts and runs, with the machine and the plans' commits, to reports/kept/, to be committed",
    )
    claims.set_defaults(run=_claims)

    plan = commands.add_parser(
        "plan", parents=[chosen], help="what a preset would train: sizes, FLOPs, hours here; trains nothing"
    )
    plan.add_argument("--json", action="store_true", help="one object per run")
    plan.set_defaults(run=_plan)

    train = commands.add_parser(
        "train", parents=[chosen, named], help="train one run from a YAML, or the runs of a preset that the store lacks"
    )
    train.add_argument("config", nargs="?", type=Path, metavar="CONFIG.yaml", help="the fields of one run")
    train.add_argument("--jobs", type=_positive, default=1, help="runs at a time, each in its own process (default: 1)")
    train.add_argument("--tracker", metavar="NAME", help="also report to this tracker: tensorboard, wandb, ...")
    train.set_defaults(run=_train)

    data = commands.add_parser("data", help="which data a preset needs, and whether they are here and intact")
    data.add_argument(
        "what",
        choices=("list", "fetch", "check"),
        help="list: sizes, licences, fingerprints, places; fetch: get missing data from the Hub; check: read all data",
    )
    data.add_argument("--preset", help="only what this scale needs (default: all data sets)")
    data.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    data.add_argument("--only", nargs="+", metavar="NN", help="only what these notebooks of the preset need")
    data.add_argument("--json", action="store_true", help="list: one object per split")
    data.add_argument(
        "--accept", action="store_true", help="check: record the fingerprints of files changed on purpose"
    )
    data.set_defaults(run=_data)

    runs = commands.add_parser(
        "runs",
        parents=[chosen],
        help="the trained runs: list them, show one, let one write text, carry their records to another machine",
    )
    runs.add_argument("what", choices=("list", "show", "generate", "export", "import"))
    runs.add_argument("name", nargs="?", metavar="RUN", help="a run's folder or name; export, import: a file")
    runs.add_argument("--store", type=Path, help="the runs (default: $TRANSNORMER_RUNS or runs/)")
    runs.add_argument("--json", action="store_true", help="list, show: as JSON")
    runs.add_argument("--prompt", default="The ", metavar="TEXT", help="generate: the text to continue")
    runs.add_argument("--tokens", type=_positive, default=200, help="generate: how many to write (default: 200)")
    runs.add_argument("--temperature", type=float, default=0.8, help="generate: 0 writes the likeliest (default: 0.8)")
    runs.add_argument("--top-k", type=int, default=0, metavar="K", help="generate: draw from the K likeliest (0: all)")
    runs.add_argument("--top-p", type=float, default=0.95, help="generate: draw from the likeliest with this share")
    runs.add_argument("--stop", action="append", metavar="TEXT", help="generate: end with this text; may be repeated")
    runs.add_argument("--seed", type=int, default=0, help="generate: another seed, another text")
    runs.set_defaults(run=_runs)

    export = commands.add_parser("export", help="make a folder of a run's model to share, as on the Hugging Face Hub")
    export.add_argument("name", metavar="RUN", help="a run's folder or name")
    export.add_argument("folder", type=Path, metavar="DIR", help="a new folder: weights, config, vocabulary, card")
    export.add_argument("--store", type=Path, help="the runs (default: $TRANSNORMER_RUNS or runs/)")
    export.set_defaults(run=_export)

    repeat = commands.add_parser(
        "repeat", parents=[chosen], help="train some of the kept runs again, from nothing, and compare the numbers"
    )
    repeat.add_argument("--sample", type=_positive, default=10, help="how many, drawn from all (default: 10)")
    repeat.add_argument("--seed", type=int, default=0, help="another seed, another sample")
    repeat.add_argument(
        "--tolerance", type=_share, default=0.0, help="by which share a number may differ (default: 0, bit for bit)"
    )
    repeat.set_defaults(run=_repeat)

    sweep = commands.add_parser(
        "sweep",
        parents=[chosen, cores, named],
        help="train the runs of a preset that the store lacks, one Snakemake job each: here or on a cluster",
        epilog=f"{after} sweep --preset paper -- --executor slurm --jobs 50",
    )
    sweep.add_argument("--processes", type=_positive, default=1, help="processes per run, by torchrun (default: 1)")
    sweep.add_argument("--dry-run", action="store_true", help="train nothing: runs stored and left, core-hours left")
    sweep.add_argument("--json", action="store_true", help="with --dry-run: the same as JSON")
    sweep.set_defaults(run=_sweep)

    bench = commands.add_parser(
        "bench", parents=[common], help="measure the speed of attention, training, decoding or the kernels here"
    )
    bench.add_argument("what", choices=("attention", "training", "decoding", "kernels"))
    bench.add_argument(
        "--lengths", type=_lengths, help="tokens per sequence, or before a step, like 512,1024 (default: standard)"
    )
    bench.add_argument("--repeats", type=_positive, help="rounds, each with all competitors (default: 5; kernels: 20)")
    bench.add_argument("--threads", type=_positive, help="CPU threads (default: the preset's)")
    bench.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    bench.add_argument("--only", default="", metavar="CASE", help="kernels: the cases whose name contains this")
    bench.add_argument("--quick", action="store_true", help="kernels: short lengths, to check that everything works")
    bench.add_argument("--plot", type=Path, metavar="FILE.svg", help="kernels: draw the result")
    bench.add_argument("--read", type=Path, metavar="FILE.json", help="kernels: show this result, measure nothing")
    bench.set_defaults(run=_bench)
    return parser


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least 1")
    return int(text)


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0.0 <= (value := float(text)) <= 1.0:
            return value
    raise argparse.ArgumentTypeError(f"{text!r}: must be a number from 0 to 1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    parser = _parser()
    options = parser.parse_args(given[:end])
    options.snakemake = given[end + 1 :]
    if options.snakemake and options.command not in ("report", "sweep"):
        parser.error(f"{options.command} takes nothing after --")
    try:
        return options.run(options)
    except BrokenPipeError:
        sys.stdout = None  # nobody reads, so nothing may be flushed at exit
        return 0
    except KeyboardInterrupt:
        print("transnormer: interrupted", file=sys.stderr)
        return 130
    except ValueError as mistake:
        from transnormer_lib.data.faults import DataFault
        from transnormer_lib.project import UserMistake

        if not isinstance(mistake, UserMistake | DataFault):
            raise
        print(f"transnormer: {mistake}", file=sys.stderr)
        return 2 if isinstance(mistake, UserMistake) else 1


if __name__ == "__main__":
    raise SystemExit(main())
