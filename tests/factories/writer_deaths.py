"""Kills what fills the data cache at random points, runs it again, and prints the outcomes as JSON.

``python writer_deaths.py FOLDER KIND MANNER COUNT``; see tests/chaos/test_writer_deaths.py.
"""

import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from deaths import ATTEMPTS, EARLIER, Manner, died, fork, killed, undisturbed, wait
from small_disks import small_disk

from transnormer_lib.data import cache, corpora, reviews, tasks, token_files


def _lines() -> "Iterator[pa.Array]":
    for part in range(300):
        yield pa.array([f"line {part} {number}" for number in range(200)])


def _bytes(lines: "pa.Array") -> Any:
    return np.frombuffer("".join(lines.to_pylist()).encode(), np.uint8).astype(np.int32)


def token_file() -> bytes:
    tokens, tally = token_files.token_file("numbers", "1", _lines, _bytes)
    return tokens.tobytes() + repr(tally).encode()


def vocabulary() -> bytes:
    """Articles, byte pairs and the tokens made with them."""
    corpora.load_text_corpus.cache_clear()
    corpus = corpora.load_text_corpus("wikipedia", "bpe-300")
    return b"".join(tokens.tobytes() for tokens in corpus.tokens.values()) + corpus.fingerprint.encode()


def features() -> bytes:
    """A file too large to hold, written once."""
    from safetensors.numpy import load_file, save_file

    path = cache.file_of("features", "1")
    arrays = {str(n): np.random.default_rng(n).standard_normal(200_000) for n in range(30)}
    cache.write_once(path, lambda partial: save_file(arrays, partial))
    return b"".join(array.tobytes() for array in load_file(path).values())


def task(name: str, train: int) -> Callable[[], bytes]:
    def work() -> bytes:
        tasks._load.cache_clear()
        reviews.load_reviews.cache_clear()
        found = tasks.load_task(name, limit={"train": train, "validation": 20, "test": 20})
        return b"".join(part.tokens.tobytes() + part.labels.tobytes() for part in found.splits.values())

    return work


WRITERS: dict[str, Callable[[], bytes]] = {
    "token file": token_file,
    "vocabulary": vocabulary,
    "features": features,
    "listops": task("trees-512", 1100),  # several chunks, so several processes
    "pathfinder": task("pathfinder", 300),
    "reviews": task("review-sentiment", 20_000),
}


def left_behind(folder: Path, seconds: float = 10.0) -> list[str]:
    """The processes that know the folder, other than this one, and do not end within so many seconds."""
    deadline = time.monotonic() + seconds
    while (found := _knowing(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _knowing(folder: Path) -> list[str]:
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            mine = f"TRANSNORMER_CACHE={folder}".encode() in environment.read_bytes().split(b"\0")
            if mine and int(environment.parent.name) != os.getpid():
                found.append((environment.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100])
        except OSError:  # ended meanwhile
            continue
    return found


def main(folder: Path, kind: str, manner: Manner, count: int) -> None:
    errors, made = folder / "errors", folder / "made"

    def work(place: Path) -> Callable[[], None]:
        def make() -> None:
            os.environ["TRANSNORMER_CACHE"] = str(place)
            made.write_text(hashlib.sha256(WRITERS[kind]()).hexdigest())

        return make

    warm = folder / "warm"
    undisturbed(work(warm), errors)  # imports, files read for the first time
    seconds = undisturbed(work(folder / "undisturbed"), errors)
    needed = sum(path.stat().st_size for path in (folder / "undisturbed").rglob("*") if path.is_file())
    expected, draw, outcomes = made.read_text(), random.Random(f"{kind} {manner}"), []
    for number in range(count if manner == "disk" else ATTEMPTS * count):
        place = folder / str(number)
        writing = {"token file": "tokens/.*.int32.*", "features": ".features*"}.get(kind, "examples/*/.*")
        errors.write_text("")
        made.unlink(missing_ok=True)
        disk = small_disk(place, int(draw.uniform(0.0, 0.9) * needed)) if manner == "disk" else None
        if disk:
            code = wait(fork(disk.limiting(work(place)), errors), errors)
        else:
            code = killed(work(place), manner, seconds, draw, errors, (place / writing,))
        told, first = errors.read_text(), made.read_text() if made.exists() else ""
        left = [str(path.relative_to(place)) for path in place.rglob(".*") if path.is_file()] if disk else []
        if disk:
            disk.make_room()
        equal = code != 0 or first == expected
        undisturbed(work(place), errors)
        first = made.read_text()
        undisturbed(work(place), errors)  # reads what is stored
        equal &= expected == first == made.read_text()
        ended = {"code": code, "died": died(manner, code)}
        outcomes.append({**ended, "equal": equal, "told": told, "left": [*left, *left_behind(place)]})
        if disk:
            disk.remove()
        shutil.rmtree(place)
        if sum(one["died"] for one in outcomes) == count:
            break
        if not ended["died"]:
            seconds *= EARLIER
    print(json.dumps(outcomes))


if __name__ == "__main__":
    chosen = sys.argv[3]
    assert chosen in get_args(Manner)
    main(Path(sys.argv[1]), sys.argv[2], chosen, int(sys.argv[4]))  # type: ignore[arg-type]
