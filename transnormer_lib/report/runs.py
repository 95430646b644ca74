"""What the store holds, and what its models write: ``transnormer runs``."""

from collections.abc import Sequence
from typing import Any

from transnormer_lib import sums
from transnormer_lib.report.pages import size_text
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run, RunDamaged


def entries(store: RunStore) -> list[dict[str, Any]]:
    """One object per stored run, by name; a damaged one has its damage as ``status``."""
    found = []
    for name in store.names():
        try:
            found.append(entry(store.load(store.root / name)))
        except RunDamaged as damage:
            found.append({"run": name, "status": f"damaged: {str(damage).removeprefix(f'run {name}: ')}"})
    return found


def entry(run: Run) -> dict[str, Any]:
    """What a line of the list and the head of ``show`` say of a run."""
    record, files = run.record, [path for path in run.path.iterdir() if path.is_file()]
    return {
        "run": run.path.name,
        "status": record["status"],
        "validation": run.validation if record["status"] == "finished" else None,
        "parameters": run.parameters,
        "steps": record["steps"],
        "tokens": record["tokens"],
        "seconds": round(record["seconds"], 1),
        "bytes": sum(path.stat().st_size for path in files),
        "corpus": run.config.data.source,
        "commit": record["provenance"]["commit"],
        "device": record["provenance"]["device"],
        "torch": record["provenance"]["versions"].get("torch"),
    }


def table(found: Sequence[dict[str, Any]]) -> str:
    """The entries as lines of text."""
    width = max((len(one["run"]) for one in found), default=0)
    lines = []
    for one in found:
        if "parameters" not in one:
            lines.append(f"{one['run']:{width}}  {one['status']}")
            continue
        lines.append(
            f"{one['run']:{width}}  {_score(one):>22}  {one['parameters']:>11,} parameters  {one['steps']:>7,} steps"
            f"  {one['seconds']:>7,.0f} s  {size_text(one['bytes']):>7}"
        )
    return "\n".join([*lines, f"{len(found)} run{'' if len(found) == 1 else 's'}"])


def _score(one: dict[str, Any]) -> str:
    validation = one["validation"]
    if validation is None:
        return one["status"]
    name = next((name for name in ("bits_per_byte", "bits_per_token") if name in validation), None)
    name = name or next(name for name in validation if name not in ("step", "nats_per_example"))
    return f"{validation[name]:.4f} {name.replace('_', ' ')}"


def shown(run: Run) -> str:
    """One run as lines of text: results, the curve, sizes, provenance, files."""
    record, known = run.record, entry(run)
    lines = [f"{run.path}", f"status       {record['status']}"]
    for point in record["validation"]:
        values = ", ".join(f"{name} {value:.4g}" for name, value in point.items() if name != "step")
        lines.append(f"validation   after {point['step']} steps: {values}")
    for split, result in record["at_end"].items():
        lines.append(f"{split:12} " + ", ".join(f"{name} {value:.4g}" for name, value in result.items()))
    lines += [
        f"model        {', '.join(run.config.model.attention)}; {run.parameters:,} parameters",
        f"data         {run.config.data.source}, {run.config.data.vocabulary}, {record['tokens']:,} tokens read",
        f"training     {record['steps']:,} steps, {record['seconds']:.0f} s in {record['sessions']} sessions",
        f"machine      {known['device']}, torch {known['torch']}",
        f"commit       {known['commit']}" + (" (edited)" if record["provenance"]["dirty"] else ""),
    ]
    return "\n".join([*lines, *_files(run)])


def _files(run: Run) -> list[str]:
    pairs = [(digest, name, size_text((run.path / name).stat().st_size)) for digest, name in sums.read(run.path)]
    return [f"sha256       {digest[:16]}…  {name}  {size}" for digest, name, size in pairs]
