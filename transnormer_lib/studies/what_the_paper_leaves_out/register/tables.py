"""Checks on the published tables and the sentences about them: arithmetic on the printed numbers.

One check compares the base of the perplexity with what this library's evaluation reports.
"""

import math

import numpy as np
import torch
from torch import nn

from transnormer_lib.choices import VARIANTS
from transnormer_lib.data.text import TextCorpus
from transnormer_lib.data.vocabulary import ByteVocabulary
from transnormer_lib.models.language_model import MaskedLMHead, build_model
from transnormer_lib.papers import tables
from transnormer_lib.studies.common.published import number
from transnormer_lib.studies.glue import published as glue_published
from transnormer_lib.studies.lra import published as arena
from transnormer_lib.studies.what_the_paper_leaves_out.register.checks import Effect, Found, check
from transnormer_lib.studies.what_the_paper_leaves_out.register.inputs import tiny
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig
from transnormer_lib.training.evaluation import evaluate

_PERPLEXITIES = (1, 3, 8, 9, 10, 11, 12)  # the tables of RoBERTa pre-training (Section 5.4)
_FLOAT32 = 1e-6  # relative, of a loss
_OURS = ("TransNormer T1", "TransNormer T2")


@check("glue-average")
def glue_average() -> Found:
    rows = {line["row"]: line for line in glue_published.averages()}
    off = glue_published.largest_error_of_averages()
    linear = [rows["linear"][rule] for rule in ("printed", "table_5", "converged")]
    comparable = [row for row, line in rows.items() if line["plain"] is not None]
    by_printed, by_plain = (sorted(comparable, key=lambda row: -rows[row][rule]) for rule in ("printed", "plain"))
    return Found(
        {
            "largest difference between printed averages and means over seven columns, the dash as 0": off,
            "1+elu: printed, by that rule, over the columns on which it converged": linear,
            "rank by the printed average": by_printed,
            "rank with MNLI counted once": by_plain,
        },
        {
            "all printed averages follow the rule": off < 0.01,
            "without the 0, the average of 1+elu would be higher": linear[2] > linear[0] + 5,
        },
        (Effect("average of 1+elu", *linear[1:]),),
    )


@check("best-average-on-glue")
def best_average() -> Found:
    others = [row for row in glue_published.PUBLISHED if row not in VARIANTS]
    plain = {line["row"]: line["plain"] for line in glue_published.averages()}
    best = {row: glue_published.best_average(row, others) for row in VARIANTS}
    rows = ("transnormer-t2", "vanilla")
    return Found(
        {
            "averages of T2 and softmax attention": [glue_published.score(row, "avg") for row in rows],
            "with MNLI counted once": [plain[row] for row in rows],
        },
        {
            "T1's average is the best": best["transnormer-t1"],
            "T2's is not": not best["transnormer-t2"],
            "with MNLI counted once, T2 is ahead of softmax attention": plain["transnormer-t2"] > plain["vanilla"],
        },
    )


@check("best-linear-on-sst-2")
def best_linear_on_sst_2() -> Found:
    exceptions = glue_published.exceptions()
    return Found(
        {"where a variant does not beat a linear method": exceptions},
        {
            "T2 on SST-2 is an exception": any(line.startswith("transnormer-t2 on SST-2") for line in exceptions),
            "T1 has none": not any(line.startswith("transnormer-t1") for line in exceptions),
        },
    )


@check("norm-attention-alone")
def norm_attention_alone() -> Found:
    alone = number("table_1", "ppl_val", method="NormAttention")
    table_8 = [number("table_8", variant, diag_layers=0, norm_layers=12) for variant in ("t1", "t2")]
    linear = number("table_1", "ppl_val", method="1+elu")
    return Found(
        {"Table 1, NormAttention": alone, "Table 8 without DiagAttention (T1, T2)": table_8, "Table 1, 1+elu": linear},
        {"neither value of Table 8 is Table 1's": all(abs(alone - ppl) > 0.1 for ppl in table_8)},
        (Effect("lead over 1+elu", round(linear - alone, 2), [round(linear - ppl, 2) for ppl in table_8]),),
    )


@check("best-hybrid")
def best_hybrid() -> Found:
    hybrid = number("table_3", "ppl_val", early="Vanilla", late="1+elu")
    ours = {variant: number("table_10", variant, feed_forward="GLU") for variant in ("t1", "t2")}
    return Found(
        {"softmax, then 1+elu (Table 3)": hybrid, "TransNormer (Table 10)": ours},
        {"the hybrid's perplexity is lower than that of T1 and T2": hybrid < min(ours.values())},
    )


@check("no-row-of-softmax-alone")
def no_row_of_softmax_alone() -> Found:
    rows = [(line["early"], line["late"]) for line in tables.load("transnormer", "table_3").records()]
    others = [str(line["method"]) for line in tables.load("transnormer", "table_1").records()]
    return Found(
        {"rows of Table 3: early layers, late layers": [list(row) for row in rows], "rows of Table 1": others},
        {
            "every row of Table 3 has linear attention in some layer": all("1+elu" in row for row in rows),
            "some have softmax attention in the others": any("Vanilla" in row for row in rows),
            "Table 1 has no softmax attention": not any("anilla" in name for name in others),
        },
    )


@check("hybrids-have-no-glu")
def hybrids_have_no_glu() -> Found:
    same = number("table_3", "ppl_val", early="1+elu", late="1+elu"), number("table_1", "ppl_val", method="1+elu")
    hybrid = number("table_3", "ppl_val", early="Vanilla", late="1+elu")
    by_part = {part: number("table_10", "t2", feed_forward=part) for part in ("FFN", "GLU")}
    return Found(
        {
            "1+elu in Table 3 and in Table 1": list(same),
            "softmax, then 1+elu": hybrid,
            "T2 by feed-forward part (Table 10)": by_part,
        },
        {
            "the 1+elu of Table 3 is that of Table 1": same[0] == same[1],
            "with an FFN, as these rows have, T2 is further behind the hybrid": by_part["FFN"] - hybrid
            > by_part["GLU"] - hybrid
            > 0,
        },
        (Effect("T2 behind the hybrid", *(round(by_part[part] - hybrid, 2) for part in ("GLU", "FFN"))),),
    )


def perplexity_leads(row: str) -> list[float]:
    """How far a row of Table 4 is ahead of softmax attention in perplexity: validation, test."""
    columns = ("ppl_val", "ppl_test")
    return [round(number("table_4", c, method="Vanilla") - number("table_4", c, method=row), 2) for c in columns]


@check("table-4-tie")
def table_4_tie() -> Found:
    validation, test = leads = perplexity_leads("TransNormer T2")
    return Found(
        {"T2 ahead of softmax attention in perplexity; validation, test": leads},
        {"on test they are equal": test == 0.0, "on validation T2 is less than 0.1 ahead": 0.0 < validation < 0.1},
    )


@check("lra-first-or-second")
def lra_first_or_second() -> Found:
    ranks, said = arena.places_in_table_6(), arena.section_5_2()
    return Found(
        {row: ranks[row] for row in VARIANTS},
        {
            "on each task one of the two variants is first or second": said["one_of_two"],
            "neither variant alone is first or second on all five": not said["t1"] and not said["t2"],
        },
    )


def of_four_equal_words() -> dict[str, float]:
    """What this library's evaluation reports for a masked LM with four words, all equally frequent and equally likely.

    A perplexity is a number of equally likely words, so here it is 4 in any base.
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
    assert isinstance(model.head, MaskedLMHead)
    nn.init.zeros_(model.embedding.weight)  # the logits are then the bias
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
            "our evaluation of four equally likely words: bits, nats, perplexity": [bits, nats, perplexity],
            "2 to the bits, and e to the nats": [2**bits, math.exp(nats)],
            "e to the bits, and 2 to the nats": mixed,
            "lowest and highest printed perplexity": [lowest, highest],
        },
        {
            "four words give two bits and a perplexity of four": math.isclose(bits, 2.0, rel_tol=_FLOAT32)
            and math.isclose(perplexity, 4.0, rel_tol=_FLOAT32),
            "2 to the bits and e to the nats are both the perplexity": math.isclose(2**bits, perplexity, rel_tol=1e-9)
            and math.isclose(math.exp(nats), perplexity, rel_tol=1e-9),
            "the printed perplexities are between 3.7 and 5": round(lowest, 1) >= 3.7 and highest <= 5.0,
            "four is within their range; either mix of base and unit is outside": lowest < perplexity < highest
            and not any(lowest <= mix <= highest for mix in mixed),
        },
        (Effect("perplexity of four equally likely words", perplexity, mixed),),
    )


@check("clear-margin")
def clear_margin() -> Found:
    leads = {row: perplexity_leads(row) for row in _OURS}
    glue, lra = (
        {
            row: round(number(table, "avg", **{label: row}) - number(table, "avg", **{label: vanilla}), 2)
            for row in _OURS
        }
        for table, label, vanilla in (("table_5", "method", "Vanilla"), ("table_6", "model", "Transformer"))
    )
    return Found(
        {
            "ahead of softmax attention in perplexity, validation and test (Table 4)": leads,
            "in the average of Table 5": glue,
            "in the average of Table 6": lra,
        },
        {
            "in Table 4 every lead is below 0.1": max(lead for both in leads.values() for lead in both) < 0.1,
            "in Table 5 T2 is not ahead": glue["TransNormer T2"] <= 0.0,
            "in Table 6 both lead by more than six points": min(lra.values()) > 6.0,
        },
    )


@check("glue-selects-on-what-it-reports")
def glue_selects() -> Found:
    share = number("table_5", "sst2", method="Vanilla") / 100
    count = glue_published.examples("sst2")
    error = glue_published.standard_error("sst2", 100 * share)
    right = np.random.default_rng(0).binomial(count, share, (20_000, 4)) / count
    too_high = 100 * float(right.max(axis=1).mean() - share)
    lead = glue_published.leads("transnormer-t1")["sst2"]
    return Found(
        {
            "sentences of SST-2's development set": count,
            "standard error of softmax attention's score there, in points": error,
            "points by which the best of four independent runs of that accuracy is too high": too_high,
            "T1 ahead of softmax attention, in points": round(lead, 2),
        },
        {
            "the best of four is too high by more than half a point": too_high > 0.5,
            "T1's lead is not larger": lead <= too_high,
        },
        (Effect("bias of the best of four runs, in points", too_high, 0.0),),
    )
