"""A parameter is used as given or refused in one line: never ignored, never converted."""

from pathlib import Path
from typing import Any

import pytest
from project_factory import make_project, write_notebook

from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report.parameters import parse, resolve

CELL = """
scale: str = "quick"  # the preset
seeds: list[int] = [0, 1]  # one run each
rate: float = 0.5  # a share
task: Literal["causal", "masked"] = "causal"  # what is learnt
limit: int | None = None  # how many, or all
flag: bool = False  # whether
"""


def project(tmp_path: Path, yaml: str) -> Project:
    made = make_project(tmp_path, {"01_a": ["1"]}, {"01_a": yaml})
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb", ["1"], parameters=CELL)
    return made


def test_defaults_stand_where_the_preset_is_silent(tmp_path: Path) -> None:
    assert resolve(project(tmp_path, "seeds: [7]"), "quick", "01_a") == {
        "scale": "quick",
        "seeds": [7],
        "rate": 0.5,
        "task": "causal",
        "limit": None,
        "flag": False,
    }


@pytest.mark.parametrize("yaml", ["", "# nothing\n"], ids=["empty", "comment"])
def test_an_empty_file_changes_nothing(yaml: str, tmp_path: Path) -> None:
    assert resolve(project(tmp_path, yaml), "quick", "01_a")["seeds"] == [0, 1]


def test_a_list_that_is_empty_in_the_notebook_may_be_empty(tmp_path: Path) -> None:
    made = make_project(tmp_path, {"01_a": ["1"]}, {"01_a": "others: []\nwaypoints: []"})
    cell = (
        'scale: str = "quick"  # the preset\nothers: list[str] = []  # more\nwaypoints: list[float] = [0.5]  # shares'
    )
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb", ["1"], parameters=cell)
    assert resolve(made, "quick", "01_a") == {"scale": "quick", "others": [], "waypoints": []}


def test_a_whole_number_serves_as_a_float(tmp_path: Path) -> None:
    assert resolve(project(tmp_path, "rate: 1"), "quick", "01_a")["rate"] == 1


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("seed: [1]", "seed=[1]: no such parameter; did you mean 'seeds'?"),
        ("qqqqqqqq: 1", "no such parameter; must be one of scale, seeds"),
        ("seeds: 3", "seeds=3: must be list[int]"),
        ("seeds: ['1']", "seeds=['1']: must be list[int]"),
        ("rate: true", "rate=True: must be float"),
        ("rate: '0.5'", "rate='0.5': must be float"),
        ("task: sorting", "task='sorting': must be Literal['causal', 'masked']"),
        ("limit: 2.5", "limit=2.5: must be int | None"),
        ("flag: 1", "flag=1: must be bool"),
        ("seeds: []", "seeds=[]: must hold at least one, as in the notebook"),
        ("seeds: [3, 4, 3]", "seeds=[3, 4, 3]: holds a value twice"),
        ("seeds: [0, 1180591620717411303424]", "seeds=1180591620717411303424: must be at most 1000000000"),
        ("limit: 1000000000000", "limit=1000000000000: must be at most 1000000000"),
        ("seeds: [-1]", "seeds=-1: must be a whole number of at least 0"),
        ("rate: .nan", "rate=nan: must be a finite number and not negative"),
        ("rate: 1.0e+300", "rate=1e+300: must be at most 1000000000"),
        ("scale: paper", "scale='paper': the preset's is 'quick'"),
        ("- 1", "must map names to values"),
        ("seeds: [1", "not valid YAML"),
    ],
    ids=lambda value: value if len(value) < 20 else "",
)
def test_a_mistake_is_one_line_with_name_value_and_rule(yaml: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserMistake) as caught:
        resolve(project(tmp_path, yaml), "quick", "01_a")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_number_of_layers_has_a_bound_of_its_own(tmp_path: Path) -> None:
    made = make_project(tmp_path, {"01_a": ["1"]}, {"01_a": "lstm_layers: 1000000"})
    cell = 'scale: str = "quick"  # the preset\nlstm_layers: int = 3  # of the LSTM'
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb", ["1"], parameters=cell)
    with pytest.raises(UserMistake, match="lstm_layers=1000000: must be at most 1000"):
        resolve(made, "quick", "01_a")


def extended(tmp_path: Path, ours: str, theirs: str = "{size: 7, theirs: 8}", third: str = "size: 9") -> dict[str, Any]:
    """What ``01_a`` gets; its parameters are those of ``02_b`` and ``03_c``, ``base_size`` and ``mine``."""
    made = make_project(
        tmp_path, {name: ["1"] for name in ("01_a", "02_b", "03_c")}, {"01_a": ours, "02_b": theirs, "03_c": third}
    )
    cell = 'scale: str = "quick"  # the preset\nsize: int = 1  # shared'
    for name, more in {"01_a": "base_size: int = 2\nmine: int = 3", "02_b": "theirs: int = 4", "03_c": ""}.items():
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", ["1"], parameters=f"{cell}\n{more}")
    return resolve(made, "quick", "01_a")


@pytest.mark.parametrize(
    ("yaml", "size", "base_size"),
    [
        ("extends: 02_b", 7, 2),
        ("{extends: 02_b, size: 5}", 5, 2),
        ("extends: {02_b: base_}", 1, 7),
        ("extends: {02_b: '', 03_c: base_}", 7, 9),
        ("extends: {02_b: '', 03_c: ''}", 7, 2),
        ("extends: {03_c: '', 02_b: ''}", 9, 2),
    ],
    ids=["shared", "own before shared", "prefix", "two", "first named", "first named, turned"],
)
def test_a_notebook_extends_another_in_the_parameters_that_both_have(
    yaml: str, size: int, base_size: int, tmp_path: Path
) -> None:
    assert extended(tmp_path, yaml) == {"scale": "quick", "size": size, "base_size": base_size, "mine": 3}


def test_a_value_is_taken_over_through_a_chain(tmp_path: Path) -> None:
    assert extended(tmp_path, "extends: 02_b", theirs="extends: 03_c")["size"] == 9


def test_of_a_mapping_that_is_taken_over_each_entry_counts_on_its_own(tmp_path: Path) -> None:
    yaml = {"01_a": "{extends: 02_b, rates: {b: 5.0, c: 3.0}}", "02_b": "rates: {a: 1.0, b: 2.0}"}
    made = make_project(tmp_path, {name: ["1"] for name in yaml}, yaml)
    for name in yaml:
        cell = 'scale: str = "quick"  # the preset\nrates: dict[str, float] = {}  # by row'
        write_notebook(tmp_path / "notebooks" / f"{name}.ipynb", ["1"], parameters=cell)
    assert resolve(made, "quick", "01_a")["rates"] == {"a": 1.0, "b": 5.0, "c": 3.0}
    assert resolve(made, "quick", "02_b")["rates"] == {"a": 1.0, "b": 2.0}


@pytest.mark.parametrize(
    ("yaml", "theirs", "message"),
    [
        ("extends: 02_c", "", "extends='02_c': no such notebook; did you mean"),
        ("extends: 02_b", "extends: 01_a", "extends: goes in a circle, 01_a -> 02_b -> 01_a"),
        ("extends: 5", "", "extends=5: must be a notebook, or map notebooks to prefixes"),
        ("extends: [02_b]", "", "extends=['02_b']: must be a notebook"),
        ("extends: {02_b: 3}", "", "extends={'02_b': 3}: must be a notebook"),
        ("extends: {2: base_}", "", "extends={2: 'base_'}: must be a notebook"),
        ("extends: 02_b", "sise: 3", "params/quick/02_b.yaml: sise=3: no such parameter; did you mean 'size'?"),
    ],
)
def test_a_wrong_extends_is_refused_in_one_line(yaml: str, theirs: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserMistake) as caught:
        extended(tmp_path, yaml, theirs)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("size = 3", "must be 'name: type = default  # comment'"),
        ("size: int", "must be 'name: type = default  # comment'"),
        ("import os", "must be 'name: type = default  # comment'"),
        ("size: int = 'three'", "size='three': must be int"),
        ("size: int = print(3)", "parameter size"),
        ("size: Number = 3", "parameter size"),
    ],
)
def test_a_parameters_cell_holds_typed_literals_only(cell: str, message: str) -> None:
    with pytest.raises(UserMistake) as caught:
        parse(cell, "01_a")
    assert message in str(caught.value)


@pytest.mark.parametrize("count", [0, 2])
def test_a_notebook_has_exactly_one_parameters_cell(count: int, tmp_path: Path) -> None:
    import nbformat

    made = project(tmp_path, "")
    path = tmp_path / "notebooks" / "01_a.ipynb"
    notebook = nbformat.read(path, as_version=4)
    tagged = notebook.cells.pop(1)
    for number in range(count):
        notebook.cells.insert(1, nbformat.from_dict({**tagged, "id": f"p{number}"}))
    nbformat.write(notebook, path)
    with pytest.raises(UserMistake, match=f"has {count} cells tagged 'parameters', needs exactly one"):
        resolve(made, "quick", "01_a")


@pytest.mark.parametrize(
    ("preset", "only", "message"),
    [
        ("quik", None, "preset='quik': unknown; did you mean 'quick'?"),
        ("quick", ["07"], "only='07': no such notebook"),
        ("quick", ["01_b"], "did you mean '01_a'?"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(
    preset: str, only: list[str] | None, message: str, tmp_path: Path
) -> None:
    made = project(tmp_path, "")
    with pytest.raises(UserMistake) as caught:
        (made.preset(preset), made.select(only))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "scale", "own"),
    [("mine", "paper", "quick"), ("mine", "night", "quick"), ("night", "paper", "night"), ("quick", "gpu", "quick")],
)
def test_no_preset_claims_the_scale_of_another(name: str, scale: str, own: str, tmp_path: Path) -> None:
    made = project(tmp_path, "steps: 2")
    preset = tmp_path / "params" / name / "preset.yaml"
    preset.parent.mkdir(exist_ok=True)
    sound = (tmp_path / "params" / "quick" / "preset.yaml").read_text()
    preset.write_text(sound.replace("scale: quick", f"scale: {scale}"))
    with pytest.raises(UserMistake) as caught:
        made.preset(name)
    assert str(caught.value) == f"params/{name}/preset.yaml: scale={scale!r}: must be {own!r} in preset {name!r}"
    preset.write_text(sound.replace("scale: quick", f"scale: {own}"))
    assert made.preset(name).scale == own


@pytest.mark.parametrize(("device", "on_cpu"), [("cpu", True), ("gpu", False)])
def test_a_cpu_preset_keeps_training_off_the_gpu(device: str, on_cpu: bool, tmp_path: Path) -> None:
    preset = tmp_path / "params" / "quick" / "preset.yaml"
    made = project(tmp_path, "")
    preset.write_text(preset.read_text().replace("device: cpu", f"device: {device}"))
    environment = made.preset("quick").environment
    assert (environment.get("ACCELERATE_USE_CPU") == "true") is on_cpu
    assert environment["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("name", ["controls", "scores_tasks"])
def test_a_study_may_do_without_matched_controls_and_without_scores(tmp_path: Path, name: str) -> None:
    cell = f'scale: str = "quick"  # the preset\n{name}: list[str] = ["linear-matched"]  # others'
    project = make_project(tmp_path, {}, {"01_a": f"{name}: []\n"})
    write_notebook(tmp_path / "notebooks" / "01_a.ipynb", ["1"], cell)
    assert resolve(project, "quick", "01_a")[name] == []
