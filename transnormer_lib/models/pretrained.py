"""Models as folders to keep and to share, as on the Hugging Face Hub.

A folder holds:

- ``model.safetensors``: the weights
- ``config.json``: the config that rebuilds the model, and the name of its vocabulary
- ``tokenizer.json``: the vocabulary, unless its name says everything (``data.stored_vocabulary``)
- ``SHA256SUMS``: the digests of these files, so that damage is noticed
- ``README.md``: the model card, which may be edited
"""

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_type_hints

import torch
from safetensors import SafetensorError
from tqdm import TqdmWarning

from transnormer_lib import sums
from transnormer_lib.data import stored_vocabulary
from transnormer_lib.exhausted import writing
from transnormer_lib.files import parse_json, write_text
from transnormer_lib.models.model_card import LIBRARY, model_card
from transnormer_lib.strict import from_plain

with warnings.catch_warnings():
    # Its progress bars would be widgets in a notebook, and warn below the first cell where there are none.
    warnings.simplefilter("ignore", TqdmWarning)
    from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

if TYPE_CHECKING:
    from transnormer_lib.data.vocabulary import Vocabulary

_CONFIG, _WEIGHTS, _CARD = "config.json", "model.safetensors", "README.md"


class Pretrained(ModelHubMixin, library_name=LIBRARY):
    """``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` for every ``Backbone``.

    ``vocabulary`` is saved with the model if it is set, so that text can be read and written without the corpus.
    ``card`` is the text of the model card; without one a general card is written.
    """

    vocabulary: "Vocabulary | None" = None
    card: str = ""

    def whole_config(self) -> Any:
        """The dataclass from which the class builds this model."""
        raise NotImplementedError

    @property
    def writes_text(self) -> bool:
        """Whether ``models.text`` can write with this model."""
        return False

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        return ModelCard(self.card or model_card(self))

    def _save_pretrained(self, save_directory: Path) -> None:
        from safetensors.torch import save_model

        name = None if self.vocabulary is None else self.vocabulary.name
        texts = {} if self.vocabulary is None else stored_vocabulary.files(self.vocabulary)
        texts[_CONFIG] = json.dumps({"model": asdict(self.whole_config()), "vocabulary": name}, indent=1) + "\n"
        (save_directory / sums.FILE).unlink(missing_ok=True)  # until all is written there is no whole model here
        with writing(save_directory):
            save_model(self, str(save_directory / _WEIGHTS))  # type: ignore[arg-type]  # a Module
        for file, text in texts.items():
            write_text(save_directory / file, text)
        sums.seal(save_directory, names=[_WEIGHTS, *texts])

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **download: Any) -> Self:
        """The model in a folder, or on the Hub under ``OWNER/NAME``, in evaluation mode.

        ``download`` goes to ``huggingface_hub.snapshot_download``: ``revision``, ``token``, ``cache_dir``, … Raises
        ValueError in one line for a folder that holds no whole model of this class, and for a name that is neither a
        folder nor to be had from the Hub.
        """
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            folder = _downloaded(str(pretrained_model_name_or_path), download)
        try:
            sums.check(folder, needed=(_CONFIG, _WEIGHTS))
            return cls._read(folder)
        except (ValueError, OSError, RuntimeError, SafetensorError) as fault:
            raise ValueError(f"{folder}: {' '.join(str(fault).split())}") from None

    @classmethod
    def _read(cls, folder: Path) -> Self:
        from safetensors.torch import load_model

        stored = parse_json((folder / _CONFIG).read_text(encoding="utf-8"))
        if not isinstance(stored, dict) or set(stored) != {"model", "vocabulary"}:
            raise ValueError(f"{_CONFIG} is not a model's; a stored run is exported by `transnormer export RUN DIR`")
        if not isinstance(vocabulary := stored["vocabulary"], str | None):
            raise ValueError(f"{_CONFIG}: vocabulary={vocabulary!r}: must be the name of a vocabulary or null")
        try:
            config = from_plain(get_type_hints(cls.__init__)["config"], stored["model"])
        except ValueError as fault:
            raise ValueError(f"{_CONFIG} describes no {cls.__name__} of this version: {fault}") from None
        with torch.random.fork_rng(devices=[]):  # the first weights are drawn in vain
            model = cls(config)
        load_model(model, str(folder / _WEIGHTS))  # type: ignore[arg-type]  # refuses missing and unexpected names
        if vocabulary is not None:
            model.vocabulary = stored_vocabulary.read(vocabulary, folder)
        if (card := folder / _CARD).exists():
            model.card = card.read_text(encoding="utf-8")
        return model.eval()  # type: ignore[attr-defined]


def _downloaded(name: str, options: dict[str, Any]) -> Path:
    files = [_CONFIG, _WEIGHTS, stored_vocabulary.FILE, sums.FILE, _CARD]
    try:
        return Path(snapshot_download(name, allow_patterns=files, **options))
    except (HfHubHTTPError, HFValidationError, OSError) as problem:
        first = str(problem).strip().splitlines()[0]
        raise ValueError(f"{name!r}: is no folder here, and the Hub does not give it: {first}") from problem
