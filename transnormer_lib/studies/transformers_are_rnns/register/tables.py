"""Checks on Tables 1 to 3 and the sentences about them."""

from transnormer_lib.studies.transformers_are_rnns.register.checks import Found, build, check, printed, said
from transnormer_lib.studies.transformers_are_rnns.register.complexity import one_more


@check("factor-of-one-digit")
def factor_of_one_digit() -> Found:
    linear, softmax = (printed("table_2", "images_per_second", row) for row in ("Linear", "Softmax"))
    limits = [linear / (softmax + sign * 0.0005) for sign in (1, -1)]
    factor = printed("table_2", "times_softmax", "Linear")
    return Found(
        {"the quotient as printed": linear / softmax, "with what rounds to the printed rate": limits},
        {
            "the factor is the quotient of the printed rates": abs(linear / softmax - factor) < 1,
            "one digit leaves a quarter of it open": limits[1] / limits[0] > 1.25,
        },
    )


@check("best-bits-on-cifar")
def best_bits_on_cifar() -> Found:
    bits = {row: printed("table_2", "bits_per_dim", row) for row in ("Softmax", "LSH-1", "LSH-4", "Linear")}
    return Found(
        {"bits per dimension, Table 2": bits},
        {
            "LSH-4 is behind softmax": bits["LSH-4"] > bits["Softmax"],
            "LSH-1 is ahead of linear attention": bits["LSH-1"] < bits["Linear"],
            "linear attention is ahead of softmax": bits["Linear"] < bits["Softmax"],
        },
    )


@check("thousand-times-on-one-of-two")
def thousand_times() -> Found:
    factors = [printed(table, "times_softmax", "Linear") for table in ("table_1", "table_2")]
    sentence = said("Section 4.2", "sentences", "times_faster")
    return Found(
        {"factors of Tables 1 and 2": factors, "the sentence": sentence},
        {"Table 2's is above it": factors[1] > sentence, "Table 1's is not": factors[0] < sentence},
    )


@check("thousands-with-two-causes")
def two_causes() -> Found:
    softmax, linear = (build(name, causal=True, head_dim=32) for name in ("softmax", "linear"))
    found = {}
    for n in (784, 3072):
        places = range(n // 16, n, n // 8)  # the mean over the positions, from eight of them
        again = sum(softmax.flops(i) for i in places) / len(places)
        cached = sum(one_more(softmax, i) for i in places) / len(places)
        found[n] = {"without a cache over with one": again / cached, "cache over linear": cached / one_more(linear, n)}
    return Found(
        {f"operations of a pixel, mean over {n:,} pixels": by for n, by in found.items()},
        {
            "the cache alone takes away most of the factor": all(
                by["without a cache over with one"] > by["cache over linear"] for by in found.values()
            ),
            "both parts grow with the length": all(found[3072][part] > 3 * found[784][part] for part in found[784]),
        },
    )
