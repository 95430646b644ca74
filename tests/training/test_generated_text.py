"""A stored run writes text piece by piece, each piece as soon as its characters are complete."""

import pytest
import torch
from training_cases import config

from transnormer_lib.cli import main
from transnormer_lib.data.vocabulary import ByteVocabulary
from transnormer_lib.models import text
from transnormer_lib.models.sampling import Sampling
from transnormer_lib.training.store import RunStore
from transnormer_lib.training.stored_run import Run
from transnormer_lib.visible import visible

GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return RunStore(tmp_path_factory.mktemp("runs")).get(config(steps=2))


def pieces(content: bytes, stop: tuple[str, ...] = ()) -> list[str]:
    return list(text.pieces(ByteVocabulary(), ([byte] for byte in content), stop))


def test_a_piece_is_whole_characters() -> None:
    assert pieces("aφ€b".encode()) == ["a", "φ", "€", "b"]


def test_bytes_that_are_no_character_are_shown_when_that_is_certain() -> None:
    assert "".join(pieces(b"a\xcfb\xe2\x82")) == b"a\xcfb\xe2\x82".decode(errors="replace")


@pytest.mark.parametrize(("stop", "left"), [(("lo w",), "hello w"), (("or", "l"), "hel"), (("x",), "hello world")])
def test_the_first_stop_ends_the_text_and_is_kept(stop: tuple[str, ...], left: str) -> None:
    assert "".join(pieces(b"hello world", stop)) == left


def test_the_pieces_are_the_text(run: Run) -> None:
    assert "".join(run.stream("The ", 50, Sampling(0.9, 20), seed=3)) == run.generate("The ", 50, Sampling(0.9, 20), 3)


def test_a_text_longer_than_the_model_ends_at_a_stop_too(run: Run) -> None:
    whole = run.generate("The ", 80, seed=1)
    stop = whole[60:63]
    assert run.generate("The ", 80, seed=1, stop=[stop]) == whole[: whole.index(stop) + 3]


def test_an_empty_stop_is_refused_before_anything_is_made(run: Run) -> None:
    with pytest.raises(ValueError, match=r"stop=\[\'\'\]: each must hold at least one character"):
        run.stream("The ", stop=[""])


def test_the_command_prints_the_prompt_and_the_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--prompt", "The ", "--tokens", "40", "--temperature", "0.9", "--top-k", "20", "--top-p", "1"]
    assert main(["runs", "generate", str(run.path), *options, "--seed", "3"]) == 0
    whole = "The " + run.generate("The ", 40, Sampling(0.9, 20), 3)
    assert capsys.readouterr().out == visible(whole) + "\n"
    stop = whole[10:12]
    assert main(["runs", "generate", str(run.path), *options, "--seed", "3", "--stop", stop]) == 0
    assert capsys.readouterr().out == visible(whole[: 4 + whole[4:].index(stop) + 2]) + "\n"


@pytest.mark.parametrize(
    ("option", "message"), [(["--top-k", "-1"], "top_k=-1: must be"), (["--stop", ""], "stop=[''] : each")]
)
def test_a_bad_option_is_a_users_mistake(
    run: Run, option: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs", "generate", str(run.path), *option]) == 2
    assert message.replace(" :", ":") in capsys.readouterr().err


@pytest.mark.parametrize("top_p", [1e-300, 1e-46, 1e-30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_likeliest_token_stays_however_small_top_p_is(dtype: torch.dtype, top_p: float) -> None:
    logits = torch.tensor([[0.5, 3.0, 1.0]], dtype=dtype)
    assert Sampling(top_p=top_p).probabilities(logits).tolist() == [[0.0, 1.0, 0.0]]


def test_a_prompt_that_is_no_text_is_refused_by_name(run: Run) -> None:
    with pytest.raises(ValueError, match=r"prompt=.*: must be valid Unicode"):
        run.generate("a \udcff", tokens=3)
