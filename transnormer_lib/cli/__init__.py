"""The ``transnormer`` command.

Exit codes: 0 success; 1 something failed; 2 a user's mistake, explained in one line; 130 interrupted. Imports are lazy,
so that ``--help`` answers at once.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from transnormer_lib import __version__
from transnormer_lib.cli import bench, runs
from transnormer_lib.cli.common import mistake, positive, take_up
from transnormer_lib.variables import names_refused_variables
from transnormer_lib.visible import shows_plainly

if TYPE_CHECKING:
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

    from transnormer_lib.ledger.judging import read_json_list
    from transnormer_lib.project import find_project

    project = find_project(options.root)
    preset = project.preset(options.preset)
    judged = read_json_list(project.report_dir(options.preset) / "claims.json")
    if options.keep:
        if not options.only:
            raise mistake("keep: needs --only, the notebooks whose results to keep")
        from transnormer_lib.report.keep import keep

        os.environ.update(preset.environment)  # before torch is imported
        for notebook in project.select(options.only):
            print(f"kept: {keep(project, options.preset, notebook).relative_to(project.root)}")
        return 0
    from transnormer_lib.report import origins

    chosen = project.select(options.only)
    for line in origins.told(project, options.preset, chosen):
        print(f"claims: {line}", file=sys.stderr)
    if options.only:
        judged = [claim for claim in judged if claim["notebook"] in chosen]
    if options.json:
        print(json.dumps(judged, indent=1, ensure_ascii=False))
        return 0
    for claim in judged:
        print(f"{claim['verdict']:15} {claim['locus']:20} {claim['id']}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    import json

    project, preset, notebooks = take_up(options)
    from transnormer_lib.report import plan

    device = plan.measure_device(gpu=preset.device == "gpu")
    runs = plan.plan(project, options.preset, notebooks, device)
    print(json.dumps(plan.as_json(runs), indent=1) if options.json else plan.as_text(runs, device, options.preset))
    return 0


def _train(options: argparse.Namespace) -> int:
    if options.config is not None:
        if options.only or options.run_pattern or options.jobs > 1:
            raise mistake("config: give one run's YAML, or --preset with --only, --run and --jobs, not both")
        from transnormer_lib.training.__main__ import main as train_one

        return train_one([str(options.config)] + (["--tracker", options.tracker] if options.tracker else []))
    project, _, notebooks = take_up(options)
    from transnormer_lib.report.train import train_lacking

    return train_lacking(project, options.preset, notebooks, options.run_pattern, options.tracker, options.jobs)


def _sweep(options: argparse.Namespace) -> int:
    if options.json and not options.dry_run:
        raise mistake("json: belongs to --dry-run")
    if options.dry_run and (options.processes > 1 or options.snakemake):
        raise mistake("dry-run: trains nothing, so it takes neither --processes nor arguments after --")
    project, preset, notebooks = take_up(options)
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


def _data(options: argparse.Namespace) -> int:
    import json

    from transnormer_lib.project import find_project

    for name, owner in (("json", "list"), ("accept", "check")):
        if getattr(options, name) and options.what != owner:
            raise mistake(f"{name}: belongs to data {owner}, not to data {options.what}")
    from transnormer_lib.data import sources
    from transnormer_lib.data.faults import DataFault
    from transnormer_lib.report import data

    try:
        sources.check_places()
    except DataFault as fault:
        raise mistake(str(fault)) from fault
    needed, heading = None, "every data set that the companion can read"
    if options.preset is not None:
        project = find_project(options.root)
        project.preset(options.preset)
        needed = data.needs(project, options.preset, project.select(options.only))
        heading = f"what preset {options.preset!r} needs"
    elif options.only:
        raise mistake("only: needs --preset, whose parameters name the data")
    if options.what == "fetch":
        return data.fetch(needed)
    if options.what == "check":
        return data.check(needed, accept=options.accept)
    rows = data.entries(needed, hashed=True)
    print(json.dumps(rows, indent=1, default=vars) if options.json else data.listing(rows, heading))
    return 0


def _repeat(options: argparse.Namespace) -> int:
    project, _, notebooks = take_up(options)
    from transnormer_lib.report.repeat import repeat

    return repeat(project, options.preset, notebooks, options.sample, options.seed, options.tolerance)


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
    cores.add_argument("--cores", type=positive, default=_cores(), help="jobs at a time (default: all cores)")
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
        help="run nothing; show what differs between two presets, claims.json or kept files, such at COMMIT:PATH, "
        "or the reports committed at two COMMITs",
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
    train.add_argument("--jobs", type=positive, default=1, help="runs at a time, each in its own process (default: 1)")
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

    runs.add(commands, chosen)
    repeat = commands.add_parser(
        "repeat", parents=[chosen], help="train some of the kept runs again, from nothing, and compare the numbers"
    )
    repeat.add_argument("--sample", type=positive, default=10, help="how many, drawn from all (default: 10)")
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
    sweep.add_argument("--processes", type=positive, default=1, help="processes per run, by torchrun (default: 1)")
    sweep.add_argument("--dry-run", action="store_true", help="train nothing: runs stored and left, core-hours left")
    sweep.add_argument("--json", action="store_true", help="with --dry-run: the same as JSON")
    sweep.set_defaults(run=_sweep)

    bench.add(commands, common)
    return parser


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0.0 <= (value := float(text)) <= 1.0:
            return value
    raise argparse.ArgumentTypeError(f"{text!r}: must be a number from 0 to 1")


@shows_plainly
@names_refused_variables
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
        from transnormer_lib.progress import GOES_ON

        goes_on = options.command in ("train", "repeat") or getattr(options, "what", None) == "fetch"
        print(f"{options.command}: {GOES_ON if goes_on else 'interrupted'}", file=sys.stderr)
        return 130
    except OSError as problem:  # a full disk, a folder that may not be written
        print(f"transnormer: {' '.join(str(problem).split())}", file=sys.stderr)
        return 1
    except ValueError as wrong:
        from transnormer_lib.data.faults import DataFault
        from transnormer_lib.project import UserMistake

        if not isinstance(wrong, UserMistake | DataFault):
            raise
        print(f"transnormer: {wrong}", file=sys.stderr)
        return 2 if isinstance(wrong, UserMistake) else 1
