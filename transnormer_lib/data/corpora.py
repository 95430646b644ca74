"""The text corpora by name: embedded Wikipedia articles and Chinese reviews, WikiText-103, and texts of one's own.

``load_text_corpus("wikipedia", "bytes")`` takes well under a second once the cache is warm.
"""

from functools import lru_cache

from transnormer_lib.data import own_text, reviews, wikipedia, wikitext
from transnormer_lib.data.text import TextCorpus, build_corpus
from transnormer_lib.data.vocabulary import ByteVocabulary, Vocabulary, check_name, vocabulary_size

CORPORA = ("wikipedia", wikitext.NAME, reviews.NAME)


@lru_cache(maxsize=4)
def load_text_corpus(name: str = "wikipedia", vocabulary: str = "bytes") -> TextCorpus:
    """The corpus ``name`` in the tokens of ``vocabulary``: ``bytes``, or ``bpe-N`` or ``chars-N``, learned from train.

    ``name`` is one of :data:`CORPORA`, the path of a text, or a data set of the Hub (``own_text``). ``wikitext-103``
    also has ``wikitext-103-words`` and ``gpt2-bpe``; its tokens are mapped files (``wikitext``).

    Raises ValueError for an unknown corpus or vocabulary, DataUnavailable if the corpus is not on this machine and
    cannot be fetched, DataFault if one of its files is damaged or has changed.
    """
    if name == wikitext.NAME:
        return wikitext.load(vocabulary)
    check_name(vocabulary)  # refuses a wrong name before the work begins
    if name not in CORPORA:
        return build_corpus(name, own_text.documents(name), vocabulary, "own text", own_text.SPLIT_RULE)
    if name == reviews.NAME:
        parts, fingerprint = reviews.documents()
        return build_corpus(name, parts, vocabulary, fingerprint, reviews.SPLIT_RULE)
    articles, source = wikipedia.load_articles()
    documents = {
        split: [f"{article.title}\n\n{article.text}\n\n\n" for article in members]
        for split, members in wikipedia.split_articles(articles).items()
    }
    return build_corpus(name, documents, vocabulary, source.fingerprint, wikipedia.SPLIT_RULE)


def load_vocabulary(name: str, vocabulary: str) -> Vocabulary:
    """``load_text_corpus(name, vocabulary).vocabulary``, without reading more text than it needs; the same errors."""
    if vocabulary == ByteVocabulary.name:
        return ByteVocabulary()
    if name == wikitext.NAME:
        return wikitext.vocabulary(vocabulary)
    return load_text_corpus(name, vocabulary).vocabulary


def corpus_vocabulary_size(name: str, vocabulary: str, *, published: bool = False) -> int:
    """The number of ids of ``load_vocabulary(name, vocabulary)``, without tokenising.

    A sample of WikiText-103 has fewer words than the published text. They are counted unless ``published``. Raises
    ValueError for an unknown vocabulary, DataUnavailable if the words must be counted and are not on this machine.
    """
    if (name, vocabulary) == (wikitext.NAME, wikitext.WORDS) and not published:
        return load_vocabulary(name, vocabulary).size
    return vocabulary_size(vocabulary)
