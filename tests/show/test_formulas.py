"""LaTeX to MathML: what is shown is what was written, and what cannot be shown is an error."""

import json
import re
import unicodedata
from collections import Counter
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.show.formulas import MathError, keep_punctuation, mathml, text_with_math

CHECKOUT = Path(__file__).resolve().parents[2]
MATHML = "{http://www.w3.org/1998/Math/MathML}"


def tags(formula: str, **options: bool) -> list[str]:
    return [node.tag.removeprefix(MATHML) for node in ElementTree.fromstring(mathml(formula, **options)).iter()]


@pytest.mark.parametrize(
    ("formula", "needed"),
    [
        (r"\frac{a}{b}", "mfrac"),
        (r"\sqrt{\epsilon}", "msqrt"),
        (r"x_i^2", "msubsup"),
        (r"\begin{align} a &= b \\ c &= d \end{align}", "mtable"),
        (r"\begin{aligned} a &= b \\ c &= d \end{aligned}", "mtable"),
        (r"\begin{cases} 1 & x > 0 \\ 0 & x \leq 0 \end{cases}", "mtable"),
        (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", "mtable"),
        (r"\begin{gathered} a \\ b \end{gathered}", "mtable"),
        (r"\begin{equation} a = b \end{equation}", "mrow"),
        (r"\mathrm{XNorm}(\mathbf{Q}(\mathbf{K}^\top \mathbf{V}))", "msup"),
    ],
)
def test_a_formula_becomes_the_elements_it_means(formula: str, needed: str) -> None:
    assert needed in tags(formula)


def test_a_display_formula_says_so_and_an_inline_one_does_not() -> None:
    assert 'display="block"' in mathml("x", display=True)
    assert mathml("x").startswith("<math><mrow>")


def test_aligned_rows_carry_no_numbers_of_their_own() -> None:
    assert "(1)" not in mathml(r"\begin{align} a &= b \\ c &= d \end{align}", display=True)


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (r"\foo x", r"unknown macro \foo"),
        (r"a + \text{in \bar}", r"unknown macro \bar"),
        (r"\begin{tikzpicture} a \end{tikzpicture}", "unknown environment 'tikzpicture'"),
        (r"\frac{a", "braces are not balanced"),
        ("a}", "braces are not balanced"),
        (r"\left( x", "ExtraLeftOrMissingRight"),
        ("x^", "MissingSuperScript"),
        ("a & b", "stray"),
        (r"a \\ b", "outside an environment"),
        (r"\text{<script>}", "stray"),
        (r"\text{<script></script>}", "script is not part of a formula"),
        (r"\href{http://x.example}{y}", "is not part of a formula"),
        ("", "is empty"),
    ],
)
def test_what_cannot_be_shown_is_an_error_that_names_the_formula(formula: str, reason: str) -> None:
    with pytest.raises(MathError) as error:
        mathml(formula)
    assert reason in str(error.value)
    assert " ".join(formula.split()) in str(error.value)


def test_text_is_escaped_around_its_formulas() -> None:
    html = text_with_math(r"a < b & <b>bold</b>, $x < y$ and \$5")
    assert html.startswith("a &lt; b &amp; &lt;b&gt;bold&lt;/b&gt;, <math")
    assert html.endswith("</math> and $5")


@given(st.text(st.characters(blacklist_characters="$\\"), max_size=60))
def test_text_without_dollars_is_only_escaped(text: str) -> None:
    root = ElementTree.fromstring(f"<p>{text_with_math(''.join(c for c in text if c.isprintable()))}</p>")
    assert len(root) == 0
    assert (root.text or "") == "".join(c for c in text if c.isprintable())


def test_amounts_in_dollars_are_no_formulas() -> None:
    assert "<math" not in text_with_math("it costs 5 $ or 6 $ a day")


def test_a_comma_stays_with_the_formula_before_it() -> None:
    html = text_with_math("for $n$, and $m$ too")
    assert html.count('<span class="tn-together">') == 1
    assert keep_punctuation("plain, text.") == "plain, text."


_SAME = str.maketrans({"ϵ": "ε", "⋅": "·", "¯": "‾"})  # one sign, two code points
_MARKS = {"bar", "hat", "tilde"}  # combining there, spacing here


def _formulas(source: str) -> list[str]:
    text = re.sub(r"```.*?```|`[^`]*`", "", source, flags=re.DOTALL)
    inline = re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL)
    return re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL) + re.findall(r"(?<!\\)\$(?!\s)([^$]+?)(?<![\s\\])\$", inline)


@pytest.mark.parametrize("notebook", sorted((CHECKOUT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_symbol_of_a_notebook_s_formulas_is_lost(notebook: Path) -> None:
    """Against matplotlib's table of TeX symbols; letters and digits are counted."""
    from matplotlib._mathtext_data import tex2uni

    texts = [
        "".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "markdown"
    ]
    for formula in [found for text in texts for found in _formulas(text)]:
        shown = unescape(re.sub(r"<[^>]+>", "", mathml(formula)))
        shown = unicodedata.normalize("NFKC", shown).translate(_SAME)
        named = set(re.findall(r"\\([A-Za-z]+)", formula)) & tex2uni.keys() - _MARKS
        expected = {unicodedata.normalize("NFKC", chr(tex2uni[name])).translate(_SAME) for name in named}
        assert [sign for sign in expected if sign not in shown] == [], formula  # dots are three signs in a row
        letters = re.sub(r"\\(begin|end)\{[^}]*\}|\\[A-Za-z]+|\\.", "", formula)
        lost = Counter(filter(str.isalnum, letters)) - Counter(filter(str.isalnum, shown))
        assert not lost, formula
