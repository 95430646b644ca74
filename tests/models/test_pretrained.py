"""A model that is saved and loaded is the same model, and a folder that is not what was written is refused."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.hub_mixin as hub_mixin
import pytest
import torch

from transnormer_lib.data.characters import CharacterVocabulary
from transnormer_lib.data.vocabulary import ByteVocabulary, Vocabulary, train_bpe
from transnormer_lib.data.words import WordVocabulary
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.backbone import Backbone
from transnormer_lib.models.classifier import Classifier, ClassifierConfig
from transnormer_lib.models.config import ModelConfig
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.models.text import stream
from transnormer_lib.models.transcriber import Transcriber

SHAPE: dict[str, Any] = {"vocab_size": 258, "max_length": 24, "dim": 16, "heads": 2, "layers": 2}


def config(name: str = "transnormer-t2", kind: str = "decoder", **fields: Any) -> ModelConfig:
    return replace(architecture(name, kind=kind, **(SHAPE | fields)), dropout=0.1)


def classifier(**fields: Any) -> Classifier:
    return Classifier(ClassifierConfig(model=config(kind="encoder"), **({"classes": 3} | fields)))


MODELS: dict[str, Callable[[], Backbone]] = {
    "a decoder": lambda: LanguageModel(config()),
    "an encoder": lambda: LanguageModel(config(kind="encoder")),
    "an untied decoder": lambda: LanguageModel(replace(config(), tied=False, output_bias=True)),
    "the released recipe": lambda: LanguageModel(config(recipe="released")),
    "random features": lambda: LanguageModel(config("performer")),
    "a classifier": classifier,
    "a classifier of pairs": lambda: classifier(pairs=True),
    "a transcriber": lambda: Transcriber(replace(config(kind="encoder"), features=5, context=1)),
}
TEXT = "It was the best of times, it was the worst of times. " * 9
VOCABULARIES: dict[str, Callable[[], Vocabulary]] = {
    "bytes": ByteVocabulary,
    "bpe-270": lambda: train_bpe([TEXT], 270),
    "chars-5": lambda: CharacterVocabulary('好不\u2028"'),
}


def inputs(model: Backbone) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, Transcriber):
        return torch.randn(2, 9, 5, generator=generator)
    pairs = isinstance(model, Classifier) and model.classifier_config.pairs
    return torch.randint(258, (2, 2, 9) if pairs else (2, 9), generator=generator)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", MODELS)
def test_a_loaded_model_computes_the_same_numbers(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = MODELS[kind]().eval()
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert not loaded.training
    assert loaded.whole_config() == model.whole_config()
    assert torch.equal(loaded(inputs(model)), model(inputs(model)))


@pytest.mark.parametrize("name", VOCABULARIES)
def test_the_vocabulary_comes_back_without_its_text(name: str, tmp_path: Path) -> None:
    vocabulary = VOCABULARIES[name]()
    model = LanguageModel(config(vocab_size=vocabulary.size))
    model.vocabulary = vocabulary
    model.save_pretrained(tmp_path)
    loaded = LanguageModel.from_pretrained(tmp_path)
    assert loaded.vocabulary is not None
    assert loaded.vocabulary.name == name
    assert loaded.vocabulary.fingerprint == vocabulary.fingerprint
    assert "".join(stream(loaded, "It", 20)) == "".join(stream(model.eval(), "It", 20))


def test_a_vocabulary_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    model = LanguageModel(config())
    model.vocabulary = WordVocabulary(["<unk>", "</s>"])
    with pytest.raises(ValueError, match="vocabulary='words': only bytes, byte pairs and characters can be stored"):
        model.save_pretrained(tmp_path)


def test_saving_and_loading_leave_the_same_bytes(tmp_path: Path) -> None:
    model = LanguageModel(config())
    model.vocabulary = VOCABULARIES["bpe-270"]()
    for name in ("first", "second"):
        model.save_pretrained(tmp_path / name)
    LanguageModel.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "third")
    first = content(tmp_path / "first")
    assert set(first) == {"README.md", "SHA256SUMS", "config.json", "model.safetensors", "tokenizer.json"}
    assert content(tmp_path / "second") == first
    assert content(tmp_path / "third") == first


def test_another_model_saved_in_the_same_folder_replaces_the_first(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for kind in ("a decoder", "an untied decoder"):
        model = MODELS[kind]()
        model.save_pretrained(tmp_path)
    assert LanguageModel.from_pretrained(tmp_path).config == model.config


def test_loading_draws_nothing_from_torchs_generator(tmp_path: Path) -> None:
    LanguageModel(config()).save_pretrained(tmp_path)
    before = torch.random.get_rng_state()
    LanguageModel.from_pretrained(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_an_edited_card_stays_with_the_model(tmp_path: Path) -> None:
    LanguageModel(config()).save_pretrained(tmp_path / "model")
    card = tmp_path / "model" / "README.md"
    card.write_text(card.read_text() + "\nIt is mine.\n")
    LanguageModel.from_pretrained(tmp_path / "model").save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == card.read_text()


def test_pushing_uploads_what_saving_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: dict[str, Any] = {}

    class Hub:
        def __init__(self, **_: Any) -> None:
            pass

        def create_repo(self, repo_id: str, **_: Any) -> Any:
            return type("Repository", (), {"repo_id": repo_id})

        def upload_folder(self, folder_path: Path, repo_id: str, **_: Any) -> str:
            uploaded[repo_id] = content(folder_path)
            return "done"

    monkeypatch.setattr(hub_mixin, "HfApi", Hub)
    model = LanguageModel(config())
    model.vocabulary, model.card = VOCABULARIES["chars-5"](), "---\ntags: [mine]\n---\n\nA card.\n"
    model.save_pretrained(tmp_path)
    assert LanguageModel.from_pretrained(tmp_path).push_to_hub("me/my-model") == "done"
    assert uploaded == {"me/my-model": content(tmp_path)}


def _flip(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)


def _unknown_field(folder: Path) -> None:
    stored = json.loads((folder / "config.json").read_text())
    stored["model"]["widht"] = 3
    _resealed(folder, stored)


def _of_a_run(folder: Path) -> None:
    _resealed(folder, {"name": "my-text", "model": {}, "data": {}})


def _wider(folder: Path) -> None:
    stored = json.loads((folder / "config.json").read_text())
    stored["model"]["hidden"] = 7
    _resealed(folder, stored)


def _vocabulary(name: object) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        stored = json.loads((folder / "config.json").read_text())
        _resealed(folder, stored | {"vocabulary": name})

    return act


def _config(stored: object) -> Callable[[Path], None]:
    return lambda folder: _resealed(folder, stored)


def _resealed(folder: Path, stored: object) -> None:
    from transnormer_lib import sums

    (folder / "config.json").write_text(json.dumps(stored))
    sums.seal(folder)


def _written(folder: Path, content: str | bytes, name: str = "config.json") -> None:
    from transnormer_lib import sums

    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    sums.seal(folder)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a flipped byte": (lambda folder: _flip(folder / "model.safetensors"), "model.safetensors is not what was written"),
    "an edited config": (lambda folder: _flip(folder / "config.json"), "config.json is not what was written"),
    "no vocabulary": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
    "no digests": (lambda folder: (folder / "SHA256SUMS").unlink(), "SHA256SUMS cannot be read"),
    "a field of another version": (_unknown_field, "describes no LanguageModel of this version: widht=3"),
    "the folder of a run": (_of_a_run, "a stored run is exported by `transnormer export RUN DIR`"),
    "weights of another shape": (_wider, "size mismatch"),
    "a config that is a number": (_config(3), "config.json is not a model's"),
    "a config that is a list": (_config([{}]), "config.json is not a model's"),
    "a config that is a list of its names": (_config(["model", "vocabulary"]), "config.json is not a model's"),
    "a config that is nothing": (_config(None), "config.json is not a model's"),
    "a model that is a number": (_config({"model": 3, "vocabulary": None}), "describes no LanguageModel"),
    "a model that is nothing": (_config({"model": None, "vocabulary": None}), "describes no LanguageModel"),
    "a model that is a text": (_config({"model": "x", "vocabulary": None}), "describes no LanguageModel"),
    "a vocabulary that is a number": (_vocabulary(3), "vocabulary=3: must be the name of a vocabulary or null"),
    "a vocabulary that is a list": (
        _vocabulary(["bytes"]),
        r"vocabulary=\['bytes'\]: must be the name of a vocabulary",
    ),
    "an unknown vocabulary": (_vocabulary("x"), "vocabulary='x'"),
    "no JSON": (lambda folder: _written(folder, "{"), "Expecting"),
    "JSON nested too deeply": (lambda folder: _written(folder, "[" * 100_000), "nested too deeply"),
    "no UTF-8": (lambda folder: _written(folder, b"\xff"), "can't decode"),
    "a tokenizer that is none": (
        lambda folder: _written(folder, "3", "tokenizer.json"),
        "holds no vocabulary 'bpe-270'",
    ),
    "a tokenizer of another size": (_vocabulary("bpe-280"), "holds the vocabulary 'bpe-270', not 'bpe-280'"),
    "characters that are none": (_vocabulary("chars-9"), "must be one JSON text of its characters"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_line(damage: str, tmp_path: Path) -> None:
    act, message = DAMAGES[damage]
    model = LanguageModel(config())
    model.vocabulary = VOCABULARIES["bpe-270"]()
    model.save_pretrained(tmp_path)
    act(tmp_path)
    with pytest.raises(ValueError, match=message) as caught:
        LanguageModel.from_pretrained(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(caught.value)


def test_a_model_of_another_class_is_refused(tmp_path: Path) -> None:
    classifier().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="describes no LanguageModel of this version: kind='label'"):
        LanguageModel.from_pretrained(tmp_path)


@pytest.mark.usefixtures("no_real_data")
@pytest.mark.parametrize("name", ["me/no-such-model", "no/such/folder"])
def test_a_name_that_is_nowhere_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}': is no folder here, and the Hub does not give it") as caught:
        LanguageModel.from_pretrained(name)
    assert "\n" not in str(caught.value)
