"""The figure of Table 5's leads shows what it is given."""

from transnormer_lib.studies.glue import figures as draw


def test_the_leads_have_a_line_per_column_and_one_for_the_average() -> None:
    by_row = {row: {"QQP": 1.0, "CoLA": -2.0} for row in ("transnormer-t1", "transnormer-t2")}
    average = dict.fromkeys(by_row, 0.5)
    (axes,) = draw.leads(by_row, {"QQP": 0.3, "CoLA": None}, average).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["QQP", "CoLA", "average"]
    assert len(axes.patches) == 1  # a bar where there is an error
    points = [line for line in axes.lines if line.get_label().startswith("TransNormer")]
    assert [list(line.get_xdata()) for line in points] == [[1.0, -2.0, 0.5]] * 2
