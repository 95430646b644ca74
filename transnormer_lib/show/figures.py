"""The theme of every figure, and ``show``, which displays a figure with its caption.

A mechanism has the same colour, marker and line style in every notebook (``STYLE``). A figure becomes an SVG inside
the output, with a caption and a text alternative. The SVG recolours itself in dark mode, and the same figure always
gives the same bytes.
"""

import io
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from transnormer_lib.show import values
from transnormer_lib.show.data_uri import data_uri
from transnormer_lib.show.movable import Movable
from transnormer_lib.show.templating import output_styles, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which colour-blind readers can distinguish, without its yellow: too pale for lines.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GREY, BLACK = "#CC79A7", "#56B4E9", "#7F7F7F", "#000000"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, GREY)


class Style(NamedTuple):
    """How one mechanism is drawn. ``dashes`` is a seaborn dash pattern; ``""`` is a solid line."""

    colour: str
    marker: str
    dashes: str | tuple[float, float] | tuple[float, float, float, float]
    label: str

    def line(self) -> dict[str, Any]:
        """Keyword arguments for ``Axes.plot``: colour, marker, line style and label."""
        linestyle = (0, self.dashes) if isinstance(self.dashes, tuple) else "-"
        return {"color": self.colour, "marker": self.marker, "linestyle": linestyle, "label": self.label}


_VANILLA = Style(BLACK, "o", "", "vanilla")
_LINEAR = Style(VERMILION, "s", (5, 2), "linear, 1+elu")
_NORM = Style(GREEN, "D", (4, 1.5, 1, 1.5), "NormAttention")
STYLE: Mapping[str, Style] = {
    "vanilla": _VANILLA,
    "softmax": _VANILLA._replace(label="softmax"),
    "linear": _LINEAR,
    "1+elu": _LINEAR,
    "vanilla-matched": _VANILLA._replace(marker="h", dashes=(2, 2), label="vanilla, matched"),
    "linear-matched": _LINEAR._replace(colour=ORANGE, marker="p", dashes=(1, 1), label="1+elu, matched"),
    "linear-unscaled": Style(PURPLE, "X", (1, 1.5), "1+elu without scaling"),
    "transnormer-t1": Style(SKY, "^", (3, 1.5), "TransNormer T1"),
    "transnormer-t2": Style(BLUE, "v", "", "TransNormer T2"),
    "norm": _NORM,
    "norm-t1": _NORM._replace(colour=SKY, marker="<", label="NormAttention, φ = elu"),
    "norm-t2": _NORM._replace(label="NormAttention, φ = 1+elu"),
    "diag": Style(ORANGE, "P", (2, 1), "DiagAttention"),
    "performer": Style(GREY, "*", (5, 1.5, 1, 1.5), "Performer"),
    "transformer-ls": Style(GREEN, "d", (6, 1.5), "Transformer-LS"),
    "flash-quad": Style(PURPLE, "8", (2, 1.5), "FLASH-quad"),
    "flash": Style(PURPLE, ">", (4, 2), "FLASH"),
    "gau": Style(GREEN, "H", "", "GAU"),
    "gau-pre-norm": Style(GREEN, "<", (4, 2), "GAU, pre-norm"),
    "gau-no-rope": Style(GREEN, "x", (1, 1), "GAU without RoPE"),
    "roformer-v1": Style(ORANGE, "s", (4, 1.5), "RoFormerV1"),
    "roformer-v2": Style(VERMILION, "D", (2, 1), "RoFormerV2"),
    "cosformer": Style(ORANGE, "x", (3, 1, 1, 1), "cosFormer"),
    "linformer": Style(GREEN, "+", (1, 1), "Linformer"),
    "reformer": Style(GREY, "1", (2, 1), "Reformer"),
    "lsh-1": Style(ORANGE, "^", (2, 1), "Reformer, 1 round"),
    "lsh-4": Style(GREEN, "d", (4, 1.5), "Reformer, 4 rounds"),
    "lsh-8": Style(PURPLE, "D", (1, 1), "Reformer, 8 rounds"),
    "bilstm": Style(SKY, "v", (6, 1.5), "Bi-LSTM"),
    "polynomial": Style(SKY, "X", (3, 1, 1, 1), "polynomial, degree 2"),
    "nystromformer": Style(PURPLE, "2", "", "Nyströmformer"),
    "vanilla-stored": _VANILLA._replace(marker="H", dashes=(1, 1.5), label="vanilla, matrix stored"),
    "transnormer-t1-plain": Style(SKY, "3", (1, 1), "TransNormer T1, plain"),
    "transnormer-t2-plain": Style(BLUE, "4", (4, 2), "TransNormer T2, plain"),
    "linear-plain": _LINEAR._replace(marker="|", dashes=(1, 1.5), label="linear, 1+elu, plain"),
}

_TEXT = "#1a1a1a"
# seaborn's style "ticks" in its context "paper", written out: importing seaborn takes seconds in every notebook.
_SEABORN = {
    "axes.axisbelow": True,
    "axes.linewidth": 1.0,
    "grid.color": ".8",
    "legend.title_fontsize": 9.6,
    "lines.solid_capstyle": "round",
    "patch.edgecolor": "w",
    "patch.force_edgecolor": True,
    "patch.linewidth": 0.8,
    **{f"{axis}tick.{name}": value for axis in "xy" for name, value in {
        "labelsize": 8.8, "major.size": 4.8, "major.width": 1.0, "minor.size": 3.2, "minor.width": 0.8,
    }.items()},
}  # fmt: skip
_RC: dict[Any, Any] = {
    **_SEABORN,
    "font.size": 10.5,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # shipped with matplotlib: the same glyph outlines on every machine
    "axes.titlesize": 11,
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _TEXT,
    "axes.labelcolor": _TEXT,
    "text.color": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.facecolor": "white",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
    "figure.figsize": (6.8, 3.9),
    "figure.max_open_warning": 0,
}
_SVG_RC: dict[Any, Any] = {
    "svg.fonttype": "path",  # text as outlines: a page brings no fonts
    "svg.hashsalt": "transnormer",  # element ids depend on the content alone
}
# Otherwise the file would hold the date and the version of matplotlib.
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def theme() -> None:
    """Make this theme the default of matplotlib in this process, and so of seaborn."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update(_RC | {"axes.prop_cycle": cycler(color=list(PALETTE))})


def by_mechanism(names: Iterable[str]) -> dict[str, Any]:
    """Keyword arguments for seaborn's ``lineplot`` with ``hue`` and ``style`` on a column of mechanism names.

    Raises ValueError for a name without a style.
    """
    names = list(dict.fromkeys(names))
    for name in names:
        if name not in STYLE:
            raise ValueError(f"name={name!r}: has no style; there are {', '.join(STYLE)}")
    return {
        "hue_order": names,
        "style_order": names,
        "palette": {name: STYLE[name].colour for name in names},
        "markers": {name: STYLE[name].marker for name in names},
        "dashes": {name: STYLE[name].dashes for name in names},
    }


class Shown(NamedTuple):
    """A figure as it is displayed: ``html`` is the figure element, ``svg`` the drawing."""

    html: Markup
    svg: str


def look(name: str) -> dict[str, Any]:
    """The style of a mechanism for a page's script: label, colour in light and dark mode, marker, dashes in pixels."""
    style = STYLE[name]
    dark = _DARK.get(style.colour.lower(), style.colour)
    dashes = [round(_RC["lines.linewidth"] * length, 1) for length in style.dashes or ()]
    return {"label": style.label, "colour": [style.colour, dark], "marker": style.marker, "dashes": dashes}


def show(
    fig: "Figure", *, caption: str, alt: str, name: str, aside: bool = False, moves: Movable | None = None
) -> None:
    """Display ``fig`` with its caption and text alternative under the anchor ``fig-NAME``, and close it.

    ``caption`` says what the figure shows, ``alt`` what a reader who cannot see it needs to know. The caption ends with
    a link to the values that are drawn. A page folds a figure that stands ``aside``, and lets its visitors change one
    that ``moves``; its caption must be right for both. Raises ValueError if a text is empty or ``name`` is not
    lower-case words joined by hyphens.
    """
    from IPython.display import display
    from matplotlib import pyplot as plt

    html = output_styles() + element(fig, caption=caption, alt=alt, name=name, aside=aside, moves=moves).html
    plt.close(fig)  # otherwise the inline backend shows it a second time
    display({"text/html": html, "text/plain": f"Figure {name}: {caption}"}, raw=True)


def element(
    fig: "Figure", *, caption: str, alt: str, name: str, aside: bool = False, moves: Movable | None = None
) -> Shown:
    """The figure as HTML, not displayed; see :func:`show`."""
    for argument, value in (("caption", caption), ("alt", alt)):
        if not value.strip():
            raise ValueError(f"{argument}={value!r}: must say something")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"name={name!r}: must be lower-case words joined by hyphens")
    svg = adaptive_svg(fig)
    source = data_uri("image/svg+xml", svg)
    fields: dict[str, Any] = {"name": name, "alt": alt, "caption": caption, "size": _pixels(svg), "source": source}
    fields |= {"aside": aside, "moves": moves}
    return Shown(render("show/templates/figure.html.j2", values=values.link(fig, name), **fields), svg)


def adaptive_svg(fig: "Figure") -> str:
    """``fig`` as SVG text, without dates or random ids, that recolours itself for dark mode."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context(_SVG_RC):
        fig.savefig(buffer, format="svg", metadata=_NO_METADATA, bbox_inches="tight")
    svg = _compact(buffer.getvalue())
    start = svg.index(">", svg.index("<svg")) + 1
    coloured = svg[:start] + _dark_style(svg) + svg[start:]
    return re.sub(r'="([^"\']*)"', r"='\1'", coloured)  # in an address double quotes would take three characters each


def _compact(svg: str) -> str:
    """The same drawing in a third fewer bytes, most of which place letters one by one."""
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' d="[^"]*"', lambda path: " " + _AROUND_COMMANDS.sub(r"\1", path[0].strip()), svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = _HUNDREDTHS.sub(r"\1", svg)
    svg = svg.replace("xlink:href=", "href=").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    svg = re.sub(r'(<use [^>]*)transform="translate\(([\d.-]+) 0\)"', r'\1x="\2"', svg)
    svg = re.sub(r'style="[^"]*"', lambda style: re.sub("([:;]) ", r"\1", style[0]), svg)
    return _short_ids(svg)


def _short_ids(svg: str) -> str:
    """Names of few letters where something refers to an id; the other ids, and groups of nothing else, go."""
    named = dict.fromkeys(name for pair in _REFERENCE.findall(svg) for name in pair if name)
    short = {name: f"i{number}" for number, name in enumerate(named)}
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{short[found[1]]}"' if found[1] in short else "", svg)
    svg = _REFERENCE.sub(lambda found: found[0].replace(found[1] or found[2], short[found[1] or found[2]]), svg)
    return re.sub(r"<g>(<[^>/][^>]*/>)</g>", r"\1", svg)


_REFERENCE = re.compile(r'href="#([^"]+)"|url\(#([^)]+)\)')
_AROUND_COMMANDS = re.compile(r"\s*([MLHVCSQTAZmlhvcsqtaz])\s*")
_HUNDREDTHS = re.compile(r'(?<![\d.])([1-9]\d*\.\d\d)\d+(?=[" ,)A-Zz])')  # below one a number may be a scale


def _pixels(svg: str) -> tuple[int, int]:
    """Width and height in CSS pixels (96 to the inch) of a drawing measured in points (72 to the inch)."""
    size = re.search(r"<svg[^>]* width=.([\d.]+)pt. height=.([\d.]+)pt.", svg)
    assert size is not None
    return round(float(size[1]) * 96 / 72), round(float(size[2]) * 96 / 72)


# What a figure's colours become on a dark background. Dark and light swap; the palette's colours keep their hue and
# become lighter where the contrast would be too low.
_DARK_GROUND = "#161a20"
_DARK = {
    "#ffffff": _DARK_GROUND,
    "#000000": "#e8eaed",
    "#0072b2": "#4aa8e0",
    "#d55e00": "#f08a4b",
    "#009e73": "#2fbf95",
    "#7f7f7f": "#9aa1ab",
}
_COLOUR = re.compile(r"(fill|stroke):(#[0-9a-f]{6})\b")


def _dark_style(svg: str) -> str:
    """One rule per colour of ``svg``. Matplotlib writes colours inline, hence ``!important``."""
    rules = []
    for prop, colour in sorted(set(_COLOUR.findall(svg))):
        dark = _DARK.get(colour) or _mirrored_grey(colour)
        if dark:
            rules.append(f'[style*="{prop}:{colour}"]{{{prop}:{dark} !important}}')
    # Glyph outlines and some markers set no fill and would stay black.
    rules.append(f"svg{{background:{_DARK_GROUND};fill:#e8eaed}}")
    return f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}}}</style>"


def _mirrored_grey(colour: str) -> str | None:
    """A grey as far from the dark background as it was from white; None for other colours."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    if max(red, green, blue) - min(red, green, blue) > 8:
        return None
    towards_text = 1 - (red + green + blue) / (3 * 255)
    ground, text = (0x16, 0x1A, 0x20), (0xE8, 0xEA, 0xED)
    return "#" + "".join(f"{round(g + (t - g) * towards_text):02x}" for g, t in zip(ground, text, strict=True))
