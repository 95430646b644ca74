"""Extraction and split of the embedded articles."""

import bz2
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import wikipedia
from transnormer_lib.data.sources import SPLITS
from transnormer_lib.data.wikipedia import Article


@pytest.fixture(scope="module")
def articles() -> list[Article]:
    return wikipedia.load_articles()[0]


def dump(pages: dict[str, str]) -> bytes:
    """A MediaWiki export of these pages."""
    body = "".join(
        f"<page><title>{title}</title><ns>0</ns><id>1</id><revision><text>{markup}</text></revision></page>"
        for title, markup in pages.items()
    )
    return bz2.compress(f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">{body}</mediawiki>'.encode())


def test_redirects_and_other_namespaces_are_dropped() -> None:
    pages = {
        "Ape": "An ape.",
        "Apes": "#REDIRECT [[Ape]]",
        "Monkey": " #redirect [[Ape]]",
        "Template:Ape": "An ape.",
        "Wikipedia:Apes": "An ape.",
        "Empty": "{{stub}}",
        "2001: A Space Odyssey": "A film.",
    }
    assert wikipedia.extract_articles(dump(pages)) == [
        Article("Ape", "An ape."),
        Article("2001: A Space Odyssey", "A film."),
    ]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        pytest.param("'''Ape''' is ''Hominoidea''.", "Ape is Hominoidea.", id="bold-and-italic"),
        pytest.param("See [[Ape|the ape]] and [[Lemur]]s.", "See the ape and Lemurs.", id="links"),
        pytest.param("Apes.<ref name=a>Smith, p. 3</ref> More.", "Apes. More.", id="footnote"),
        pytest.param("Apes{{cite|a={{b}}}}.", "Apes.", id="nested-template"),
        pytest.param("Apes ({{lang|gr|x}}, ''apa'') live.", "Apes (apa) live.", id="gap-in-brackets"),
        pytest.param("Apes ({{lang|gr|x}}) live.", "Apes live.", id="empty-brackets"),
        pytest.param("A.\n{|\n|-\n| cell || {{a}}\n{|\n| inner\n|}\n|}\nB.", "A.\nB.", id="nested-table"),
        pytest.param("A.\n<gallery>\nFile:a.jpg|An ape\n</gallery>\nB.", "A.\nB.", id="gallery"),
        pytest.param("* one\n** two\n# three\n* \n", "one\ntwo\nthree", id="lists"),
        pytest.param("Some A.<br/>Some B.", "Some A. Some B.", id="line-break"),
        pytest.param("At 5&nbsp;km.", "At 5 km.", id="entity"),
        pytest.param("A.\n\n== Life ==\nB.", "A.\n\nLife\nB.", id="heading"),
        pytest.param(
            "A.\n==See also==\n* [[B]]\n===More===\n* [[C]]\n==Life==\nD.",
            "A.\n\nLife\nD.",
            id="link-section",
        ),
        pytest.param('Ångström said «no»: "naïve" – 5%.', 'Ångström said «no»: "naïve" – 5%.', id="kept-as-is"),
    ],
)
def test_markup_becomes_readable_text(markup: str, text: str) -> None:
    assert wikipedia.plain_text(markup) == text


@pytest.mark.parametrize(
    "residue",
    [
        r"\{\{|\}\}|\{\||\|\}",
        r"\[\[|\]\]",
        r"''",
        r"</?(ref|br|sub|sup|math|small|gallery|span|div)\b",
        r"&(nbsp|amp|lt|gt|quot|ndash|mdash);",
        r"^[*#:;]|^==",
        r"(?i)^(file|image|category):",
        r"https?://",
        r"\.(jpe?g|png|svg|gif)\b",
        r"\d+px\b",
        r"  |\t|\xa0",
        r"\( ?[,;:)]",
        r"\n\n\n",
        r"(?m)^(References|External links|See also|Further reading)$",
    ],
)
def test_the_articles_hold_no_residue_of(residue: str, articles: list[Article]) -> None:
    found = [
        (article.title, article.text[max(0, match.start() - 30) : match.end() + 30])
        for article in articles
        for match in re.finditer(residue, article.text, re.MULTILINE)
    ]
    assert found == []


def test_every_article_has_text_and_a_title_of_its_own(articles: list[Article]) -> None:
    assert all(article.text.strip() == article.text and article.text for article in articles)
    assert len({article.title for article in articles}) == len(articles)


def test_the_embedded_articles_are_enough_for_a_small_language_model(articles: list[Article]) -> None:
    words = {
        name: sum(len(article.text.split()) for article in members)
        for name, members in wikipedia.split_articles(articles).items()
    }
    assert words["train"] > 300_000
    assert min(words["validation"], words["test"]) > 30_000


@pytest.mark.slow
def test_the_cache_gives_what_extraction_gives(articles: list[Article]) -> None:
    again, source = wikipedia.load_articles()
    assert again == articles == wikipedia.extract_articles(source.content)


@given(titles=st.lists(st.text(max_size=20), unique=True, max_size=40), seed=st.integers(0, 1000))
def test_the_split_does_not_depend_on_the_order_of_the_articles(titles: list[str], seed: int) -> None:
    members = [Article(title, "text") for title in titles]
    shuffled = random.Random(seed).sample(members, len(members))
    assert wikipedia.split_articles(shuffled) == wikipedia.split_articles(members)


@given(titles=st.lists(st.text(max_size=20), unique=True, max_size=40))
def test_every_article_is_in_exactly_one_split(titles: list[str]) -> None:
    splits = wikipedia.split_articles([Article(title, "text") for title in titles])
    assert tuple(splits) == SPLITS
    assert sorted(article.title for members in splits.values() for article in members) == sorted(titles)


@given(title=st.text(max_size=20), others=st.lists(st.text(max_size=20), max_size=10))
def test_other_articles_never_move_an_article(title: str, others: list[str]) -> None:
    splits = wikipedia.split_articles([Article(name, "text") for name in [*others, title]])
    assert title in {article.title for article in splits[wikipedia.split_of(title)]}


def test_the_split_stays_as_published() -> None:
    # Runs are compared across versions only while these stand.
    assert {title: wikipedia.split_of(title) for title in ("Autism", "Anarchism", "Apollo 8", "Alkali metal")} == {
        "Autism": "train",
        "Anarchism": "validation",
        "Apollo 8": "test",
        "Alkali metal": "test",
    }


def test_the_split_gives_nine_tenths_to_train() -> None:
    total = 20_000
    counts = dict.fromkeys(SPLITS, 0)
    for number in range(total):
        counts[wikipedia.split_of(f"title {number}")] += 1
    # Five standard deviations of a binomial with p = 0.05 or 0.95.
    bound = 5 * (total * 0.1 * 0.9) ** 0.5
    assert abs(counts["train"] - 0.9 * total) < bound
    assert abs(counts["validation"] - 0.05 * total) < bound
    assert abs(counts["test"] - 0.05 * total) < bound
