"""Marks on the terms of a page: where a term first occurs in a part, its definition can be called up.

The mark is a button without text over the word, which stays plain text: it is read and copied as before, and a
browser's reader mode shows the word alone. The button calls up a popover at the end of the page by a click, a tap or a
key, and in browsers that have interest invokers by resting on the word; no script is needed.

A page is read with the standard library's parser, which says where each tag is. Only text between tags is changed, so
everything else stays as it is to the last byte.
"""

import re
from functools import cache
from html.parser import HTMLParser
from typing import NamedTuple

from markupsafe import Markup

from transnormer_lib.report.terms import Term, terms
from transnormer_lib.show.templating import render

_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
# Text in one of these elements or classes is prose …
_PROSE = frozenset(("blockquote", "caption", "dd", "figcaption", "li", "p"))
_PROSE_CLASSES = frozenset(("what", "tn-values", "tn-verdict"))
# … unless it is also in one of these: what a reader acts on, what names something else, and what is no text.
_ACTED_ON = frozenset(("a", "button", "form", "label", "nav", "summary", "textarea"))
_NAMES = frozenset(("dfn", "h1", "h2", "h3", "h4", "h5", "h6", "head", "th"))
_CLOSED = _ACTED_ON | _NAMES | frozenset(("code", "kbd", "math", "pre", "samp", "script", "style", "svg"))
_CLOSED_CLASSES = frozenset(("banner", "error", "provenance", "tn-locus"))
_NONE: frozenset[str] = frozenset()
_BADGE = "tn-verdict"
_ON_THEIR_OWN = frozenset(("group", "thesis"))  # folds that are read without what stands around them
_APOSTROPHES = "(?:'|’|&#39;|&#x27;)"


class _Element(NamedTuple):
    """An open element; ``places`` are the terms already marked in the parts that it belongs to, the innermost first."""

    tag: str
    prose: bool
    closed: bool
    badge: bool
    places: tuple[set[str], ...]


class _Marker(HTMLParser):
    """Copies a page with its terms marked; collects them in ``found``."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: dict[str, Term] = {}
        self._html = html
        self._lines = [0, *(line.end() for line in re.finditer("\n", html))]
        self._part: set[str] = set()  # marked since the last heading of a part, outside folds
        self._page: set[str] = set()  # marked outside folds
        self._open = [_Element("", prose=False, closed=False, badge=False, places=(self._part,))]
        self._pieces: list[str] = []
        self._copied = 0  # up to here the page is in the pieces
        self.feed(html)
        self.close()
        self._pieces.append(html[self._copied :])

    @property
    def html(self) -> str:
        """The page with its marks, and at the end of its main part the definitions."""
        before, end, after = "".join(self._pieces).rpartition("</main>")
        if not self.found or not end:
            return self._html
        definitions = render("report/templates/definitions.html.j2", terms=list(self.found.values()))
        return f"{before}{definitions}\n{end}{after}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._copy(len(self.get_starttag_text() or ""))
        if tag in ("h1", "h2"):
            self._part.clear()
        if tag in _VOID:
            return
        around = self._open[-1]
        named = next((value for name, value in attrs if name == "class"), None)
        classes = frozenset(named.split()) if named else _NONE
        places = around.places
        if tag == "details":
            places = (set(),) if classes & _ON_THEIR_OWN else (set(), *places)
        self._open.append(
            _Element(
                tag,
                around.prose or tag in _PROSE or not classes.isdisjoint(_PROSE_CLASSES),
                around.closed or tag in _CLOSED or not classes.isdisjoint(_CLOSED_CLASSES),
                around.badge or _BADGE in classes,
                places,
            )
        )

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._copy(len(self.get_starttag_text() or ""))

    def handle_endtag(self, tag: str) -> None:
        start = self._offset()
        self._copy(self._html.index(">", start) + 1 - start)
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].tag == tag:  # and what was left open in it ends too
                del self._open[depth:]
                return

    def handle_comment(self, data: str) -> None:
        start = self._offset()
        whole = self._html.startswith("<!--", start)
        self._copy(len(f"<!--{data}-->") if whole else self._html.index(">", start) + 1 - start)

    def handle_decl(self, decl: str) -> None:
        self._copy(len(decl) + len("<!>"))

    def _offset(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def _copy(self, length: int) -> None:
        """Take over the text up to the tag that begins here, marked if it is prose, and the tag, of this length."""
        start, inner = self._offset(), self._open[-1]
        text = self._html[self._copied : start]
        self._pieces.append(self._marked(text, inner) if inner.prose and not inner.closed else text)
        self._pieces.append(self._html[start : start + length])
        self._copied = start + length

    def _marked(self, text: str, inner: _Element) -> str:
        known, pattern = _vocabulary(inner.badge)

        def mark(found: re.Match[str]) -> str:
            term = known[_plain(found[0])]
            around = (*inner.places, self._page) if term.once else inner.places
            if any(term.anchor in place for place in around):
                return found[0]
            inner.places[0].add(term.anchor)
            if inner.places[0] is self._part:
                self._page.add(term.anchor)
            self.found.setdefault(term.anchor, term)
            return str(render("report/templates/term.html.j2", term=term, text=Markup(found[0])))

        return pattern.sub(mark, text)


def marked(html: str) -> str:
    """The page ``html`` with its terms marked and their definitions at the end of its main part."""
    return _Marker(html).html


@cache
def _vocabulary(badge: bool) -> tuple[dict[str, Term], re.Pattern[str]]:
    """The terms by their spellings, on a badge or in prose, and what finds them; of two that begin alike the longer."""
    known: dict[str, Term] = {}
    for term in terms():
        for spelling in ([term.term] if term.badge else []) if badge else term.spellings:
            known[spelling] = known[spelling[0].upper() + spelling[1:]] = term
    longest = sorted(known, key=len, reverse=True)
    spelled = "|".join(re.escape(one).replace("'", _APOSTROPHES).replace(r"\ ", r"\s+") for one in longest)
    return known, re.compile(rf"(?<![\w&#$/-])(?:{spelled})(?!\w|[./-]\w)")


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(_APOSTROPHES, "'", text))
