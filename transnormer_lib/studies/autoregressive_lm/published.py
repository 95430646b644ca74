"""What Table 4 of the paper prints, and the sentences of Section 5.2 about it."""

from typing import Any

from transnormer_lib.choices import VARIANTS
from transnormer_lib.papers import tables
from transnormer_lib.studies.common.published import number

# Rows of Table 4 by our names.
PUBLISHED = {
    "vanilla": "Vanilla",
    "linear": "1+elu",
    "performer": "Performer",
    "transformer-ls": "LS",
    "flash-quad": "FLASH-quad",
    "flash": "FLASH",
    "transnormer-t1": "TransNormer T1",
    "transnormer-t2": "TransNormer T2",
}
PERPLEXITY = {"validation": "ppl_val", "test": "ppl_test"}  # the columns of its perplexities, by split
WORDS = "wikitext-103-words"  # the vocabulary of Table 13, whose perplexity per token Table 4 prints


def table_4(method: str, split: str) -> float:
    """The perplexity that Table 4 prints for a method, by its own name for it, on ``validation`` or ``test``."""
    return number("table_4", PERPLEXITY[split], method=method)


def section_5_2() -> dict[str, Any]:
    """The sentences of Section 5.2 on Table 4, recomputed from the table as printed.

    - ``excess``: perplexity of T1 and T2 over softmax attention's, relative, per split; negative where they are ahead.
    - ``comparable``: whether both, on both splits, are no worse than softmax attention or nearer to it than to the best
      other method. This is our reading; the paper does not define "comparable".
    - ``best``: per split the best method other than softmax attention and TransNormer, and its perplexity.
    - ``outperform``: whether T1 and T2 are below all of these, on both splits.
    """
    ours = {row: PUBLISHED[row] for row in VARIANTS}
    methods = [str(record["method"]) for record in tables.load("transnormer", "table_4").records()]
    others = [method for method in methods if method not in (*ours.values(), PUBLISHED["vanilla"])]
    excess: dict[str, dict[str, float]] = {row: {} for row in ours}
    best, comparable, outperform = {}, True, True
    for split in PERPLEXITY:
        vanilla = table_4(PUBLISHED["vanilla"], split)
        best[split] = min(((method, table_4(method, split)) for method in others), key=lambda pair: pair[1])
        for row, method in ours.items():
            perplexity = table_4(method, split)
            excess[row][split] = perplexity / vanilla - 1.0
            comparable &= perplexity <= vanilla or perplexity - vanilla < best[split][1] - perplexity
            outperform &= perplexity < best[split][1]
    return {"excess": excess, "comparable": comparable, "best": best, "outperform": outperform}
