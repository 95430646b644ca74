"""LSH attention (Reformer) as the three studies of "Transformers are RNNs" have it: one definition of lsh-X.

X is the number of rounds of hashing. The form is the one that Reformer's authors released: chunks of the order sorted
by bucket, whose queries see keys of other buckets too, and a key counts in every round that finds it. One thing differs
in a decoder: there each bucket is cut into chunks by itself, because in the sorted order later tokens move the chunks
of earlier ones, so that a causal output depends on the future.
"""

from typing import Any

from transnormer_lib.checks import check_choice

ROWS = ("lsh-1", "lsh-4", "lsh-8")  # those of the paper


def options(row: str, *, buckets: int | None, chunk_size: int, decoder: bool) -> dict[str, Any]:
    """The options of the mechanism ``reformer`` for a row; ``buckets`` None: by Reformer's own rule.

    Raises ValueError for a row that is none of ``ROWS``.
    """
    check_choice("row", row, ROWS)
    found = {
        "hashes": int(row.removeprefix("lsh-")),
        "chunk_size": chunk_size,
        "chunking": "bucket" if decoder else "across",
        "duplicates": "each",
    }
    return found if buckets is None else found | {"buckets": buckets}
