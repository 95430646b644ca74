"""``transnormer runs`` and ``transnormer export``: the stored runs and their models."""

import argparse
import itertools
import sys
from pathlib import Path
from typing import Any

from transnormer_lib.cli.common import mistake, positive, take_up


def add(commands: Any, chosen: argparse.ArgumentParser) -> None:
    """Add both commands to the parser's."""
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
    runs.add_argument("--tokens", type=positive, default=200, help="generate: how many to write (default: 200)")
    runs.add_argument("--temperature", type=float, default=0.8, help="generate: 0 writes the likeliest (default: 0.8)")
    runs.add_argument("--top-k", type=int, default=0, metavar="K", help="generate: draw from the K likeliest (0: all)")
    runs.add_argument("--top-p", type=float, default=0.95, help="generate: draw from the likeliest with this share")
    runs.add_argument("--stop", action="append", metavar="TEXT", help="generate: end with this text; may be repeated")
    runs.add_argument("--seed", type=_seed, default=0, help="generate: another seed, another text")
    runs.set_defaults(run=_runs)

    export = commands.add_parser("export", help="make a folder of a run's model to share, as on the Hugging Face Hub")
    export.add_argument("name", metavar="RUN", help="a run's folder or name")
    export.add_argument("folder", type=Path, metavar="DIR", help="a new folder: weights, config, vocabulary, card")
    export.add_argument("--store", type=Path, help="the runs (default: $TRANSNORMER_RUNS or runs/)")
    export.set_defaults(run=_export)


def _runs(options: argparse.Namespace) -> int:
    import json

    if (options.what == "list") == (options.name is not None):
        raise mistake("run: show and generate need a run's name or folder, export and import a file; list takes none")
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
    except ValueError as wrong:
        raise mistake(str(wrong)) from wrong
    return 0


def _export(options: argparse.Namespace) -> int:
    from transnormer_lib.exhausted import DiskFull
    from transnormer_lib.training.export import export
    from transnormer_lib.training.store import RunStore
    from transnormer_lib.training.stored_run import RunDamaged, RunFailed

    try:
        export(RunStore(options.store).load(options.name), options.folder)
    except (RunDamaged, RunFailed) as problem:
        print(f"transnormer: {problem}", file=sys.stderr)
        return 1
    except DiskFull:
        raise
    except (ValueError, OSError) as wrong:
        raise mistake(str(wrong)) from wrong
    print(f"exported: {', '.join(sorted(path.name for path in options.folder.iterdir()))} in {options.folder}")
    return 0


def _carry(options: argparse.Namespace) -> int:
    """Export the records of a preset's stored runs, or import those of a file."""
    project, _, notebooks = take_up(options)
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
        written = carried.write([read_run(found.path) for config in configs if (found := stored.find(config))], file)
        print(f"runs: {written} records of {len({config.name for config in configs})} runs in {file}")
        return 0
    except RunDamaged as damage:
        print(f"transnormer: {damage}", file=sys.stderr)
        return 1
    except ValueError as wrong:
        raise mistake(str(wrong)) from wrong


def _seed(text: str) -> int:
    """An argument that PyTorch takes for a seed."""
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 0 to 2^63 - 1")
    return int(text)
