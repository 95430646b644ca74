"""What the runs say about Tables 8 to 12: each table's losses beside the printed perplexities.

A smaller encoder keeps the published proportions: 3 of 12 layers become 1 of 4, and if its blocks have 8 tokens instead
of 64, blocks of 32 become blocks of 4.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from transnormer_lib.analysis import seeds
from transnormer_lib.choices import VARIANTS
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.verdicts import VERDICTS
from transnormer_lib.papers import tables
from transnormer_lib.show import figures
from transnormer_lib.show.tables import show_list, show_table
from transnormer_lib.studies.ablations import figures as draw
from transnormer_lib.studies.ablations import published as printed
from transnormer_lib.studies.ablations import runs as study
from transnormer_lib.studies.ablations.published import BLOCK, WHOLE, Comparison, Line
from transnormer_lib.studies.ablations.runs import Parameters
from transnormer_lib.studies.common import figures as common_figures
from transnormer_lib.studies.common import findings, language_models, row_losses
from transnormer_lib.studies.common.language_models import bits_of
from transnormer_lib.studies.common.parameters import read
from transnormer_lib.training.store import RunStore

# Loss in bits per selected token by row: one value per seed, inf for a run that diverged.
Bits = Mapping[str, Sequence[float]]
_LAYERS = 12  # of the published encoder
# What kept runs had that were trained before these were parameters.
_ADDED_SINCE: Mapping[str, Any] = {
    "rates": {}, "rates_tried": (), "rate_seeds": (), "rotary": "none", "positions": "learned", "longest": 0,
}  # fmt: skip


def train(parameters: Parameters, store: RunStore) -> list[Mapping[str, Any]]:
    """Train or load every judged run; returns their records in order."""
    return [run.record for *_, run in study.search(parameters).trained(store, weights=False)]


def bits(parameters: Parameters, records: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The losses by row in ascending order of the seeds, from the records of all judged runs."""
    places = [(row, seed) for row, seed, _ in study.search(parameters).judged()]
    of = {place: bits_of(record) for place, record in zip(places, records, strict=True)}
    return {row: [of[row, seed] for seed in sorted(parameters.seeds)] for row in study.rows(parameters)}


def here(change: str, parameters: Parameters) -> str | None:
    """A change at the published size, converted to the size of these parameters; None if there is no counterpart."""
    name, _, number = change.rpartition("-")
    if name not in ("early", "block"):
        return change
    if change == WHOLE:
        return f"block-{parameters.length}"
    unit, whole = (parameters.layers, _LAYERS) if name == "early" else (parameters.block_size, BLOCK)
    scaled, left = divmod(int(number) * unit, whole)
    return None if left or (name == "block" and not 1 <= scaled <= parameters.length) else f"{name}-{scaled}"


def row_name(variant: str, change: str, parameters: Parameters) -> str | None:
    """The study's row of a variant with a change at the published size; None if there is no counterpart."""
    ours = here(change, parameters)
    return None if ours is None else f"{variant}-{ours}" if ours else variant


def why_not(comparison: Comparison, parameters: Parameters, present: Sequence[str], scale: str) -> str:
    """Why a comparison cannot be made from the rows that are ``present``; empty if it can."""
    missing = []
    for change in (comparison.better, comparison.worse):
        name = row_name(comparison.variant, change, parameters)
        if name is None:
            return f"{change} of the published size has no counterpart in {parameters.layers} layers of these sizes"
        if name not in present:
            model = study.model(name, parameters)
            same = [other for other in present if other != name and study.model(other, parameters) == model]
            if same:
                return f"{name} is the same model as {same[0]} with {parameters.layers} layers"
            missing.append(name)
    return row_losses.untrained(missing, scale) if missing else ""


def label(change: str, parameters: Parameters) -> str:
    """A line's name for readers, with the numbers at this size."""
    ours = here(change, parameters)
    layers = parameters.layers if ours is not None else _LAYERS
    name, _, number = (change if ours is None else ours).rpartition("-")
    if name == "early":
        of = "" if ours is not None else f" (of {layers})"
        return f"{number} Diag, {layers - int(number)} Norm{of}"
    if name == "block":
        whole = " (the whole sequence)" if ours is not None and int(number) >= parameters.length else ""
        return f"blocks of {number}{whole}"
    return _LABELS[change]


_LABELS: Mapping[str, str] = {
    "": "TransNormer",
    "reversed": "Norm first, then Diag",
    "ffn": "FFN, GELU",
    "ffn-swish": "FFN, swish",
    "glu-identity": "GLU without activation",
    "alternating": "alternating, Diag first",
    "alternating-reversed": "alternating, Norm first",
    "parallel": "side by side in every layer",
    "wide": "wider GLU, as many weights as side by side",
}


def shown(table: str, bits: Bits, parameters: Parameters) -> list[Line]:
    """The lines of a table with printed numbers or with losses of ours."""
    return [
        line
        for line in printed.lines(table)
        if any(value is not None for value in line.published.values())
        or any(row_name(variant, line.change, parameters) in bits for variant in VARIANTS)
    ]


def losses(table: str, bits: Bits, parameters: Parameters) -> dict[str, dict[str, Sequence[float]]]:
    """The losses of every shown line by label and variant; empty if nothing was run."""
    return {
        label(line.change, parameters): {
            variant: bits.get(row_name(variant, line.change, parameters) or "", ()) for variant in VARIANTS
        }
        for line in shown(table, bits, parameters)
    }


def published(table: str, bits: Bits, parameters: Parameters) -> dict[str, Mapping[str, float | None]]:
    """The printed perplexities of the same lines."""
    return {label(line.change, parameters): line.published for line in shown(table, bits, parameters)}


def loss_table(table: str, bits: Bits, parameters: Parameters) -> list[dict[str, Any]]:
    """One row per shown line: mean and range of our losses, and the paper's perplexities, by variant."""
    heading, found = tables.load("transnormer", table).locus, []
    theirs_of = published(table, bits, parameters)
    for name, by_variant in losses(table, bits, parameters).items():
        ours: dict[str, Any] = {
            f"{variant[-2:].upper()}, ours": f"{seeds.mean(mine):.3f} ({seeds.spread(mine, 3)})" if mine else None
            for variant, mine in by_variant.items()
        }
        theirs = {f"{variant[-2:].upper()}, {heading}": value for variant, value in theirs_of[name].items()}
        found.append({"encoder": name} | ours | theirs)
    return found


def conclusions(table: str, bits: Bits, parameters: Parameters) -> list[str]:
    """Sentences that compare each line's losses with TransNormer's."""
    said = []
    for variant in VARIANTS:
        base, short = bits.get(variant), variant[-2:].upper()
        for line in printed.lines(table):
            mine = bits.get(row_name(variant, line.change, parameters) or "")
            if line.change and base is not None and mine is not None:
                names = f"{short}, {label(line.change, parameters)},", f"{short} as it is"
                said.append(row_losses.compared(*names, dict(zip(names, (mine, base), strict=True))))
    return said


_TOO_FEW = "Fewer than two lines were run."


def lowest(table: str, bits: Bits, parameters: Parameters) -> str:
    """By variant, the line with the lowest mean loss and the one with the lowest printed perplexity, in a sentence.

    Lines are compared where both are known; a variant with fewer than two of them is not.
    """
    ours, theirs, said = losses(table, bits, parameters), published(table, bits, parameters), []
    for variant in VARIANTS:
        known = {
            name: (seeds.mean(of[variant]), printed)
            for name, of in ours.items()
            if seeds.finished(of[variant]) and (printed := theirs[name].get(variant)) is not None
        }
        if len(known) > 1:
            best, paper = (min(known, key=lambda name, at=at: known[name][at]) for at in (0, 1))  # type: ignore[misc]
            said.append(f"for {variant[-2:].upper()} {best}, {known[best][0]:.2f} bits (in print {paper})")
    if not said:
        return _TOO_FEW
    single = ", with one seed" if len(parameters.seeds) == 1 else ""
    return f"Lowest mean of the printed lines{single}: {'; '.join(said)}."


def show(
    table: str, bits: Bits, parameters: Parameters, floors: Mapping[str, float], preset: str, aside: bool = False
) -> None:
    """Display the answer to one table's question, from losses ``bits`` (one value per seed by row).

    ``parameters`` are those of the runs, ``preset`` names their scale, ``floors`` are drawn beside them. It stands
    ``aside`` where a larger scale gives the answer, and is left out there where nothing can be compared.
    """
    finding = lowest(table, bits, parameters)
    if aside and finding == _TOO_FEW:
        return
    locus, question = tables.load("transnormer", table).locus, printed.QUESTIONS[table]
    unit, over = language_models.unit(parameters), f"{len(parameters.seeds)} seeds, preset {preset}"
    by_line = losses(table, bits, parameters)
    headings = [f"{variant[-2:].upper()}, {locus}" for variant in VARIANTS]
    show_table(
        loss_table(table, bits, parameters),
        caption=f"{question} Validation loss in {unit}: mean (range) over {over}.",
        published=headings,
        lowest=[*headings, *(f"{variant[-2:].upper()}, ours" for variant in VARIANTS)],
        note=f"{locus}: perplexity of the published models. Means are over runs that did not diverge.",
        aside=aside,
    )
    means = [
        f"{label}, {variant[-2:].upper()}: {seeds.mean(mine):.2f}"
        for label, by_variant in by_line.items()
        for variant, mine in by_variant.items()
        if mine
    ]
    figures.show(
        draw.question(by_line, published(table, bits, parameters), floors, unit=unit),
        name=f"{table.replace('_', '-')}-{preset}",
        caption=f"{question} Loss of every run ({over}) beside {locus}'s perplexity; only the orders compare. Empty on "
        f"the left: not run. {finding}",
        alt=f"Mean loss in {unit}. " + ("; ".join(means) or "Nothing was run") + ".",
        aside=aside,
    )
    if not aside:
        show_list(conclusions(table, bits, parameters))


def show_controls(
    bits: Bits, parameters: Parameters, floors: Mapping[str, float], preset: str, aside: bool = False
) -> None:
    """Display the losses of TransNormer and of the controls, and sentences that compare them."""
    mine = {row: bits[row] for row in (*VARIANTS, *parameters.controls) if row in bits}
    unit, over = language_models.unit(parameters), f"{len(parameters.seeds)} seeds, preset {preset}"
    figures.show(
        common_figures.losses(mine, floors, unit=unit),
        name=f"controls-{preset}",
        caption=f"Validation loss of every run ({over}), its range and mean: TransNormer as it is, and the controls in "
        f"its backbone. {findings.lead(mine, what='loss', unit=' bits', digits=3)}",
        alt=f"Mean loss in {unit}. " + ", ".join(f"{row} {seeds.mean(b):.2f}" for row, b in mine.items()),
        aside=aside,
    )
    pairs = [(variant, control) for control in parameters.controls for variant in filter(mine.get, VARIANTS)]
    if not aside:
        show_list([row_losses.compared(variant, control, mine) for variant, control in pairs])


def of_kept(found: Kept) -> tuple[Bits, Parameters]:
    """The losses and parameters of the kept runs of a larger scale, as ``show`` takes them."""
    parameters = read(Parameters, {**_ADDED_SINCE, **found.parameters})
    judged = len(study.search(parameters).judged())
    return bits(parameters, found.runs[-judged:]), parameters


def show_verdicts(found: Kept) -> None:
    """Display the claims that the kept runs judged, failures first."""
    judged = [claim for claim in found.claims if claim["kind"] == "ordering" and claim["verdict"] != "not run"]
    if not judged:
        reasons = sorted({claim["reason"] for claim in found.claims if claim["kind"] == "ordering"})
        print(f"None of its orderings is judged: {'; '.join(reasons)}.")
        return
    counts = Counter(claim["verdict"] for claim in judged)
    told = findings.joined([f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict]])
    show_table(
        [
            {"claim": claim["statement"], "verdict": claim["verdict"], "where": claim["locus"]}
            for claim in sorted(judged, key=lambda claim: VERDICTS.index(claim["verdict"]))
        ],
        caption=f"Kept verdicts on the orderings at the preset {found.preset}: {told}.",
    )
