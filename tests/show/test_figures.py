"""Figures: the same bytes for the same drawing, a caption and a text alternative, colours that turn in dark mode."""

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from transnormer_lib.show import figures


def lines() -> Figure:
    fig, ax = plt.subplots()
    for name, style in figures.STYLE.items():
        ax.plot([0, 1, 2], [0, len(name), 3], **style.line())
    ax.axvspan(0.2, 0.4, color="0.85")
    ax.fill_between([0, 1], [0, 1], [1, 2], alpha=0.3, clip_on=True)
    ax.legend()
    return fig


def heat_map() -> Figure:
    fig, ax = plt.subplots()
    ax.imshow(np.arange(64).reshape(8, 8), cmap="viridis")
    return fig


@pytest.fixture(autouse=True)
def house_theme():
    with mpl.rc_context():
        figures.theme()
        yield
    plt.close("all")


def shown(fig: Figure, **change: str) -> figures.Shown:
    return figures.element(fig, **{"caption": "What it shows.", "alt": "Two lines.", "name": "demo", **change})


@pytest.mark.parametrize("draw", [lines, heat_map])
def test_the_same_drawing_gives_the_same_bytes(draw: Callable[[], Figure]) -> None:
    assert shown(draw()).svg == shown(draw()).svg


@pytest.mark.slow
def test_another_process_gives_the_same_bytes() -> None:
    script = (
        "import hashlib, matplotlib; matplotlib.use('agg')\n"
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_figures import figures, lines\n"
        "figures.theme(); print(hashlib.sha256(figures.adaptive_svg(lines()).encode()).hexdigest())"
    )
    digests = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(digests) == 1


def test_the_drawing_holds_no_date_and_no_program() -> None:
    svg = shown(lines()).svg
    assert not re.search(r"\d{4}-\d\d-\d\d|[Mm]atplotlib v", svg)


@pytest.mark.parametrize("draw", [lines, heat_map])
def test_the_drawing_is_well_formed_and_refers_to_nothing_outside(draw: Callable[[], Figure]) -> None:
    svg = shown(draw()).svg
    root = ElementTree.fromstring(svg)
    for node in root.iter():
        for name, value in node.attrib.items():
            if name.endswith("href"):
                assert value.startswith(("#", "data:")), value


def test_every_dark_or_white_colour_is_recoloured_in_dark_mode() -> None:
    svg = shown(lines()).svg
    style = re.search(r"<style>@media \(prefers-color-scheme:dark\)\{(.*?)\}</style>", svg, re.DOTALL)
    assert style is not None
    rules = dict(
        re.findall(r"\[style\*=.((?:fill|stroke): #[0-9a-f]{6}).\]\{\w+:(#[0-9a-f]{6}) !important\}", style[1])
    )
    used = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", svg.replace(style[0], "")))
    assert set(rules) <= used
    for colour in used:
        level = [int(colour[-6:][i : i + 2], 16) for i in (0, 2, 4)]
        if max(level) < 0x50 or min(level) > 0xF0:
            assert colour in rules, colour
            turned = [int(rules[colour][1:][i : i + 2], 16) for i in (0, 2, 4)]
            assert (sum(turned) > 3 * 0x80) != (sum(level) > 3 * 0x80)


def test_ink_contrasts_with_the_ground_in_dark_mode() -> None:
    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    ground = luminance(figures._DARK_GROUND)
    for style in figures.STYLE.values():
        colour = figures._DARK.get(style.colour.lower(), style.colour)
        assert (luminance(colour) + 0.05) / (ground + 0.05) > 3.0, style.label


def test_a_picture_made_of_pixels_keeps_its_colours() -> None:
    svg = shown(heat_map()).svg
    assert "<image" in svg
    assert "filter" not in svg
    assert "invert" not in svg


def test_caption_and_alternative_are_shown_as_text() -> None:
    html = shown(lines(), caption="<script>x</script> & more", alt='a "quoted" <b>').html
    assert "<script" not in html
    assert "&lt;script&gt;x&lt;/script&gt; &amp; more" in html
    assert 'alt="a &#34;quoted&#34; &lt;b&gt;"' in html


def test_the_element_is_a_figure_with_anchor_image_and_caption() -> None:
    drawn = shown(lines(), name="gradient-growth")
    root = ElementTree.fromstring(re.sub(r"(<img[^>]*)>", r"\1/>", str(drawn.html)))
    assert (root.tag, root.attrib["id"]) == ("figure", "fig-gradient-growth")
    image = root.find("img")
    assert image is not None
    prefix, _, data = image.attrib["src"].partition(",")
    assert prefix == "data:image/svg+xml"
    assert unquote(data) == drawn.svg
    assert [child.tag for child in root] == ["img", "figcaption"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"caption": " "}, "caption=' ': must say something"),
        ({"alt": ""}, "alt='': must say something"),
        ({"name": "Figure 1"}, "name='Figure 1': must be lower-case words joined by hyphens"),
        ({"name": 'a" onload="x'}, "must be lower-case words"),
    ],
    ids=["caption", "alt", "name", "quote"],
)
def test_a_figure_that_says_nothing_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match="must") as error:
        shown(lines(), **change)
    assert message in str(error.value)


# What the other two papers add, and what stands in one figure with it.
ADDED = {
    "hashing": ["softmax", "linear", "lsh-1", "lsh-4", "lsh-8", "polynomial"],
    "speech": ["softmax", "linear", "lsh-4", "bilstm"],
    "gated units": ["gau", "gau-pre-norm", "gau-no-rope", "roformer-v1", "roformer-v2"],
    "three papers": ["vanilla", "linear", "flash", "gau", "transnormer-t1", "transnormer-t2"],
}
TRANSNORMER = [
    name
    for name in figures.STYLE
    if (
        name not in {"softmax", "1+elu", "norm"}  # other names of vanilla, linear and norm-t2
        and name not in {row for rows in ADDED.values() for row in rows[1:]} - {"linear", "flash"}
    )
    or name.startswith("transnormer-t")
]


@pytest.mark.parametrize("rows", [TRANSNORMER, *ADDED.values()], ids=["transnormer", *ADDED])
def test_rows_of_one_figure_differ_in_marker_and_not_only_in_colour(rows: list[str]) -> None:
    styles = [figures.STYLE[name] for name in rows]
    assert len({style.marker for style in styles}) == len(styles)
    assert len({(style.colour, style.dashes) for style in styles}) == len(styles)


def test_styles_reach_seaborn_under_the_columns_names_and_an_unknown_one_is_refused() -> None:
    options = figures.by_mechanism(["vanilla", "linear", "vanilla"])
    assert options["hue_order"] == ["vanilla", "linear"]
    assert options["palette"]["linear"] == figures.STYLE["linear"].colour
    with pytest.raises(ValueError, match="name='mamba': has no style; there are vanilla"):
        figures.by_mechanism(["mamba"])


def test_show_closes_the_figure_so_that_it_appears_once(monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: displayed.append(data))
    fig = lines()
    figures.show(fig, caption="c", alt="a", name="n")
    assert not plt.fignum_exists(fig.number)
    assert len(displayed) == 1
    assert set(displayed[0]) == {"text/html", "text/plain"}


def test_the_theme_is_seaborns_ticks_on_paper_with_our_own_settings() -> None:
    import seaborn as sns

    with plt.rc_context():
        plt.rcdefaults()
        figures.theme()
        ours = dict(plt.rcParams)
    with plt.rc_context():
        plt.rcdefaults()
        sns.set_theme(context="paper", style="ticks", palette=list(figures.PALETTE), rc=figures._RC)
        theirs = dict(plt.rcParams)
    # The colours are set apart from seaborn, whose own cycle takes names of colours.
    assert {name for name in ours if ours[name] != theirs[name]} <= {"image.cmap", "axes.prop_cycle"}


def test_the_drawing_keeps_its_numbers_to_a_hundredth_of_a_point_and_those_below_one_as_they_are() -> None:
    axes = plt.subplots()[1]
    axes.plot([0.1, 2.0, 3.3], [1e-3, 1e2, 7.7], marker="o", label="α₁")
    axes.set(yscale="log", title="1.23456 scale(0.015625)")
    axes.legend()
    text = io.StringIO()
    axes.figure.savefig(text, format="svg")
    number = re.compile(r"(?<![\d.])-?\d*\.\d+")
    body = re.sub(r"<!--.*?-->", "", text.getvalue().partition("<defs>")[2], flags=re.DOTALL)
    before, after = ([float(x) for x in number.findall(one)] for one in (body, figures._compact(body)))
    assert len(before) == len(after) > 50
    assert all(abs(a - b) <= (0.01 if abs(a) >= 1 else 0.0) for a, b in zip(before, after, strict=True))
    assert len(figures._compact(body)) < 0.9 * len(body)
