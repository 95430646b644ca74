"""Figures that a visitor moves in a real browser: they say what Python computes, by mouse and by keyboard alone."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser_factory import Open

from transnormer_lib.studies.gradient_theory import row_of_scores
from transnormer_lib.studies.speed import costs

pytestmark = pytest.mark.browser

FIGURES = {
    "scores": ("01_gradient_theory", "fig-one-row"),
    "maps": ("03_attention_dilution", "fig-figure-2b"),
    "cost": ("08_speed", "fig-cost"),
}
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


class Moved:
    """A page's figure that can be moved."""

    def __init__(self, report: Path, kind: str, visit: Open, **options: Any) -> None:
        name, anchor = FIGURES[kind]
        path = report / f"{name}.html"
        if not path.exists() or "data-movable" not in path.read_text():
            pytest.skip(f"the report has no results of {name}")
        self.visit = visit(path, **options)
        self.page = self.visit.page
        self.figure = self.page.locator(f"#{anchor}")
        self.figure.scroll_into_view_if_needed()
        self.data = json.loads(str(self.figure.get_attribute("data-values")))

    @property
    def says(self) -> str:
        return str(self.figure.locator(".tn-live").inner_text())

    def slide(self, label: str, value: float) -> None:
        self.figure.get_by_label(label, exact=True).fill(str(value))

    def choose(self, label: str, option: str) -> None:
        self.figure.get_by_label(label, exact=True).select_option(label=option)

    def drawn(self) -> list[str]:
        return [one.inner_html() for one in self.figure.locator("svg[role=img]").all()]

    def described(self) -> list[str]:
        return [str(one.get_attribute("aria-label")) for one in self.figure.locator("svg[role=img]").all()]


def number(text: str) -> float:
    """A number as a page writes it: 0.139, 10,000, 1.67 · 10⁵, 10⁻⁸."""
    front, _, power = text.replace(",", "").replace("−", "-").partition(" · ")
    if raised := re.fullmatch(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", power or front):
        return (float(front) if power else 1.0) * 10.0 ** int(raised[1].translate(POWERS))
    return float(front)


def after(label: str, text: str) -> float:
    """The number that follows a label."""
    found = re.search(rf"{re.escape(label)}: (\d[\d.,]*(?: · 10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]*))", text)
    assert found is not None, (label, text)
    return number(found[1].rstrip(",."))


MOVES = {"scores": ("score 2", 0.05), "cost": ("tokens", 12)}


@pytest.mark.parametrize("kind", MOVES)
def test_a_slider_moves_the_drawing_and_what_it_says(kind: str, report: Path, visit: Open) -> None:
    moved = Moved(report, kind, visit)
    drawn, said, described = moved.drawn(), moved.says, moved.described()
    moved.slide(*MOVES[kind])
    assert moved.says != said
    assert all(a != b for a, b in zip(drawn, moved.drawn(), strict=True))
    assert all(a != b for a, b in zip(described, moved.described(), strict=True))
    moved.visit.check()


@pytest.mark.parametrize(("size", "eps"), [(-2.0, -8), (-6.0, -8), (0.5, -8), (-4.0, -3)])
def test_the_derivatives_of_a_row_are_pythons(size: float, eps: int, report: Path, visit: Open) -> None:
    moved = Moved(report, "scores", visit)
    relative = [0.5, *moved.data["scores"][1:]]
    moved.slide("score 1", 0.5)
    moved.slide("all scores times", size)
    moved.slide("RMSNorm’s ε", eps)
    expected = row_of_scores.rows(10.0**size * torch.tensor(relative, dtype=torch.float64), 10.0**eps)
    weights = moved.described()[0].removesuffix(".")
    for name, row in expected.items():
        label = moved.data["styles"][name]["label"]
        assert after(label, moved.says) == pytest.approx(row.derivative, rel=6e-3), label
        listed = weights.partition(f"{label} ")[2].partition(";")[0].split(", ")
        assert [number(text) for text in listed] == pytest.approx(row.weights.tolist(), rel=6e-3)


def test_scores_near_zero_leave_only_the_scaled_derivative_without_a_bound(report: Path, visit: Open) -> None:
    moved = Moved(report, "scores", visit)
    labels = {name: style["label"] for name, style in moved.data["styles"].items()}
    found = []
    for size in (-4.0, -5.0, -6.0):
        moved.slide("all scores times", size)
        found.append({name: after(label, moved.says) for name, label in labels.items()})
    assert all(one["softmax"] <= 0.25 for one in found)
    assert all(one["norm"] <= 10.0**4 for one in found)
    assert found[2]["linear"] == pytest.approx(100 * found[0]["linear"], rel=0.02)


@pytest.mark.parametrize(("tokens", "width"), [(10, 64), (4, 32), (13.625, 512), (16, 128)])
def test_the_operations_are_the_exact_counts(tokens: float, width: int, report: Path, visit: Open) -> None:
    moved = Moved(report, "cost", visit)
    moved.slide("tokens", tokens)
    moved.choose("width (2 heads)", str(width))
    counted = moved.says.partition("Milliseconds")[0]
    for row, one in zip(costs.ROWS, moved.data["rows"], strict=True):
        assert after(one["label"], counted) == costs.operations(row, width).at(round(2**tokens))
    crossing = costs.fewer_from("transnormer-t2", "vanilla", width)
    assert f"fewer from {crossing} tokens on" in counted


def test_times_are_those_measured_interpolated_between_and_never_beyond(report: Path, visit: Open) -> None:
    moved = Moved(report, "cost", visit)
    (near, low), (far, high) = moved.data["rows"][0]["seconds"]["inference"][:2]
    for tokens, expected in ((near, low), (far, high), ((near * far) ** 0.5, (low * high) ** 0.5)):
        power = round(8 * np.log2(tokens)) / 8
        moved.slide("tokens", power)
        said = moved.says.partition("in inference")[2].partition("In training")[0]
        assert after("vanilla", said) == pytest.approx(1e3 * expected, rel=0.02)
    moved.slide("tokens", 4)
    assert moved.says.count("not measured at this length") == 2


@pytest.mark.parametrize("head", ["mean of all", "2"])
def test_a_head_s_curve_is_that_of_its_map(head: str, report: Path, visit: Open) -> None:
    moved = Moved(report, "maps", visit)
    moved.choose("head", head)
    before, last = moved.drawn(), moved.data["models"][-1]
    moved.choose("model", last["label"])
    moved.choose("layer", str(len(last["heads"])))
    assert all(a != b for a, b in zip(before, moved.drawn(), strict=True))
    first, count = sum(last["heads"][:-1]), last["heads"][-1]
    curves = np.frombuffer(base64.b64decode(last["sizes"]), "<u2").reshape(-1, 100) / 65535
    curve = curves[first : first + count].mean(0) if head == "mean of all" else curves[first + int(head) - 1]
    assert f"Area under the curve {1 - np.trapezoid(curve, dx=1 / 99):.3f};" in moved.says
    assert all(last["label"] in words for words in moved.described())


@pytest.mark.parametrize("kind", FIGURES)
def test_without_scripts_and_on_paper_the_still_picture_stands_alone(kind: str, report: Path, visit: Open) -> None:
    still = Moved(report, kind, visit, scripts=False)
    assert still.figure.locator("img").is_visible()
    assert still.figure.locator("input, select, .tn-moves").count() == 0
    moved = Moved(report, kind, visit)
    assert moved.figure.locator("img").is_visible() == (kind == "maps")
    moved.page.emulate_media(media="print")
    assert moved.figure.locator("img").is_visible()
    assert not moved.figure.locator(".tn-moves").is_visible()


@pytest.mark.parametrize("kind", FIGURES)
def test_every_control_has_a_name_and_is_moved_by_the_keyboard_alone(kind: str, report: Path, visit: Open) -> None:
    moved = Moved(report, kind, visit)
    controls = moved.figure.locator("input, select")
    controls.first.focus()
    for place in range(controls.count()):
        here = controls.nth(place)
        assert here.evaluate("(one) => one === document.activeElement && one.labels.length === 1")
        value, is_list = here.input_value(), here.evaluate("(one) => one.tagName === 'SELECT'")
        moved.page.keyboard.press("ArrowDown" if is_list else "ArrowLeft")
        assert here.input_value() != value
        moved.page.keyboard.press("Tab")
    moved.visit.check()


@pytest.mark.parametrize("kind", FIGURES)
def test_on_a_phone_it_fits_and_a_place_on_its_slider_can_be_touched(kind: str, report: Path, visit: Open) -> None:
    moved = Moved(report, kind, visit, width=390)
    wide = "(one) => Math.max(...[...one.querySelectorAll('.tn-moves *')].map((n) => n.getBoundingClientRect().right))"
    assert moved.figure.evaluate(wide) <= 390
    if kind in MOVES:
        said = moved.says
        slider = moved.figure.locator("input").first
        box = slider.bounding_box()
        slider.click(position={"x": 0.2 * box["width"], "y": box["height"] / 2})
        assert moved.says != said
