"""Coverage-guided inputs for the readers of files, by atheris: ``guided_parsers.py FOLDER -atheris_runs=N -seed=1``.

What an input must do is what ``test_fuzzed_parsers.py`` says. Any other error ends the process with a traceback.
"""

import json
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["transnormer_lib", "yaml", "json"]):
    import yaml

    from transnormer_lib import files
    from transnormer_lib.ledger import claims, judging
    from transnormer_lib.papers import records
    from transnormer_lib.report import parameters

sys.path.insert(0, str(Path(__file__).parents[1] / "factories"))
from refusals import outcome

FOLDER = Path(sys.argv[1])


def _claim(path: Path) -> object:
    return records.build(claims.Claim, files.read_yaml(path), path.name)


def one(data: bytes) -> None:
    """Every reader on one input."""
    for name, read in READERS.items():
        path = FOLDER / name
        path.write_bytes(data)
        outcome(lambda read=read, path=path: read(path))


def _cell(path: Path) -> object:
    return parameters.parse(path.read_text(encoding="utf-8", errors="replace"), "01_a")


READERS = {
    "mine.yaml": files.read_yaml,
    "mine.json": files.read_object,
    "claims.json": judging.read_judged,
    "claim.yaml": _claim,
    "cell.py": _cell,
}

if __name__ == "__main__":
    corpus = FOLDER / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "yaml").write_bytes(b"a: &one {b: 1.0e-3}\nc: [<<, *one]\n")
    (corpus / "json").write_bytes(json.dumps([{"id": "a", "verdict": "trend"}]).encode())
    (corpus / "cell").write_bytes(b"size: int = 3  # how many\nseeds: list[int] = [0, 1]\n")
    (corpus / "claim").write_bytes(yaml.safe_dump({"id": "a", "kind": "theorem", "published": None}).encode())
    atheris.Setup([sys.argv[0], *sys.argv[2:], str(corpus)], one)
    atheris.Fuzz()
