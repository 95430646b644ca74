r"""LaTeX formulas to MathML when a page is built, so that a page needs no script to show them.

The converter silently accepts what it does not know: ``\foo`` becomes an identifier, an unknown environment loses its
frame, a missing brace is ignored. Here each of these is an error that shows the formula.
"""

import re
from functools import lru_cache
from xml.etree import ElementTree

from markupsafe import Markup, escape

# Environments that the converter does not know, as ones that it knows. Starred: it would number every formula (1).
_ALIASES = {
    **dict.fromkeys(("align", "aligned", "split"), "align*"),
    **dict.fromkeys(("gather", "gather*", "gathered"), "matrix"),
    **dict.fromkeys(("equation", "equation*"), ""),
}
_ENVIRONMENTS = frozenset(
    f"{name}{star}"
    for name in ("align", "cases", "array", "matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix")
    for star in ("", "*")
)
# The elements of a formula; any other comes from markup inside it.
_TAG = re.compile(
    r"math|menclose|mfrac|mi|mmultiscripts|mn|mo|mover|mpadded|mphantom|mprescripts|mroot|mrow|ms|mspace|msqrt"
    r"|mstyle|msub|msubsup|msup|mtable|mtd|mtext|mtr|munder|munderover|none|semantics"
)
# Browsers space these signs like relations, TeX does not: / | ‖ ∂.
_TIGHT = re.compile(r"<mo([^>]*)>(&#x(?:0002F|0007C|02016|02202);|[/|‖∂])</mo>")
_FOLLOWED = re.compile(r"(<math>(?:(?!</math>).)*</math>)([.,;:!?)\]’”]+)")
# $...$ as Markdown cells and statements write it: no space inside the dollars; \$ is a dollar sign.
_INLINE = re.compile(r"(?<!\\)\$(?!\s)([^$]+?)(?<![\s\\])\$")


class MathError(ValueError):
    """A formula that cannot be converted; the message shows it."""


@lru_cache(maxsize=4096)
def mathml(latex: str, *, display: bool = False) -> str:
    """One formula, without its dollars, as a ``<math>`` element; ``display`` sets it on a line of its own.

    Raises MathError for whatever would be shown wrongly, like an unknown macro or unbalanced braces.
    """
    from latex2mathml.converter import convert

    formula = " ".join(latex.split())
    if not formula:
        raise MathError("formula: is empty")
    _check_braces(formula)
    known = _environments(formula)
    try:
        element = convert(known, display="block" if display else "inline")
    except Exception as error:  # the converter raises its own classes, IndexError and others
        detail = f": {error}" if str(error) else ""
        raise MathError(f"formula {formula}: {type(error).__name__}{detail}") from None
    _check_result(element, formula)
    return _short(_TIGHT.sub(r'<mo\1 lspace="0" rspace="0">\2</mo>', element))


def text_with_math(text: str) -> Markup:
    """Plain text as HTML: escaped, each ``$...$`` as MathML. Raises MathError for a bad formula."""
    pieces = enumerate(_INLINE.split(text))
    html = "".join(mathml(piece) if number % 2 else escape(piece.replace(r"\$", "$")) for number, piece in pieces)
    return Markup(keep_punctuation(html))


def keep_punctuation(html: str) -> str:
    """Keep an inline formula and the sign after it on one line."""
    return _FOLLOWED.sub(r'<span class="tn-together">\1\2</span>', html)


def _short(element: str) -> str:
    """The element as a page of HTML needs it: without its namespace and the default display, signs as themselves."""
    element = element.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "").replace(' display="inline"', "")
    return re.sub(r"&#x([0-9A-Fa-f]+);", lambda sign: str(escape(chr(int(sign[1], 16)))), element)


def _check_braces(formula: str) -> None:
    depth = 0
    for brace in re.findall(r"\\.|[{}]", formula):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            break
    if depth:
        raise MathError(f"formula {formula}: braces are not balanced")


def _environments(formula: str) -> str:
    def known(match: re.Match[str]) -> str:
        name = _ALIASES.get(match[2], match[2])
        if name and name not in _ENVIRONMENTS:
            raise MathError(f"formula {formula}: unknown environment {match[2]!r}")
        return rf"\{match[1]}{{{name}}}" if name else ""

    return re.sub(r"\\(begin|end)\{([^}]*)\}", known, formula)


def _check_result(element: str, formula: str) -> None:
    try:
        root = ElementTree.fromstring(element)
    except ElementTree.ParseError as error:
        raise MathError(f"formula {formula}: a stray &, < or column separator ({error})") from None
    for node in root.iter():
        tag = node.tag.rpartition("}")[2]
        if not _TAG.fullmatch(tag) or "href" in node.attrib:
            raise MathError(f"formula {formula}: {tag} is not part of a formula")
        if node.get("linebreak"):
            raise MathError(rf"formula {formula}: \\ outside an environment shows no line break")
        unknown = re.search(r"\\\w*", node.text or "")
        if unknown and unknown[0] != "\\":
            raise MathError(f"formula {formula}: unknown macro {unknown[0]}")
