"""What the tables and sentences of the GAU-based model's paper say by themselves."""

from functools import partial
from typing import Any

from transnormer_lib.studies.common import published

LENGTHS = (256, 512, 1024, 2048)  # of Table 4
MODELS = ("RoFormerV1", "RoFormerV2", "GAU")
ACTIVATIONS = ("ReLU²", "scaled ReLU²", "softmax", "softmax_plus")  # of Table 2


printed = partial(published.printed, paper="gau")
number = partial(published.number, paper="gau")


def percentages() -> dict[str, tuple[float, float]]:
    """By cell of Table 4 the printed percentage of GAU's value and the one that follows from the values."""
    found = {}
    for model in MODELS:
        for column in (*(f"memory_{n}" for n in LENGTHS), "params"):
            mine, said = (printed("table_4", name, model=model) for name in (column, f"{column}_percent"))
            if mine is not None and said is not None:
                found[f"{model}, {column}"] = (said, 100 * mine / number("table_4", column, model="GAU"))
    return found


def divisors(n: int = 512, s: int = 128) -> dict[str, int]:
    """Table 1's factors at a length and a width, smallest first: what the squared scores are divided by."""
    found = {"n": n, "s²": s * s, "n·s": n * s, "n²": n * n}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def ahead(activation: str, other: str, column: str, lengths: str) -> float:
    """How far one row of Table 2 is ahead of another, in the column's unit, higher being better."""
    mine, theirs = (number("table_2", column, activation=name, lengths=lengths) for name in (activation, other))
    return round(mine - theirs, 2)


def seconds(activation: str) -> float:
    """Table 2's pre-training time."""
    return number("table_2", "seconds", activation=activation, lengths="fixed")


def times_over_softmax() -> dict[str, float]:
    """Table 2's pre-training times over that of softmax."""
    return {name: seconds(name) / seconds("softmax") for name in ACTIVATIONS if name != "softmax"}


def growth_of_memory(model: str) -> dict[int, float]:
    """Table 4's megabytes by length, where memory sufficed."""
    found = {n: printed("table_4", f"memory_{n}", model=model) for n in LENGTHS}
    return {n: value for n, value in found.items() if value is not None}


def memory_over_gau(model: str) -> dict[int, float]:
    """Table 4's memory over that of GAU, by length."""
    gau = growth_of_memory("GAU")
    return {n: value / gau[n] for n, value in growth_of_memory(model).items()}


def over_gau(column: str) -> dict[str, float]:
    """Table 4's ``memory``, in percent of GAU's, or ``time`` over GAU's, by cell such as "V1 256"; no OOM."""
    name = "memory_{}_percent" if column == "memory" else "time_{}"
    cells = {(m, n): printed("table_4", name.format(n), model=m) for m in MODELS[:2] for n in LENGTHS}
    return {f"{m.removeprefix('RoFormer')} {n}": value for (m, n), value in cells.items() if value is not None}


def table_2() -> list[dict[str, Any]]:
    """Table 2 with what the normaliser and the varied length change, in points."""
    lines = []
    for activation in ACTIVATIONS:
        line: dict[str, Any] = {"activation": activation}
        for column, heading in (("accuracy", "MLM"), ("clue", "CLUE")):
            fixed, varied = (
                number("table_2", column, activation=activation, lengths=lengths) for lengths in ("fixed", "varied")
            )
            line |= {f"{heading}, fixed": fixed, f"{heading}, varied": varied, f"{heading}, change": varied - fixed}
        lines.append(line)
    return lines
