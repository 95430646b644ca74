"""The scripts in examples/ do what they say."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from training_cases import config

from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.sampling import Sampling
from transnormer_lib.models.text import stream
from transnormer_lib.training.export import export
from transnormer_lib.training.store import RunStore

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def _run(folder: Path, script: str, *arguments: str) -> str:
    environment = os.environ | {"TRANSNORMER_RUNS": str(folder / "runs"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / script), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_has_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"train_on_your_text.py", "swap_attention.py", "serve.py"}


def test_training_on_a_text_leaves_a_model_that_loads(tmp_path: Path) -> None:
    (tmp_path / "tale.txt").write_text("".join(f"There was a number {n}, and it grew.\n\n" for n in range(400)))
    shown = _run(tmp_path, "train_on_your_text.py", "tale.txt", "my-model", "--steps", "3")
    first, text = shown.split("\n", 1)
    assert re.fullmatch(r"[\d,]+ parameters, \d\.\d+ bits per byte on held-out text", first)
    model = LanguageModel.from_pretrained(tmp_path / "my-model")
    assert text == "".join(stream(model, "The ", tokens=200)) + "\n"


@pytest.mark.slow
def test_a_swapped_attention_learns_what_softmax_learns(tmp_path: Path) -> None:
    shown = _run(tmp_path, "swap_attention.py", "--steps", "400")
    losses = [(float(a), float(b)) for a, b in re.findall(r": (\d\.\d+) nats, after 400 steps (\d\.\d+)", shown)]
    assert len(losses) == 3
    assert all(last < first / 2 for first, last in losses), shown


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LanguageModel, str]]:
    folder = tmp_path_factory.mktemp("served")
    export(RunStore(folder / "runs").get(config(steps=2)), folder / "model")
    command = [sys.executable, str(EXAMPLES / "serve.py"), str(folder / "model"), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        yield LanguageModel.from_pretrained(folder / "model"), server.stdout.readline().strip().partition("?")[0]
    finally:
        server.terminate()
        server.wait(timeout=30)


def test_a_served_text_is_the_models(served: tuple[LanguageModel, str]) -> None:
    model, address = served
    with urllib.request.urlopen(f"{address}?prompt=Once+upon&tokens=60&seed=3", timeout=60) as answer:
        text = answer.read().decode()
    assert text == "".join(stream(model, "Once upon", 60, Sampling(0.8, top_p=0.95), seed=3))


@pytest.mark.parametrize("query", ["tokens=many", "tokens=-1", "temperature=-1", "temperature=nan"])
def test_a_bad_request_is_refused_and_the_server_goes_on(query: str, served: tuple[LanguageModel, str]) -> None:
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{served[1]}?{query}", timeout=60)
