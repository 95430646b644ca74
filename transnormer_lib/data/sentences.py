"""Classification tasks derived from the embedded Wikipedia articles: sentences, pairs of them, and passages.

Under names of their own, they stand in for GLUE and the Long Range Arena on machines without the real data.

| task | an example | label 1 |
|---|---|---|
| acceptability | a sentence | as written; 0: the words between its first and last are permuted |
| letter-order | a sentence | as written; 0: the letters between first and last are permuted in every word |
| spelling | a sentence | as written; 0: the same in one word of four |
| same-article | two sentences | both from one article |
| sentence-order | two neighbouring sentences | in order; 0: exchanged |
| articles-order | a passage of up to 1,000 bytes | as written; 0: its sentences are permuted |
| articles-same | two passages | both from one article |

The rows of a split come from its own articles, and sentences shared by several articles are left out. Rows come in
twins, one of each label: a text and its permutation, or a pair and its exchange; in the same-article tasks each first
and each second text occurs in one pair of each label. So the labels are balanced, and a classifier that ignores the
order (of words, letters or sentences; in the same-article tasks: one that reads only one text) scores exactly one half.
(This fails for misspelt words in byte pairs, which split into other pieces.) Twins are neighbours, and a limit takes
whole twins, rounded down to an even number.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from transnormer_lib.data import cache, wikipedia
from transnormer_lib.data.task_kinds import Read, SplitReader, TaskDefinition, TextRows, generator
from transnormer_lib.data.wikipedia import Article

SENTENCE_BYTES = 256  # longer sentences are left out, so that a byte vocabulary needs no cut
_JOINED_PAIR = 2 * SENTENCE_BYTES + 1  # with a newline in between
PASSAGE_BYTES = 1000
_SHORTEST_PASSAGE = 500  # bytes
_SENTENCES_OF_A_PASSAGE = 4  # at least; fewer have too few orders
_WORDS_OF_A_SENTENCE = 6  # at least
_PAIRINGS = 4  # partners per passage, because there are few passages

# A sentence ends after a word of two characters or more ("B.C.E." and initials do not end one), before a capital.
_SENTENCE_END = re.compile(r"(?:(?<=[a-z0-9)\]\"”’'%]{2}[.!?])|(?<=[a-z0-9)\]%]{2}[.!?][\"”]))\s+(?=[A-Z\"“])")
_STOPS = (".", "!", "?")
_INSIDE_A_WORD = re.compile(r"(?<=[^\W\d_])[^\W\d_]{2,}(?=[^\W\d_])")  # the letters between the first and the last

Row = tuple[str, str | None, int]
Twins = tuple[Row, Row]
MakeTwins = Callable[[Sequence[Article]], Iterator[Twins]]


def paragraphs_of(text: str) -> list[list[str]]:
    """The paragraphs of an article's text as lists of sentences, without headings, list items and fragments.

    The sentences of a paragraph, joined by a space, give it again.
    """
    return [_SENTENCE_END.split(line) for line in text.splitlines() if line.endswith(_STOPS)]


def acceptability(articles: Sequence[Article]) -> Iterator[Twins]:
    """Sentences, and the same with the words between the first and the last permuted.

    The first and the last word stay, because the capital and the full stop would reveal the order.
    """
    for sentence in chain.from_iterable(_distinct(articles)):
        words = sentence.split(" ")
        inner = _permuted(words[1:-1], f"acceptability {sentence}")
        if inner is not None:
            yield (sentence, None, 1), (" ".join([words[0], *inner, words[-1]]), None, 0)


def spelling(articles: Sequence[Article]) -> Iterator[Twins]:
    """Sentences, and the same with the inner letters of one word in four (at least one word) permuted."""
    return _misspelt(articles, "spelling", lambda words: max(1, words // 4))


def letter_order(articles: Sequence[Article]) -> Iterator[Twins]:
    """Sentences, and the same with the inner letters of every word permuted."""
    return _misspelt(articles, "letter-order", lambda words: words)


def _misspelt(articles: Sequence[Article], name: str, of: Callable[[int], int]) -> Iterator[Twins]:
    """``of`` maps the number of words with different inner letters to the number of words to change.

    The first and last letter of a word stay, and so do capitals and punctuation.
    """
    for sentence in chain.from_iterable(_distinct(articles)):
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
    for article, usable in zip(articles, _distinct(articles), strict=True):
        known = set(usable)
        for paragraph in paragraphs_of(article.text):
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
    """Disjoint runs of neighbouring sentences of the article, each as long as fits into ``PASSAGE_BYTES``.

    A passage may cross the end of a paragraph, but not a heading. A passage with a sentence that another article shares
    is left out.
    """
    shared = _shared_sentences()
    found: list[list[str]] = []
    for block in article.text.split("\n\n"):
        current: list[str] = []
        for sentence in chain.from_iterable(paragraphs_of(block)):
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
    """Twins of ``texts[article]``: each text comes first at most ``pairings`` times, and second as often.

    No two texts of one article are paired twice, in either order.
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
        for _ in range(100):  # exchange partners until every pair is from two articles
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
    """The distinct usable sentences of each article, without those shared with another article of the dump."""
    shared = _shared_sentences()
    found = (dict.fromkeys(chain.from_iterable(paragraphs_of(article.text))) for article in articles)
    return [[s for s in sentences if s not in shared and _usable(s)] for sentences in found]


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
        sentences = set(chain.from_iterable(paragraphs_of(article.text)))
        shared |= seen & sentences
        seen |= sentences
    return frozenset(shared)


def _permuted(items: Sequence[str], key: str) -> list[str] | None:
    """The items in a random order other than the given one, fixed by ``key``; None if all items are equal."""
    if len(set(items)) < 2:
        return None
    random = generator(key)
    while True:
        order = [items[i] for i in random.permutation(len(items))]
        if order != list(items):
            return order


@lru_cache(maxsize=1)
def _source() -> tuple[list[Article], str]:
    """The articles, and a key of everything that decides them and the tasks."""
    articles, source = wikipedia.load_articles()
    code = [cache.code_version(file) for file in (__file__, wikipedia.__file__)]
    return articles, cache.key(source.fingerprint, *code)


def _reader(name: str, twins: MakeTwins, pairs: bool) -> Read:
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


def _task(name: str, title: str, twins: MakeTwins, pairs: bool = False, **facts: Any) -> TaskDefinition:
    facts = {"length": _JOINED_PAIR if pairs else SENTENCE_BYTES, **facts}
    read = _reader(name, twins, pairs)
    return TaskDefinition(name, title, read, 2, source="wikipedia", stand_in=True, pairs=pairs, **facts)


_MATTHEWS = ("matthews", "accuracy")
_PASSAGE: dict[str, Any] = {"length": PASSAGE_BYTES, "alphabet": "bytes"}
TASKS = (
    _task("acceptability", "word order of a sentence: as written or permuted", acceptability, metrics=_MATTHEWS),
    _task("letter-order", "letters inside the words: as written or permuted", letter_order),
    _task("spelling", "letters inside one word in four: as written or permuted", spelling),
    _task("same-article", "two sentences: from one article or two", same_article, True),
    _task("sentence-order", "two neighbouring sentences: in order or exchanged", sentence_order, True),
    _task("articles-order", "order of a passage's sentences: as written or permuted", articles_order, **_PASSAGE),
    _task("articles-same", "two passages: from one article or two", articles_same, True, **_PASSAGE),
)
