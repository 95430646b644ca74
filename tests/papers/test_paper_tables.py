"""The published tables: the paper's own arithmetic checks the transcription, and lookups are exact."""

from pathlib import Path

import pytest

from transnormer_lib.papers import catalogue, tables


def test_tables_1_to_12_are_there_and_consistent() -> None:
    assert tables.names("transnormer") == tuple(f"table_{n}" for n in range(1, 13))
    for name in tables.names("transnormer"):
        table = tables.load("transnormer", name)
        assert table.locus == f"Table {name.removeprefix('table_')}"
        assert any(column.published for column in table.columns)


def test_the_glue_averages_follow_from_their_columns_with_a_missing_value_as_zero() -> None:
    for row in tables.load("transnormer", "table_5").records():
        scores = [row[name] or 0.0 for name in ("mnli_m", "mnli_mm", "qnli", "qqp", "sst2", "mrpc", "cola")]
        assert sum(scores) / 7 == pytest.approx(row["avg"], abs=0.006), row["method"]


def test_the_long_range_arena_averages_follow_from_their_columns() -> None:
    for row in tables.load("transnormer", "table_6").records():
        scores = [row[name] for name in ("text", "listops", "retrieval", "pathfinder", "image")]
        assert sum(scores) / 5 == pytest.approx(row["avg"], abs=0.006), row["model"]


def test_the_default_structure_has_the_same_value_in_every_table() -> None:
    for t1, row in (
        ("table_8", {"diag_layers": 6}),
        ("table_9", {"early": "DiagAttention"}),
        ("table_10", {"feed_forward": "GLU"}),
        ("table_11", {"block_size": 64}),
        ("table_12", {"approach": "TransNormer"}),
    ):
        assert tables.load("transnormer", t1).value("t1", **row) == 3.82
        assert tables.load("transnormer", t1).value("t2", **row) == 3.81


def test_speeds_fall_with_length() -> None:
    for row in tables.load("transnormer", "table_7").records():
        for phase in ("infer", "train"):
            speeds = [row[f"{phase}_{k}k"] for k in range(1, 6) if row[f"{phase}_{k}k"] is not None]
            assert speeds == sorted(speeds, reverse=True), row["model"]


@pytest.mark.parametrize(
    ("column", "labels", "named"),
    [
        ("ppl", {"method": "1+elu"}, "column='ppl': Table 1 has method, ppl_val"),
        ("ppl_val", {"method": "elu"}, "0 rows have"),
        ("ppl_val", {}, "3 rows have"),
        ("ppl_val", {"methods": "1+elu"}, "column='methods'"),
    ],
    ids=["column", "row", "ambiguous", "label"],
)
def test_a_lookup_without_exactly_one_match_is_refused(column: str, labels: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match="Table 1") as error:
        tables.load("transnormer", "table_1").value(column, **labels)
    assert named in str(error.value)


def test_an_unknown_table_is_refused_naming_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"name='table_99': no such table; did you mean 'table_9'"):
        tables.load("transnormer", "table_99")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("4.98", "'4.98'", "must be a number"),
        ("4.98", "null", "must be a number"),
        ("'1+elu', 4.98", "'1+elu'", "has 1 cells for 2 columns"),
        ("id: table_1", "id: table_2", "must be the file's name"),
        ("better: lower", "better: up", "better"),
    ],
    ids=["text", "gap", "short-row", "id", "direction"],
)
def test_a_broken_table_is_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = (catalogue.folder("transnormer") / "tables" / "table_1.yaml").read_text()
    assert old in text
    (tmp_path / "table_1.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=r"table_1\.yaml") as error:
        tables.read(tmp_path / "table_1.yaml", "transnormer")
    assert named in str(error.value)
