"""Classification tasks derived from the embedded Wikipedia articles: sentences, pairs of them, and passages.

They stand in for GLUE and the Long Range Arena where those are not at hand, under names of their own.

| task | an example | label 1 |
|---|---|---|
| acceptability | a sentence | as it was written; 0: the words between its first and its last are permuted |
| letter-order | a sentence | as it was written; 0: the letters between first and last are permuted in every word |
| spelling | a sentence | as it was written; 0: the same in one word of four |
| same-article | two sentences | both from one article |
| sentence-order | two neighbouring sentences | in their order; 0: exchanged |
| articles-order | a passage of up to 1,000 bytes | as it was written; 0: its sentences are permuted |
| articles-same | two passages | both from one article |

A split's rows come from the articles of that split alone, and a sentence that several articles share is left out. Every
task comes in twins, one of each label: a text and its permutation, a pair and its exchange; in the same-article tasks
each first and each second text stands in one pair of each label. So the labels are balanced, and a classifier that
ignores the order (of words, letters or sentences; in the same-article tasks: that looks at one text only) is right in
exactly half of the cases, whatever it learned. (With byte pairs for tokens a misspelt word falls into other pieces,
which tell without their order.) Twins stand next to each other, and a limit takes whole twins, rounded down to an even
number.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from transnormer_lib.data import cache, wikipedia
from transnormer_lib.data.task_kinds import SplitReader, TaskDefinition, TextRows, generator
from transnormer_lib.data.wikipedia import Article

_SOURCE = "wikipedia"
SENTENCE_BYTES = 256  # longer sentences are left out, so that nothing is cut under a byte vocabulary
_JOINED_PAIR = 2 * SENTENCE_BYTES + 1  # with the newline between them
PASSAGE_BYTES = 1000
_SHORTEST_PASSAGE = 500  # bytes
_SENTENCES_OF_A_PASSAGE = 4  # at least: fewer have too few orders
_WORDS_OF_A_SENTENCE = 6  # at least
_PAIRINGS = 4  # so many partners has a passage: there are few passages

# A sentence ends after a word of two characters or more ("B.C.E." and initials do not end one), before a capital.
_SENTENCE_END = re.compile(r"(?:(?<=[a-z0-9)\]\"”’'%]{2}[.!?])|(?<=[a-z0-9)\]%]{2}[.!?][\"”]))\s+(?=[A-Z\"“])")

_STOPS = (".", "!", "?")

# The letters between a word's first and its last.
_INSIDE_A_WORD = re.compile(r"(?<=[^\W\d_])[^\W\d_]{2,}(?=[^\W\d_])")

Row = tuple[str, str | None, int]
Twins = tuple[Row, Row]


def sentences_of(paragraph: str) -> list[str]:
    """The sentences of a paragraph: joined by a space they give it again."""
    return _SENTENCE_END.split(paragraph)


def paragraphs_of(article: Article) -> list[list[str]]:
    """The article's paragraphs as lists of sentences; headings, list items and fragments left out."""
    return _paragraphs(article.text)


def _paragraphs(text: str) -> list[list[str]]:
    return [sentences_of(line) for line in text.splitlines() if line.endswith(_STOPS)]


def acceptability(articles: Sequence[Article]) -> Iterator[Twins]:
    """Sentences, and the same with the words between the first and the last permuted.

    The first word's capital and the last one's full stop stay where they were: they would give the order away.
    """
    for sentences in _distinct(articles):
        for sentence in sentences:
            words = sentence.split(" ")
            inner = _permuted(words[1:-1], f"acceptability {sentence}")
            if inner is not None:
                corrupted = " ".join([words[0], *inner, words[-1]])
                yield (sentence, None, 1), (corrupted, None, 0)


def spelling(articles: Sequence[Article]) -> Iterator[Twins]:
    """Sentences, and the same with the inner letters of one word in four permuted, of one at least."""
    return _misspelt(articles, "spelling", lambda words: max(1, words // 4))


def letter_order(articles: Sequence[Article]) -> Iterator[Twins]:
    """Sentences, and the same with the inner letters of every word permuted."""
    return _misspelt(articles, "letter-order", lambda words: words)


def _misspelt(articles: Sequence[Article], name: str, of: Callable[[int], int]) -> Iterator[Twins]:
    """``of`` says how many words are changed of those that have different letters between their first and their last.

    A word's first and last letter stay, and so do capitals and punctuation.
    """
    for sentences in _distinct(articles):
        for sentence in sentences:
            inner = [found.span() for found in _INSIDE_A_WORD.finditer(sentence) if len(set(found[0])) > 1]
            corrupted = sentence
            for word in generator(f"{name} {sentence}").permutation(len(inner))[: of(len(inner))]:
                start, end = inner[word]
                letters = _permuted(sentence[start:end], f"{name} {start} {sentence}")
                assert letters is not None
                corrupted = corrupted[:start] + "".join(letters) + corrupted[end:]
            if inner:
                yield (sentence, None, 1), (corrupted, None, 0)


def sentence_order(articles: Sequence[Article]) -> Iterator[Twins]:
    """Two neighbouring sentences of a paragraph, and the same exchanged; no sentence is in two pairs."""
    usable = [set(sentences) for sentences in _distinct(articles)]
    for article, known in zip(articles, usable, strict=True):
        for paragraph in paragraphs_of(article):
            for a, b in zip(paragraph[::2], paragraph[1::2], strict=False):
                if a in known and b in known and a != b:
                    yield (a, b, 1), (b, a, 0)


def same_article(articles: Sequence[Article]) -> Iterator[Twins]:
    """Two sentences of one article, and the first of them with a sentence of another article."""
    return _same(_distinct(articles), "same-article", pairings=1)


def articles_order(articles: Sequence[Article]) -> Iterator[Twins]:
    """Passages, and the same with their sentences permuted."""
    for article in articles:
        for passage in passages_of(article):
            permuted = _permuted(passage, f"articles-order {passage}")
            if permuted is not None:
                yield (" ".join(passage), None, 1), (" ".join(permuted), None, 0)


def articles_same(articles: Sequence[Article]) -> Iterator[Twins]:
    """Two passages of one article, and the first of them with a passage of another article."""
    passages = [[" ".join(passage) for passage in passages_of(article)] for article in articles]
    return _same(passages, "articles-same", _PAIRINGS)


def passages_of(article: Article) -> list[list[str]]:
    """Neighbouring sentences of the article, as many as fit into ``PASSAGE_BYTES``; none is in two passages.

    A passage may run over the end of a paragraph, not over a heading. One with a sentence that another article has too
    is left out.
    """
    shared = _shared_sentences()
    found: list[list[str]] = []
    for block in article.text.split("\n\n"):
        current: list[str] = []
        for sentence in (sentence for paragraph in _paragraphs(block) for sentence in paragraph):
            if len(" ".join([*current, sentence]).encode()) > PASSAGE_BYTES:
                found.append(current)
                current = []
            current.append(sentence)
        found.append(current)
    return [
        passage
        for passage in found
        if len(passage) >= _SENTENCES_OF_A_PASSAGE
        and _SHORTEST_PASSAGE <= len(" ".join(passage).encode()) <= PASSAGE_BYTES
        and shared.isdisjoint(passage)
    ]


def _same(texts: Sequence[Sequence[str]], name: str, pairings: int) -> Iterator[Twins]:
    """Twins of ``texts[article]``: each text is at most ``pairings`` times a first one, as often a second one.

    No two texts of one article are paired twice, in whichever order.
    """
    random = generator(name, "pairs")
    together: set[frozenset[str]] = set()
    for _ in range(pairings):
        pairs = []
        for article, members in enumerate(texts):
            order = random.permutation(len(members))
            found = [(article, members[i], members[j]) for i, j in zip(order[::2], order[1::2], strict=False)]
            pairs += [pair for pair in found if frozenset(pair[1:]) not in together]
        together.update(frozenset(pair[1:]) for pair in pairs)
        article_of = np.array([article for article, _, _ in pairs])
        partner = random.permutation(len(pairs))
        for _ in range(100):  # exchange partners until none is of the same article
            wrong = np.flatnonzero(article_of == article_of[partner])
            if not wrong.size:
                break
            moved = np.union1d(wrong, random.choice(len(pairs), min(len(pairs), wrong.size + 1), replace=False))
            partner[moved] = random.permutation(partner[moved])
        else:
            raise ValueError(f"task={name!r}: one article holds more than half of the texts of a split")
        for (_, a, b), other in zip(pairs, partner, strict=True):
            yield (a, b, 1), (a, pairs[other][2], 0)


def _distinct(articles: Sequence[Article]) -> list[list[str]]:
    """Per article its usable sentences, once each; those that another article of the dump has too are left out."""
    shared = _shared_sentences()
    found = []
    for article in articles:
        sentences = dict.fromkeys(s for paragraph in paragraphs_of(article) for s in paragraph)
        found.append([s for s in sentences if s not in shared and _usable(s)])
    return found


def _usable(sentence: str) -> bool:
    return (
        sentence[0].isupper()
        and sentence.endswith(_STOPS)
        and sentence.count(" ") + 1 >= _WORDS_OF_A_SENTENCE
        and len(sentence.encode()) <= SENTENCE_BYTES
    )


@lru_cache(maxsize=1)
def _shared_sentences() -> frozenset[str]:
    seen: set[str] = set()
    shared: set[str] = set()
    for article in _source()[0]:
        sentences = {s for paragraph in paragraphs_of(article) for s in paragraph}
        shared |= seen & sentences
        seen |= sentences
    return frozenset(shared)


def _permuted(items: Sequence[str], key: str) -> list[str] | None:
    """The items in a random order other than the given one, fixed by ``key``; None where all are the same."""
    if len(set(items)) < 2:
        return None
    random = generator(key)
    while True:
        order = [items[i] for i in random.permutation(len(items))]
        if order != list(items):
            return order


@lru_cache(maxsize=1)
def _source() -> tuple[list[Article], str]:
    """The articles, and what all that is derived from them depends on."""
    articles, source = wikipedia.load_articles()
    code = [cache.code_version(file) for file in (__file__, wikipedia.__file__)]
    return articles, cache.key(source.fingerprint, *code)


def _reader(
    name: str, twins: Callable[[Sequence[Article]], Iterator[Twins]], pairs: bool
) -> Callable[..., SplitReader]:
    def read(split: str, limit: int | None) -> SplitReader:
        articles, identity = _source()

        def parts() -> Iterator[TextRows]:
            found = list(twins(wikipedia.split_articles(articles)[split]))
            order = generator(name, split, "order").permutation(len(found))
            rows = [row for i in order[: limit if limit is None else max(1, limit // 2)] for row in found[i]]
            first, second, labels = zip(*rows, strict=True)
            yield TextRows(first, second if pairs else None, np.array(labels, np.int64))

        return SplitReader(parts, identity, "embedded")

    return read


def _task(
    name: str, title: str, twins: Callable[[Sequence[Article]], Iterator[Twins]], pairs: bool, *metrics: str
) -> TaskDefinition:
    length = _JOINED_PAIR if pairs else SENTENCE_BYTES
    return TaskDefinition(
        name, title, _reader(name, twins, pairs), 2, length, _SOURCE, stand_in=True, pairs=pairs, metrics=metrics
    )


def _passage_task(
    name: str, title: str, twins: Callable[[Sequence[Article]], Iterator[Twins]], pairs: bool
) -> TaskDefinition:
    return TaskDefinition(
        name, title, _reader(name, twins, pairs), 2, PASSAGE_BYTES, _SOURCE, True, pairs=pairs, alphabet="bytes"
    )


TASKS = (
    _task(
        "acceptability",
        "word order of a sentence: as written or permuted",
        acceptability,
        False,
        "matthews",
        "accuracy",
    ),
    _task("letter-order", "letters inside the words: as written or permuted", letter_order, False, "accuracy"),
    _task("spelling", "letters inside one word in four: as written or permuted", spelling, False, "accuracy"),
    _task("same-article", "two sentences: from one article or two", same_article, True, "accuracy"),
    _task("sentence-order", "two neighbouring sentences: in order or exchanged", sentence_order, True, "accuracy"),
    _passage_task("articles-order", "order of a passage's sentences: as written or permuted", articles_order, False),
    _passage_task("articles-same", "two passages: from one article or two", articles_same, True),
)
