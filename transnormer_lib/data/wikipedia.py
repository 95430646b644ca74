"""Plain text of the embedded Wikipedia articles, and their split into train, validation and test.

gensim reads the dump and removes most of the wiki markup; this module cleans up the rest. It drops redirects, pages of
other namespaces, tables, galleries, formulas and templates (a unit converted by a template leaves a gap in its
sentence), reference lists and link lists. It keeps case, punctuation and accents.
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
_APPARATUS = re.compile(
    r"bibliography|citations|endnotes|external links|footnotes|further reading|gallery|notes( and references)?|"
    r"references( and notes)?|see also|sources|works cited"
)
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_GALLERY = re.compile(r"<gallery.*?</gallery>", re.IGNORECASE | re.DOTALL)
_INNERMOST_TABLE = re.compile(r"\{\|(?:(?!\{\||\|\}).)*\|\}", re.DOTALL)
_HEADING = re.compile(r"(={1,6})\s*(.*?)\s*\1$")
_BEHAVIOUR_SWITCH = re.compile(r"__[A-Z]+__")
# Remains of an image whose caption contains markup.
_IMAGE_OPTION = re.compile(r"\|alt=[^|]*|\|?\b\d*x?\d+px\b")
_QUOTES = re.compile(r"'{2,}")  # '' italic, ''' bold
_LIST_MARKER = re.compile(r"^[*#:;\s]+")
_SPACES = re.compile(r"\s+")  # non-breaking spaces too
_OPEN_GAP = re.compile(r"\((?:\s*[,;:])+\s*")  # "(, text" where a template stood
_EMPTY_BRACKETS = re.compile(r"\s*\(\s*\)")
_SPACE_BEFORE_POINT = re.compile(r"\s+([,;.])(?=\s|$)")


@dataclass(frozen=True)
class Article:
    """One article. Each line of its text is a paragraph, a heading or a list item."""

    title: str
    text: str


def load_articles() -> tuple[list[Article], sources.Source]:
    """The embedded articles in the order of the dump, and their source. Extraction takes seconds and is cached.

    Raises DataUnavailable if gensim or its test data is not installed.
    """
    source = sources.load("wikipedia")
    digest = cache.key(source.fingerprint, cache.code_version(__file__), _version("gensim"))

    def extracted() -> bytes:
        articles = [asdict(article) for article in extract_articles(source.content)]
        return json.dumps(articles, ensure_ascii=False).encode()

    stored = cache.cached("articles", digest, extracted)
    return [Article(**fields) for fields in json.loads(stored)], source


def extract_articles(dump: bytes) -> list[Article]:
    """The articles of a bz2-compressed MediaWiki XML dump, without redirects and other namespaces."""
    from gensim.corpora.wikicorpus import IGNORED_NAMESPACES, extract_pages

    articles = []
    for title, markup, _ in extract_pages(bz2.BZ2File(io.BytesIO(dump))):
        if title.partition(":")[0] in IGNORED_NAMESPACES or not markup:
            continue
        if not markup.lstrip().lower().startswith("#redirect") and (text := plain_text(markup)):
            articles.append(Article(title, text))
    return articles


def plain_text(markup: str) -> str:
    """The readable text of one page's wiki markup: lines, a blank line before each heading."""
    from gensim.corpora.wikicorpus import filter_wiki, remove_template

    # gensim puts each table cell and gallery entry on a line of its own, where it is noise. Templates must go first,
    # because their end "|}}" looks like the end of a table.
    markup = remove_template(_GALLERY.sub("", _LINE_BREAK.sub(" ", markup)))
    count = 1
    while count:
        markup, count = _INNERMOST_TABLE.subn("", markup)
    return "\n".join(_readable_lines(filter_wiki(markup))).strip()


def _readable_lines(text: str) -> Iterator[str]:
    apparatus_level = 0  # level of the section being skipped; 0: none
    for raw in text.splitlines():
        line = raw.strip()
        heading = _HEADING.fullmatch(line)
        if heading:
            level, line = len(heading[1]), heading[2]
            if apparatus_level and level > apparatus_level:
                continue
            apparatus_level = level if _APPARATUS.fullmatch(line.lower()) else 0
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


def split_of(title: str) -> str:
    """The split of an article by ``SPLIT_RULE``, which depends on the title alone."""
    bucket = int.from_bytes(hashlib.sha256(title.encode()).digest()[:8], "big") % 100
    if bucket < 90:
        return "train"
    return "validation" if bucket < 95 else "test"


def split_articles(articles: list[Article]) -> dict[str, list[Article]]:
    """The articles of each split, sorted by title."""
    ordered = sorted(articles, key=lambda article: article.title)
    return {name: [article for article in ordered if split_of(article.title) == name] for name in SPLITS}


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # importable, but installed without metadata
        return "unknown"
