"""Plain text of the embedded Wikipedia articles, and their split into train, validation and test.

gensim's tools read the dump and remove the wiki markup; what they leave behind is cleaned here. Left out:
redirects, pages of other namespaces, tables, galleries, formulas and templates (units converted by a template
leave a gap in their sentence), reference lists and link lists. Case, punctuation and accents are kept.
"""

import bz2
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from transnormer_lib.data import cache, sources
from transnormer_lib.data.sources import SPLITS

SPLIT_RULE = "sha256 of the title, first 8 bytes, mod 100: < 90 train, < 95 validation, else test"

# Sections that hold references and links, not prose.
_APPARATUS = frozenset(
    [
        "bibliography",
        "citations",
        "endnotes",
        "external links",
        "footnotes",
        "further reading",
        "gallery",
        "notes",
        "notes and references",
        "references",
        "references and notes",
        "see also",
        "sources",
        "works cited",
    ]
)
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_GALLERY = re.compile(r"<gallery.*?</gallery>", re.IGNORECASE | re.DOTALL)
_INNERMOST_TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_HEADING = re.compile(r"(={1,6})\s*(.*?)\s*\1$")
_BEHAVIOUR_SWITCH = re.compile(r"__[A-Z]+__")
# What a caption with markup inside leaves of its image.
_IMAGE_OPTION = re.compile(r"\|alt=[^|]*|\|?\b\d*x?\d+px\b")
_QUOTES = re.compile(r"'{2,}")  # '' italic, ''' bold
_LIST_MARKER = re.compile(r"^[*#:;\s]+")
_SPACES = re.compile(r"\s+")  # non-breaking spaces too
_OPEN_GAP = re.compile(r"\((?:\s*[,;:])+\s*")  # "(, text" where a template stood
_EMPTY_BRACKETS = re.compile(r"\s*\(\s*\)")
_SPACE_BEFORE_POINT = re.compile(r"\s+([,;.])(?=\s|$)")


@dataclass(frozen=True)
class Article:
    """One article: its title, and its text as lines (a paragraph, a heading or a list item each)."""

    title: str
    text: str


def load_articles() -> tuple[list[Article], sources.Source]:
    """The embedded articles in the order of the dump, and the source they come from.

    Extraction takes seconds and is cached (see ``data.cache``).

    Raises:
        DataUnavailable: gensim or its test data is not installed.
    """
    source = sources.load("wikipedia")
    digest = cache.key(source.fingerprint, cache.code_version(__file__), _version("gensim"))
    stored = cache.cached("articles", digest, lambda: _to_json(extract_articles(source.content)))
    return [Article(**fields) for fields in json.loads(stored)], source


def extract_articles(dump: bytes) -> list[Article]:
    """The articles of a bz2-compressed MediaWiki XML dump, without redirects and other namespaces."""
    from gensim.corpora.wikicorpus import IGNORED_NAMESPACES, extract_pages

    articles = []
    for title, markup, _ in extract_pages(bz2.BZ2File(io.BytesIO(dump))):
        if title.partition(":")[0] in IGNORED_NAMESPACES or not markup or _is_redirect(markup):
            continue
        text = plain_text(markup)
        if text:
            articles.append(Article(title, text))
    return articles


def plain_text(markup: str) -> str:
    """The readable text of one page's wiki markup: lines, a blank line before each heading."""
    from gensim.corpora.wikicorpus import filter_wiki, remove_template

    # gensim gives table cells and gallery entries a line each; without their layout they are noise. Templates
    # go first, for their ends "|}}" look like the end of a table.
    markup = remove_template(_GALLERY.sub("", _LINE_BREAK.sub(" ", markup)))
    count = 1
    while count:
        markup, count = _INNERMOST_TABLE.subn("", markup)
    return "\n".join(_readable_lines(filter_wiki(markup))).strip()


def _readable_lines(text: str) -> Iterator[str]:
    apparatus_level = 0  # the level of the section being left out; 0: none
    for raw in text.splitlines():
        line = raw.strip()
        heading = _HEADING.fullmatch(line)
        if heading:
            level, line = len(heading[1]), heading[2]
            if apparatus_level and level > apparatus_level:
                continue
            apparatus_level = level if line.lower() in _APPARATUS else 0
        if apparatus_level:
            continue
        line = _cleaned(line)
        if any(character.isalnum() for character in line):
            if heading:
                yield ""
            yield line


def _cleaned(line: str) -> str:
    for residue in (_BEHAVIOUR_SWITCH, _IMAGE_OPTION, _QUOTES, _LIST_MARKER):
        line = residue.sub("", line)
    line = _OPEN_GAP.sub("(", line)
    line = _EMPTY_BRACKETS.sub("", line)
    return _SPACE_BEFORE_POINT.sub(r"\1", _SPACES.sub(" ", line)).strip()


def _is_redirect(markup: str) -> bool:
    return markup.lstrip().lower().startswith("#redirect")


def split_of(title: str) -> str:
    """The split an article belongs to, by ``SPLIT_RULE``: it depends on nothing but the title."""
    bucket = int.from_bytes(hashlib.sha256(title.encode()).digest()[:8], "big") % 100
    if bucket < 90:
        return "train"
    return "validation" if bucket < 95 else "test"


def split_articles(articles: list[Article]) -> dict[str, list[Article]]:
    """The articles of each split, ordered by title, whatever the order they come in."""
    ordered = sorted(articles, key=lambda article: article.title)
    return {name: [article for article in ordered if split_of(article.title) == name] for name in SPLITS}


def _to_json(articles: list[Article]) -> bytes:
    return json.dumps([asdict(article) for article in articles], ensure_ascii=False).encode()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # on the path without metadata
        return "unknown"
