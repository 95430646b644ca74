"""A vocabulary beside the model that it belongs to, so that the text it was learned from is not needed."""

from pathlib import Path

from transnormer_lib.data.characters import CharacterVocabulary
from transnormer_lib.data.vocabulary import BPEVocabulary, ByteVocabulary, Vocabulary, characters_of, check_name
from transnormer_lib.files import parse_json

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
    kind = BPEVocabulary if characters_of(name) is None else _characters
    try:
        stored: Vocabulary = kind(definition)
    except Exception as problem:  # the tokenizers library raises no class of its own
        raise ValueError(f"{FILE} holds no vocabulary {name!r}: {problem}") from None
    if stored.name != name:
        raise ValueError(f"{FILE} holds the vocabulary {stored.name!r}, not {name!r}")
    return stored


def _characters(definition: str) -> CharacterVocabulary:
    if not isinstance(characters := parse_json(definition), str):
        raise ValueError("must be one JSON text of its characters")
    return CharacterVocabulary(characters)
