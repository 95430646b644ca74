"""What a page adds to a notebook's cells: regions that scroll, folds around what is long or stands aside, and numbers.

Figures and tables are numbered with the notebook before a point, Figure 9.2, so that nobody takes one for the paper's.

The outputs were made by the templates of ``show`` and of the registers, which escape all text, so their tags can be
found by their text. Nothing is dropped: what is folded unfolds without a script, and a link to what is folded
unfolds it.
"""

import re
from itertools import count

from markupsafe import Markup, escape

from transnormer_lib.show.templating import render

LONG_TABLE = 7  # rows that a table may have without being folded
LONG_CELLS = 800  # characters of text that a table may have without being folded
LONG_LIST = 3  # sentences that a list may have without being folded
LONG_REGISTER = 2  # entries that one output may have without being folded

_STYLES = re.compile(r'<style class="tn-outputs">.*?</style>\s*', re.DOTALL)
_TABLE = re.compile(r'<div class="tn-table".*?</table>(?:\s*<p class="tn-table-note">.*?</p>)?\s*</div>', re.DOTALL)
_CAPTION = re.compile(r"<caption>(.*?)</caption>", re.DOTALL)
_FIGURE = re.compile(r'(<figure class="tn-figure" id="fig-([\w-]+)"[^>]*>)(<img [^>]*>)')
_CELL_OR_CAPTION = re.compile(
    r'<div class="outputs" data-code="(?P<code>[\w-]+)">|<caption>|<figcaption>(?P<figure>.*?)</figcaption>', re.DOTALL
)
_FIGURE_ASIDE = re.compile(
    r'<figure class="tn-figure" id="[\w-]+" data-aside[^>]*>.*?<figcaption>(.*?)</figcaption></figure>', re.DOTALL
)
_BARE_IMAGE = re.compile(r"<img (?![^>]*\balt=)")
_ENTRY = re.compile(
    r'(<section class="tn-claim tn-entry tn-(\w+)"[^>]*>.*?</p>)\s*(<dl class="tn-facts">.*?)</section>', re.DOTALL
)
_LIST = re.compile(r'(<div class="html">)(<ul>(?:(?!</?ul>).)*</ul>)(</div>)', re.DOTALL)
_REGISTER = re.compile(r'(?:<section class="tn-claim tn-entry (?:(?!<section).)*</section>\s*)+', re.DOTALL)
_ANCHOR = re.compile(r'(<section class="tn-claim tn-entry tn-\w+") id="(entry-[^"]+)"')
_LOCUS = re.compile(r'<span class="tn-locus">(.*?)</span>', re.DOTALL)  # escaped by the template
_SAYS = re.compile(r"<dd>(.*?)</dd>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
_SENTENCE = re.compile(r"(?<=[.?])\s+(?=[A-Z])")


def finished(body: str, number: int) -> str:
    """The cells of notebook ``number`` as HTML, with what this module adds."""
    body = _numbered(_STYLES.sub("", body), number)  # the page has the styles, and those of an older run would differ
    body = _BARE_IMAGE.sub('<img alt="A picture without a description" ', body)
    body = _FIGURE.sub(lambda found: found[1] + _scrolling(found[3], f"Figure {found[2].replace('-', ' ')}"), body)
    body = _FIGURE_ASIDE.sub(lambda found: _fold(_beginning(found[1]), found[0]), body)
    body = _TABLE.sub(_fold_table, body)
    body = _LIST.sub(_fold_list, body)
    return _REGISTER.sub(_fold_register, body)


def _numbered(body: str, notebook: int) -> str:
    """Number figures and tables in their order; a figure's caption also leads to the code that draws it."""
    figures, tables, code = count(1), count(1), ""

    def place(found: re.Match[str]) -> str:
        nonlocal code
        if found["code"] is not None:
            code = found["code"]
            return found[0]
        if found["figure"] is None:
            return f"<caption>Table {notebook}.{next(tables)}. "
        ways = f' <a class="tn-values-of" href="#{code}">Code</a>' if code else ""
        return f"<figcaption><b>Figure {notebook}.{next(figures)}.</b> {found['figure']}{ways}</figcaption>"

    return _CELL_OR_CAPTION.sub(place, body)


def _beginning(caption: str) -> str:
    """A figure's number and the first sentence of its caption, without tags and links: what a fold's summary says."""
    text = _TAG.sub("", caption.partition('<a class="tn-values-of"')[0]).strip()
    number, _, rest = text.partition(". ")
    return f"{number}. {_SENTENCE.split(rest, maxsplit=1)[0]}"


def shortened(prose: str) -> str:
    """Text of a notebook that stands aside, as HTML: its heading, or its first paragraph, and the rest in a fold."""
    end = re.search(r"</(?:h[23]|p)>", prose)
    cut = end.end() if end else 0
    return prose[:cut] + (_fold("Read on", prose[cut:]) if prose[cut:].strip() else "")


def table_region(table: str) -> str:
    """A table of the notebook's text, in a region of its own that scrolls."""
    heads = [Markup(_TAG.sub("", head)).unescape() for head in re.findall(r"<th\b[^>]*>(.*?)</th>", table, re.DOTALL)]
    return _scrolling(table, "Table: " + ", ".join(heads))


def formula_region(formula: str) -> str:
    """A formula on a line of its own, in a region that scrolls; a span, since it may be inside a paragraph."""
    return f'<span class="scroll formula" tabindex="0" role="group" aria-label="Formula">{formula}</span>'


def _scrolling(inner: str, label: str) -> str:
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{inner}</div>'


def _fold(summary: str, inner: str, remark: str = "", unfolded: bool = False) -> str:
    parts = {"summary": Markup(summary), "inner": Markup(inner), "remark": remark, "unfolded": unfolded}
    return str(render("report/templates/fold.html.j2", **parts))  # Markup would escape what it is added to


def _fold_table(found: re.Match[str]) -> str:
    table = found[0]
    rows = table.count("<tr") - 1
    caption = _CAPTION.search(table)
    short = rows <= LONG_TABLE and len(_TAG.sub("", table)) <= LONG_CELLS
    if caption is None or (short and " data-aside" not in table[: table.index(">")]):
        return table
    return _fold(caption[1], table, f"{rows} row{'' if rows == 1 else 's'}")


def _fold_list(found: re.Match[str]) -> str:
    start, sentences, end = found.groups()
    lines = sentences.count("<li>")
    return found[0] if lines <= LONG_LIST else f"{start}{_fold('In words', sentences, f'{lines} lines')}{end}"


def _fold_register(found: re.Match[str]) -> str:
    """Several entries of a register: folded together, and each below what the paper says."""
    entries = [(one[2], _fold_entry(one)) for one in _ENTRY.finditer(found[0])]
    if len(entries) <= LONG_REGISTER:
        return found[0]
    listed = "\n".join(entry for _, entry in entries)
    anchors = "".join(f'<span id="{name}" data-row="row-{name}"></span>' for _, name in _ANCHOR.findall(found[0]))
    inner = _ANCHOR.sub(r'\1 id="row-\2"', listed)
    places = ", ".join(dict.fromkeys(_LOCUS.findall(found[0])))
    open_ones = sum(tone == "bad" for tone, _ in entries)
    remark = f"{open_ones} not confirmed" if open_ones else "all confirmed"
    summary = f"{len(entries)} entries of the register: {places}"
    return f"{anchors}{_fold(summary, inner, remark, unfolded=open_ones > 0)}"


def _fold_entry(found: re.Match[str]) -> str:
    """An entry of a register, folded below what the paper says; one that is not confirmed is open."""
    head, tone, facts = found.groups()
    says = _SAYS.search(facts)
    assert says is not None
    return f"{head}{_fold(says[1], facts, unfolded=tone == 'bad')}</section>"
