"""A question of Tables 8 to 12 as a reader sees it: the table of losses, the figure, and the sentences they support."""

from collections.abc import Mapping, Sequence
from html import escape

from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.verdicts import VERDICTS
from transnormer_lib.papers import tables
from transnormer_lib.show import figures
from transnormer_lib.show.tables import show_table
from transnormer_lib.studies.ablations import figures as ablation_figures
from transnormer_lib.studies.ablations import questions
from transnormer_lib.studies.ablations import runs as ablations
from transnormer_lib.studies.ablations.runs import Parameters
from transnormer_lib.studies.common import figures as language_model_figures
from transnormer_lib.studies.common import language_models, row_losses
from transnormer_lib.studies.common.parameters import read


def show(
    table: str,
    bits: Mapping[str, Sequence[float]],
    parameters: Parameters,
    floors: Mapping[str, float],
    *,
    unit: str,
    preset: str,
) -> None:
    """Display one question answered by the losses ``bits``: by row one value per seed, infinite where it diverged.

    ``parameters`` are those of the runs, ``preset`` names their scale, ``floors`` are drawn beside them.
    """
    printed, question = tables.load("transnormer", table), questions.QUESTIONS[table]
    over = f"{len(parameters.seeds)} seeds, preset {preset}"
    losses = questions.losses(table, bits, parameters)
    headings = [f"{variant[-2:].upper()}, {printed.locus}" for variant in questions.VARIANTS]
    show_table(
        questions.loss_table(table, bits, parameters),
        caption=f"{question} Validation loss in {unit}: mean (range) over {over}.",
        published=headings,
        note=f"{printed.locus}: perplexity of the published models. Means are over the runs that did not diverge.",
    )
    means = [
        f"{label}, {variant[-2:].upper()}: {row_losses.finished_mean(mine):.2f}"
        for label, by_variant in losses.items()
        for variant, mine in by_variant.items()
        if mine
    ]
    figures.show(
        ablation_figures.question(losses, questions.published(table, bits, parameters), floors, unit=unit),
        name=f"{table.replace('_', '-')}-{preset}",
        caption=f"{question} Left: validation loss of every run ({over}), a bar at the mean. Right: the perplexities "
        f"of {printed.locus}. The two have different units, so the order is what compares. A line without points on "
        "the left was not run at this scale.",
        alt=f"Mean loss in {unit}. " + ("; ".join(means) or "Nothing was run") + ".",
    )
    _show_sentences(questions.conclusions(table, bits, parameters))


def show_controls(
    bits: Mapping[str, Sequence[float]],
    parameters: Parameters,
    floors: Mapping[str, float],
    *,
    unit: str,
    preset: str,
) -> None:
    """Display TransNormer as it is beside the controls: the losses of their runs, and the sentences they support."""
    mine = {row: bits[row] for row in (*questions.VARIANTS, *parameters.controls) if row in bits}
    over = f"{len(parameters.seeds)} seeds, preset {preset}"
    figures.show(
        language_model_figures.losses(mine, floors, unit=unit),
        name=f"controls-{preset}",
        caption=f"Validation loss of every run ({over}): TransNormer as it is, and softmax and 1+elu attention in its "
        "surroundings. Points are runs, the line is their range, the bar their mean.",
        alt=f"Mean loss in {unit}. " + ", ".join(f"{row} {row_losses.finished_mean(b):.2f}" for row, b in mine.items()),
    )
    pairs = [(variant, control) for control in parameters.controls for variant in filter(mine.get, questions.VARIANTS)]
    _show_sentences([row_losses.compared(variant, control, mine) for variant, control in pairs])


def show_kept_controls(found: Kept) -> None:
    """TransNormer beside its controls, by the runs that were kept of a larger scale."""
    parameters = read(Parameters, found.parameters)
    unit = language_models.unit(parameters)
    show_controls(_kept_bits(found), parameters, {}, unit=unit, preset=found.preset)


def show_kept(table: str, found: Kept) -> None:
    """The question answered by the runs that were kept of a larger scale."""
    parameters = read(Parameters, found.parameters)
    unit = language_models.unit(parameters)
    show(table, _kept_bits(found), parameters, {}, unit=unit, preset=found.preset)


def _show_sentences(sentences: Sequence[str]) -> None:
    """A list where it stands: what is printed would be gathered at the cell's first line of text."""
    from IPython.display import display

    if sentences:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        display({"text/html": f"<ul>{items}</ul>", "text/plain": "\n".join(sentences)}, raw=True)


def _kept_bits(found: Kept) -> dict[str, list[float]]:
    return row_losses.by_row(ablations.measured(read(Parameters, found.parameters), found.runs))


def show_verdicts(found: Kept) -> None:
    """The claims that the kept runs judged, with their verdicts there: failures first."""
    judged = [claim for claim in found.claims if claim["kind"] == "ordering" and claim["verdict"] != "not run"]
    show_table(
        [
            {"claim": claim["statement"], "verdict": claim["verdict"], "where": claim["locus"]}
            for claim in sorted(judged, key=lambda claim: VERDICTS.index(claim["verdict"]))
        ],
        caption=f"Verdicts on the orderings at the preset {found.preset}, as they were kept.",
    )
