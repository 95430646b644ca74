"""Checks on the published tables and the sentences about them: arithmetic on the numbers as printed.

The base of the perplexity is held against what this library's evaluation reports.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from transnormer_lib.choices import VARIANTS
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.vocabulary import ByteVocabulary
from transnormer_lib.models.language_model import build_model
from transnormer_lib.papers import tables
from transnormer_lib.studies.glue import published as glue_published
from transnormer_lib.studies.lra import published as arena
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import tiny
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig
from transnormer_lib.training.evaluation import evaluate

_PERPLEXITIES = (1, 3, 8, 9, 10, 11, 12)  # the tables that print those of RoBERTa pre-training (Section 5.4)
_FLOAT32 = 1e-6  # relative, of a loss


def value(table: str, column: str, **labels: Any) -> float:
    """One published number. Raises ValueError where the cell is empty."""
    cell = tables.load("transnormer", table).value(column, **labels)
    if not isinstance(cell, int | float):
        raise ValueError(f"{table}, {column}, {labels}: no number is printed")
    return float(cell)


@check("glue-average")
def glue_average() -> Found:
    rows = {line["row"]: line for line in glue_published.averages()}
    off = glue_published.largest_error_of_averages()
    linear = rows["linear"]
    plain = {row: line["plain"] for row, line in rows.items() if line["plain"] is not None}
    ranked = [sorted(plain, key=lambda row: -rows[row][rule]) for rule in ("printed", "plain")]
    return Found(
        {
            "largest distance of the printed averages from means over seven columns with the dash as 0": off,
            "1+elu: printed, by that rule, over the columns that it converged on": [
                linear["printed"],
                linear["table_5"],
                linear["converged"],
            ],
            "rank by the printed average": ranked[0],
            "rank with MNLI counted once": ranked[1],
        },
        {
            "all printed averages follow the rule": off < 0.01,
            "without the 0, 1+elu's would be another": linear["converged"] > linear["printed"] + 5,
        },
        (Effect("average of 1+elu", linear["table_5"], linear["converged"]),),
    )


@check("best-average-on-glue")
def best_average() -> Found:
    others = [row for row in glue_published.PUBLISHED if row not in VARIANTS]
    t2, softmax = (glue_published.score(row, "avg") for row in ("transnormer-t2", "vanilla"))
    plain = {line["row"]: line["plain"] for line in glue_published.averages()}
    best = {row: glue_published.best_average(row, others) for row in VARIANTS}
    return Found(
        {
            "averages of T2 and softmax attention": [t2, softmax],
            "the same with MNLI once": [plain["transnormer-t2"], plain["vanilla"]],
        },
        {
            "T1's is the best": best["transnormer-t1"],
            "T2's is not": not best["transnormer-t2"],
            "with MNLI counted once T2 is ahead of softmax": plain["transnormer-t2"] > plain["vanilla"],
        },
    )


@check("best-linear-on-sst-2")
def best_linear_on_sst_2() -> Found:
    exceptions = glue_published.exceptions()
    return Found(
        {"where a variant is not above a linear method": exceptions},
        {
            "T2 on SST-2 is an exception": any(line.startswith("transnormer-t2 on SST-2") for line in exceptions),
            "T1 has none": not any(line.startswith("transnormer-t1") for line in exceptions),
        },
    )


@check("norm-attention-alone")
def norm_attention_alone() -> Found:
    alone = value("table_1", "ppl_val", method="NormAttention")
    table_8 = [value("table_8", variant, diag_layers=0, norm_layers=12) for variant in ("t1", "t2")]
    linear = value("table_1", "ppl_val", method="1+elu")
    return Found(
        {"Table 1, NormAttention": alone, "Table 8 without DiagAttention: T1, T2": table_8, "Table 1, 1+elu": linear},
        {"neither of Table 8 is Table 1's": all(abs(alone - ppl) > 0.1 for ppl in table_8)},
        (Effect("lead over 1+elu", round(linear - alone, 2), [round(linear - ppl, 2) for ppl in table_8]),),
    )


@check("best-hybrid")
def best_hybrid() -> Found:
    hybrid = value("table_3", "ppl_val", early="Vanilla", late="1+elu")
    ours = {variant: value("table_10", variant, feed_forward="GLU") for variant in ("t1", "t2")}
    return Found(
        {"softmax, then 1+elu (Table 3)": hybrid, "TransNormer": ours},
        {"the hybrid's perplexity is lower than both": hybrid < min(ours.values())},
    )


@check("hybrids-have-no-glu")
def hybrids_have_no_glu() -> Found:
    same = value("table_3", "ppl_val", early="1+elu", late="1+elu"), value("table_1", "ppl_val", method="1+elu")
    hybrid = value("table_3", "ppl_val", early="Vanilla", late="1+elu")
    by_part = {part: value("table_10", "t2", feed_forward=part) for part in ("FFN", "GLU")}
    return Found(
        {
            "1+elu in Table 3 and in Table 1": list(same),
            "softmax, then 1+elu": hybrid,
            "T2 by its feed-forward part (Table 10)": by_part,
        },
        {
            "Table 3's rows are the baselines of Table 1": same[0] == same[1],
            "with an FFN, as they have, T2 is further behind": by_part["FFN"] - hybrid > by_part["GLU"] - hybrid > 0,
        },
        (Effect("T2 behind the hybrid", *(round(by_part[part] - hybrid, 2) for part in ("GLU", "FFN"))),),
    )


@check("table-4-tie")
def table_4_tie() -> Found:
    lead = {
        split: round(
            value("table_4", f"ppl_{split}", method="Vanilla")
            - value("table_4", f"ppl_{split}", method="TransNormer T2"),
            2,
        )
        for split in ("val", "test")
    }
    return Found(
        {"T2 ahead of softmax attention, in perplexity": lead},
        {
            "on test they are equal": lead["test"] == 0.0,
            "on validation T2 is less than 0.1 ahead": 0.0 < lead["val"] < 0.1,
        },
    )


@check("lra-first-or-second")
def lra_first_or_second() -> Found:
    ranks, said = arena.places_in_table_6(), arena.section_5_2()
    return Found(
        {row: ranks[row] for row in VARIANTS},
        {
            "of each task one of the two is first or second": said["one_of_two"],
            "neither alone is on all five": not said["t1"] and not said["t2"],
        },
    )


def of_four_equal_words() -> dict[str, float]:
    """What this library reports of a masked LM whose words are four, all equally frequent and equally likely to it.

    A perplexity is a number of equally likely words: this one is 4, whatever the base.
    """
    words = torch.arange(4).repeat(256).numpy().astype("int32")
    vocabulary = ByteVocabulary()
    config = RunConfig(
        name="four-equal-words",
        model=tiny("vanilla", vocab_size=vocabulary.size),
        data=DataConfig(task="masked", length=32, batch_size=8),
        optimizer=OptimizerConfig(warmup=0),
        steps=0,
        seed=0,
    )
    model = build_model(config.model, seed=0)
    assert model.head is not None
    nn.init.zeros_(model.embedding.weight)  # leaves the bias as the logits
    nn.init.constant_(model.head.bias, -1e4)
    with torch.no_grad():
        model.head.bias[:4] = 0.0
    corpus = TextCorpus("four equal words", vocabulary, {"validation": words}, {}, fingerprint="")
    return evaluate(model, config, corpus, torch.device("cpu"))


@check("base-of-the-perplexity")
def base_of_the_perplexity() -> Found:
    result = of_four_equal_words()
    bits, nats, perplexity = (result[name] for name in ("bits_per_token", "nats_per_token", "perplexity"))
    printed = [
        float(cell)
        for number in _PERPLEXITIES
        for record in tables.load("transnormer", f"table_{number}").records()
        for name, cell in record.items()
        if name in ("ppl_val", "t1", "t2") and record.get("method") != "1+elu without scaling"
    ]
    lowest, highest = min(printed), max(printed)
    mixed = [math.exp(bits), 2**nats]
    return Found(
        {
            "four equally likely words, as our evaluation reports them: bits, nats, perplexity": [
                bits,
                nats,
                perplexity,
            ],
            "2 to the bits, e to the nats": [2**bits, math.exp(nats)],
            "e to the bits, 2 to the nats": mixed,
            "lowest and highest printed": [lowest, highest],
        },
        {
            "four words are two bits and a perplexity of four": math.isclose(bits, 2.0, rel_tol=_FLOAT32)
            and math.isclose(perplexity, 4.0, rel_tol=_FLOAT32),
            "2 to the bits and e to the nats both give the perplexity": math.isclose(2**bits, perplexity, rel_tol=1e-9)
            and math.isclose(math.exp(nats), perplexity, rel_tol=1e-9),
            "the printed ones lie between 3.7 and 5": round(lowest, 1) >= 3.7 and highest <= 5.0,
            "four lies among them, and either mix of base and unit would not": lowest < perplexity < highest
            and not any(lowest <= mix <= highest for mix in mixed),
        },
        (Effect("perplexity of four equally likely words", perplexity, mixed),),
    )


@check("clear-margin")
def clear_margin() -> Found:
    rows = {"T1": "TransNormer T1", "T2": "TransNormer T2"}
    perplexity = {
        name: [
            round(value("table_4", column, method="Vanilla") - value("table_4", column, method=row), 2)
            for column in ("ppl_val", "ppl_test")
        ]
        for name, row in rows.items()
    }
    glue, lra = (
        {
            name: round(value(table, "avg", **{label: row}) - value(table, "avg", **{label: vanilla}), 2)
            for name, row in rows.items()
        }
        for table, label, vanilla in (("table_5", "method", "Vanilla"), ("table_6", "model", "Transformer"))
    )
    return Found(
        {
            "ahead of softmax attention in perplexity, validation and test (Table 4)": perplexity,
            "in the average of Table 5": glue,
            "in the average of Table 6": lra,
        },
        {
            "in Table 4 no lead is above 0.1": max(lead for leads in perplexity.values() for lead in leads) < 0.1,
            "in Table 5 T2 is not ahead": glue["T2"] <= 0.0,
            "in Table 6 both are, by more than six points": min(lra.values()) > 6.0,
        },
    )


@check("glue-selects-on-what-it-reports")
def glue_selects() -> Found:
    share = value("table_5", "sst2", method="Vanilla") / 100
    count = glue_published.examples("sst2")
    right = np.random.default_rng(0).binomial(count, share, (20_000, 4)) / count
    too_high = 100 * float(right.max(axis=1).mean() - share)
    lead = glue_published.leads("transnormer-t1")["sst2"]
    return Found(
        {
            "sentences of SST-2's development set": count,
            "standard error of softmax attention's score there, in points": glue_published.standard_error(
                "sst2", 100 * share
            ),
            "best of four independent runs of that accuracy, too high by": too_high,
            "T1 ahead of softmax attention": round(lead, 2),
        },
        {
            "the best of four is too high by more than half a point": too_high > 0.5,
            "T1's lead is no larger": lead <= too_high,
        },
        (Effect("points by which the best of four runs is too high", too_high, 0.0),),
    )
