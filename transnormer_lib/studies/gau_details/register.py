"""The register of the GAU-based model's paper: a check for every entry of ``papers/gau/discrepancies``.

Entries of both notebooks are here: 14 shows them all. Checks read ``published``, ``sizes`` and the library, so that a
falsified table or mechanism makes them fail.
"""

import math

import torch
from torch import Tensor

from transnormer_lib import attention
from transnormer_lib.analysis import attention_entropy, attention_rank
from transnormer_lib.attention.norms import rms_norm
from transnormer_lib.data.sequences import windows
from transnormer_lib.papers import settings, tables
from transnormer_lib.studies.common.register import Effect, Found, Register
from transnormer_lib.studies.gau_details import published, sizes
from transnormer_lib.studies.gau_model import published as table_5

REGISTER = Register("gau")
check, names, run, run_all = REGISTER.check, REGISTER.names, REGISTER.run, REGISTER.run_all

N, S = 512, 128  # the paper's length and width of queries and keys
_ZERO = 1e-9  # rounding in float64


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def unit(n: int = 16, dim: int = 16, **options: object) -> tuple[attention.AttentionBlock, Tensor]:
    """A small unit in float64 with drawn weights, and x [1, n, dim]."""
    block = attention.build("gau", {"dim": dim, "s": 8, "dropout": 0.0, **options})
    assert isinstance(block, attention.AttentionBlock)
    block.reset_parameters(_seeded())
    return block.double().eval().requires_grad_(False), torch.randn(1, n, dim, generator=_seeded(), dtype=torch.float64)


def _thousands(count: int) -> float:
    return round(count / 1000, 3)


# --- sizes -----------------------------------------------------------------------------------------------------------


@check("gau-parameters")
def gau_parameters() -> Found:
    said = published.number("table_4", "params", model="GAU")
    with_gain, released = sizes.trained("GAU"), sizes.trained("GAU", embedding_norm="rms")
    return Found(
        {
            "printed (k)": said,
            "with a gain and a bias (k)": _thousands(with_gain),
            "released (k)": _thousands(released),
        },
        {
            "with a gain and a bias in the norm of the embeddings the count is the printed one": round(with_gain / 1000)
            == said,
            "as released it is not": round(released / 1000) != said,
            "the two differ by two vectors of the model's width": with_gain - released == 2 * 768,
        },
        (Effect("trained parameters", with_gain, released),),
    )


@check("roformer-parameters")
def roformer_parameters() -> Found:
    rows = {model: published.number("table_4", "params", model=model) for model in ("RoFormerV1", "RoFormerV2")}
    counted = {model: sizes.as_printed(model) for model in rows}
    trained = {model: sizes.trained(model) for model in rows}
    return Found(
        {"printed (k)": rows, "trained": trained, "with the table, without the bias": counted},
        {
            "with the fixed table and without the bias of the logits, both counts are the printed ones": all(
                round(counted[model] / 1000) == said for model, said in rows.items()
            ),
            "the trained parameters are neither": all(
                round(trained[model] / 1000) != said for model, said in rows.items()
            ),
        },
    )


@check("roformer-v1-vocabulary")
def roformer_v1_vocabulary() -> Found:
    alike = sizes.trained("RoFormerV1", vocab_size=sizes.vocabulary("GAU"))
    gau, said = sizes.trained("GAU"), published.number("table_4", "params_percent", model="RoFormerV1")
    return Found(
        {
            "entries": {model: sizes.vocabulary(model) for model in sizes.ARCHITECTURES},
            "V1 in percent of GAU: printed, with GAU's vocabulary": [said, round(100 * alike / gau, 2)],
        },
        {
            "V1's vocabulary is more than four times as large": sizes.vocabulary("RoFormerV1")
            > 4 * sizes.vocabulary("GAU"),
            "printed, V1 is more than a quarter larger": said > 125,
            "with GAU's vocabulary it is smaller than GAU": alike < gau,
        },
        (Effect("V1's parameters", alike, sizes.trained("RoFormerV1")),),
    )


# --- architecture ----------------------------------------------------------------------------------------------------


@check("gau-scale-of-the-scores")
def gau_scale() -> Found:
    scores = attention_rank.random_scores(N, S, 1.0, _seeded()) * math.sqrt(S)
    spreads = {name: float((scores / math.sqrt(width)).std()) for name, width in (("√s", S), ("√d_h", 768))}
    said = settings.said("gau", "Section 4.1", "gau", "scale"), settings.said("gau", sizes.GAU_ALPHA, "gau", "scale")
    return Found(
        {"standard deviation of the scores": spreads},
        {
            "paper and release divide by different widths": said[0] != said[1],
            "divided by √s the scores have unit size": abs(spreads["√s"] - 1) < 0.05,
            "divided by √d_h they do not": spreads["√d_h"] < 0.5,
        },
    )


def norm_with_variance(x: Tensor) -> Tensor:
    """Section 4.1 as printed: X over the root of its variance."""
    return x / x.var(-1, unbiased=False, keepdim=True).sqrt()


@check("gau-norm-without-a-mean")
def gau_norm() -> Found:
    x = torch.randn(64, 256, generator=_seeded(), dtype=torch.float64)
    apart = {mean: float((norm_with_variance(x + mean) / rms_norm(x + mean)).abs().mean()) for mean in (0.0, 1.0, 10.0)}
    return Found(
        {"the printed norm over RMSNorm, by the mean of the features": apart},
        {
            "without a mean they agree to 5%": abs(apart[0.0] - 1) < 0.05,
            "with a mean of ten they differ by more than nine times": apart[10.0] > 9,
        },
    )


def distance_only(rotate_q: bool, rotate_k: bool) -> float:
    """How far scores of one q and one k at equal distances, but at different places, are from each other."""
    rotary = attention.Rotary(16, learned=False)
    q, k = (torch.randn(1, 16, generator=_seeded(), dtype=torch.float64).expand(12, 16).clone() for _ in range(2))
    k = k.flip(-1)
    (turned_q,), (turned_k,) = rotary(q), rotary(k)
    scores = (turned_q if rotate_q else q) @ (turned_k if rotate_k else k).mT
    return max(float(scores.diagonal(d).max() - scores.diagonal(d).min()) for d in range(4))


@check("gau-rope-is-no-summand")
def gau_rope() -> Found:
    both, q_alone = distance_only(True, True), distance_only(True, False)
    said = [settings.said("gau", source, "gau", "rope") for source in ("Section 4.1", sizes.GAU_ALPHA)]
    return Found(
        {"spread of the scores at equal distances: both rotated, Q alone": [both, q_alone]},
        {
            "paper and release rotate different sides": said[0] != said[1],
            "with both sides rotated, scores depend on the distance alone": both < _ZERO,
            "with Q alone they do not": q_alone > 0.1,
        },
    )


@check("gau-offset")
def gau_offset() -> Found:
    options = sizes.config("GAU").attention_options["gau"]
    more = sizes.trained("GAU", attention_options={"gau": {**options, "offset": True}}) - sizes.trained("GAU")
    said = published.number("table_4", "params", model="GAU")
    return Found(
        {"parameters of all offsets": more},
        {
            "offsets are two vectors of s in each of 24 units": more == 24 * 2 * S,
            "with them the count is not the printed one": round((sizes.trained("GAU") + more) / 1000) != said,
        },
    )


@check("gau-values-in-the-matrix")
def values_in_the_matrix() -> Found:
    block, x = unit()
    matrix = block.weights(x)[0, 0]
    values = torch.randn(16, 32, generator=_seeded(), dtype=torch.float64)
    sums = [float((sums - 1).abs().max()) for sums in (matrix.sum(-1), (matrix @ values).sum(-1))]
    return Found(
        {"largest distance of a row's sum from one: softmax, softmax times V": sums},
        {"rows of the softmax sum to one": sums[0] < _ZERO, "rows of the product do not": sums[1] > 0.1},
    )


# --- activations -----------------------------------------------------------------------------------------------------


@check("gau-s-squared-between-two-that-converge")
def s_squared() -> Found:
    order = list(published.divisors(N, S))
    accuracy = {name: published.printed("table_1", "accuracy", factor=name) for name in order}
    place = order.index("s²")
    beside = [accuracy[order[i]] for i in (place - 1, place + 1)]
    return Found(
        {"factors at 512 tokens": published.divisors(N, S), "accuracy": accuracy},
        {
            "s² is neither the smallest nor the largest factor": 0 < place < len(order) - 1,
            "the next smaller and the next larger factor converge": None not in beside,
            "s² does not": accuracy["s²"] is None,
        },
    )


@check("gau-standard-transformer-has-no-factor-n")
def no_factor_n() -> Found:
    sums = {size: float((size * torch.randn(N, generator=_seeded())).exp().sum()) / N for size in (0.0, 1.0, 3.0)}
    n, n2 = (published.number("table_1", "accuracy", factor=name) for name in ("n", "n²"))
    return Found(
        {"the softmax's denominator over n, by the size of the scores": sums, "accuracy with n, n²": [n, n2]},
        {
            "it is n where all scores are zero": abs(sums[0.0] - 1) < 1e-6,
            "with scores of size 3 it is more than ten times n": sums[3.0] > 10,
            "in Table 1 a factor of n is worse than n²": n < n2,
        },
    )


@check("gau-scaled-rows")
def scaled_rows() -> Found:
    sums = {}
    for normaliser in ("relu2-scaled", "relu2-rows", "softmax"):
        block, x = unit(normaliser=normaliser)
        sums[normaliser] = float(block.weights(x).sum(-1).mean())
    return Found(
        {"mean sum of a row of 16 keys with s = 8": sums, "1 / (n s) at the paper's size": 1 / (N * S)},
        {
            "the scaled rows sum to 1 / (n s)": math.isclose(sums["relu2-scaled"], 1 / 128, rel_tol=1e-6),
            "divided by c_i alone they sum to one, as a softmax's": math.isclose(sums["relu2-rows"], 1.0, rel_tol=1e-6)
            and math.isclose(sums["softmax"], 1.0, rel_tol=1e-6),
        },
        (Effect("sum of a row of the scaled squared ReLU", sums["relu2-rows"], sums["relu2-scaled"]),),
    )


@check("gau-two-scales-of-one-row")
def two_scales() -> Found:
    one, x = unit(normaliser="relu2-ns", scale=False)
    two, _ = unit(normaliser="relu2-ns", scale=True)
    ratio = float(one.weights(x).sum() / two.weights(x).sum())
    return Found(
        {"Table 1's n·s over Table 2's, s = 8": ratio},
        {"they differ by the width of the scale": math.isclose(ratio, 8.0, rel_tol=1e-9)},
        (Effect("mean entry of the matrix", float(one.weights(x).mean()), float(two.weights(x).mean())),),
    )


@check("gau-entropy-in-proportion-to-n")
def entropy_in_proportion() -> Found:
    lengths = [2**k for k in range(3, 13)]
    found = attention_entropy.by_length("normal", lengths, 1.0, plus=False, rows=8, generator=_seeded())
    over_log = [found[n] / math.log(n) for n in lengths]
    return Found(
        {
            "entropy over log n, 8 to 4,096 keys": over_log,
            "entropy over n": [found[lengths[0]] / 8, found[4096] / 4096],
        },
        {
            "it is never more than log n": max(over_log) <= 1 + _ZERO,
            "over log n it changes by less than a quarter": max(over_log) / min(over_log) < 1.25,
            "over n it falls more than fiftyfold": found[8] / 8 > 50 * found[4096] / 4096,
        },
    )


@check("gau-softmax-plus-at-512")
def plus_at_512() -> Found:
    matrices = []
    for normaliser in ("softmax_plus", "softmax"):
        block, x = unit(N, normaliser=normaliser)
        matrices.append(block.weights(x))
    apart = float((matrices[0] - matrices[1]).abs().max())
    lead = published.ahead("softmax_plus", "softmax", "accuracy", "fixed")
    return Found(
        {"largest difference of the two matrices at 512 keys": apart, "printed difference in accuracy": lead},
        {"at 512 keys the two are equal": apart < _ZERO, "Table 2 prints different accuracies": lead != 0.0},
    )


@check("gau-sparsity-of-a-softmax")
def sparsity_of_a_softmax() -> Found:
    scores = attention_rank.random_scores(N, S, 3.0, _seeded())
    softmax, relu2 = (attention_rank.ACTIVATIONS[name](scores) for name in ("softmax", "ReLU²"))
    said = {name: published.number("table_3", "sparsity", matrix=name) for name in ("softmax", "ReLU²")}
    zeros = {"softmax": float(attention_rank.sparsity(softmax)), "ReLU²": float(attention_rank.sparsity(relu2))}
    small = float(attention_rank.sparsity(softmax, 0.01))
    rest = (said["ReLU²"] - said["softmax"]) / (100 - said["softmax"])
    return Found(
        {
            "share of zeros": zeros,
            "share of the softmax's entries below 1% of their row's mean": small,
            "share of zeros among the other keys, if the softmax's were padding": rest,
        },
        {
            "a softmax has no zeros": zeros["softmax"] == 0.0,
            "with a threshold it has": small > 0.05,
            "Table 3 prints a tenth": said["softmax"] > 10,
            "a squared ReLU of symmetric scores is half zeros, not an eighth": zeros["ReLU²"]
            > 0.4
            > said["ReLU²"] / 100,
        },
    )


@check("gau-sparsity-is-not-rank")
def sparsity_is_not_rank() -> Found:
    scores = attention_rank.random_scores(64, 2, 1.0, _seeded())
    kinds = {"identity": torch.eye(64, dtype=torch.float64)}
    kinds |= {name: attention_rank.ACTIVATIONS[name](scores) for name in ("squares", "ReLU²")}
    ranks = {name: attention_rank.rank(matrix) for name, matrix in kinds.items()}
    zeros = {name: float(attention_rank.sparsity(matrix)) for name, matrix in kinds.items()}
    return Found(
        {"rank of 64": ranks, "share of zeros": zeros},
        {
            "the identity has the most zeros and full rank": zeros["identity"] == max(zeros.values())
            and ranks["identity"] == 64,
            "the squared ReLU has more zeros than the square, and a higher rank": zeros["ReLU²"] > zeros["squares"]
            and ranks["ReLU²"] > ranks["squares"],
        },
    )


@check("gau-length-or-fit")
def length_or_fit() -> Found:
    behind = {column: -published.ahead("ReLU²", "softmax", column, "fixed") for column in ("accuracy", "clue")}
    return Found(
        {"squared ReLU behind softmax, pre-trained at 512: masked LM, CLUE": list(behind.values())},
        {"it is far behind at the trained length, too": behind["accuracy"] > 10, "and on CLUE": behind["clue"] > 10},
    )


# --- tables ----------------------------------------------------------------------------------------------------------


@check("gau-average-on-clue")
def average_on_clue() -> Found:
    abstract, introduction = (settings.said("gau", of, "sentences", "clue") for of in ("Abstract", "Section 1"))
    table = published.number("table_5", "avg", model="GAU")
    v1 = published.number("table_5", "avg", model="RoFormerV1")
    return Found(
        {"abstract, Section 1, Table 5": [abstract, introduction, table], "RoFormerV1": v1},
        {
            "the abstract's number is not Table 5's": abstract != table,
            "Section 1's is": introduction == table,
            "by the abstract's GAU would be behind RoFormerV1": abstract < v1,
            "by Table 5's it is about one point ahead": abs(table - v1 - 1) < 0.05,
        },
    )


@check("gau-average-rounded")
def average_rounded() -> Found:
    averages = {line["model"]: (line["printed"], line["mean of nine"]) for line in table_5.averages()}
    off = [row for row, (said, mean) in averages.items() if round(mean + _ZERO, 2) != said]
    return Found(
        {"printed, recomputed": {row: [said, round(mean, 3)] for row, (said, mean) in averages.items()}},
        {"only GAU's average does not follow from its row": off == ["GAU"]},
    )


@check("gau-relu2-is-not-faster")
def relu2_not_faster() -> Found:
    took = {name: published.seconds(name) for name in published.ACTIVATIONS}
    return Found(
        {"minutes of pre-training": {name: round(seconds / 60, 1) for name, seconds in took.items()}},
        {
            "softmax took less time than the squared ReLU": took["softmax"] < took["ReLU²"],
            "one more multiplication took more than ten minutes": took["softmax_plus"] - took["softmax"] > 600,
        },
    )


@check("gau-plus-helps-clue-not-mlm")
def plus_helps_clue() -> Found:
    leads = {name: published.ahead("softmax_plus", "softmax", name, "varied") for name in ("clue", "accuracy")}
    return Found(
        {"softmax_plus ahead of softmax at varied length, in points": leads},
        {"ahead on CLUE": leads["clue"] > 0, "behind in masked-LM accuracy": leads["accuracy"] < 0},
    )


@check("gau-card-of-table-4")
def card() -> Found:
    most = max(value for model in published.MODELS for value in published.growth_of_memory(model).values())
    said = settings.said("gau", "Section 5.2", "sentences", "gpu")
    return Found(
        {"most memory in use (MB)": most, "the card's name": said},
        {
            "more than 32 GB were in use": most > 32 * 1024,
            "48 GB would hold it": most < 48 * 1024,
            "the paper calls the card T40": said == "T40",
        },
    )


@check("gau-passages-beyond-512")
def passages() -> Found:
    table = tables.load("gau", "table_6")
    length, batch = (table.value(column, task="CMRC") for column in ("length", "batch"))
    cuts = windows(1000, N)
    held = [any(a <= first and first + N // 2 <= b for a, b in cuts) for first in range(1000 - N // 2 + 1)]
    return Found(
        {"printed for CMRC: length, batch": [length, batch], "windows of a passage of 1,000 tokens": cuts},
        {
            "one length and one batch are printed": (length, batch) == (N, 32),
            "no column is about longer passages": {"stride", "windows"}.isdisjoint(c.name for c in table.columns),
            "every answer of half a window is whole in one": all(held),
        },
    )
