"""A vocabulary beside the model that it belongs to, so that the text it was learned from is not needed."""

import json
from pathlib import Path

from transnormer_lib.data.characters import CharacterVocabulary
from transnormer_lib.data.vocabulary import BPEVocabulary, ByteVocabulary, Vocabulary, characters_of, check_name

FILE = "tokenizer.json"  # byte pairs in the format of the ``tokenizers`` library; characters as one JSON text


def can_be_stored(vocabulary: Vocabulary) -> bool:
    """True for bytes, byte pairs and characters. The words of WikiText-103 and GPT-2's pieces are on the Hub."""
    return type(vocabulary) in (ByteVocabulary, BPEVocabulary, CharacterVocabulary)


def files(vocabulary: Vocabulary) -> dict[str, str]:
    """What to write beside the model, text by file name: nothing for bytes, whose name says everything.

    Raises ValueError for a vocabulary that cannot be stored.
    """
    if not can_be_stored(vocabulary):
        raise ValueError(f"vocabulary={vocabulary.name!r}: only bytes, byte pairs and characters can be stored")
    if isinstance(vocabulary, BPEVocabulary | CharacterVocabulary):
        return {FILE: vocabulary.definition}
    return {}


def read(name: str, folder: Path) -> Vocabulary:
    """The vocabulary ``name`` whose files are in ``folder``.

    Raises ValueError for an unknown name, and for a file that holds no vocabulary of this name; OSError without a file.
    """
    check_name(name)
    if name == ByteVocabulary.name:
        return ByteVocabulary()
    definition = (folder / FILE).read_text(encoding="utf-8")
    stored: Vocabulary
    if characters_of(name) is not None:
        stored = CharacterVocabulary(json.loads(definition))
    else:
        stored = BPEVocabulary(definition)
    return stored
