"""Claims as data: the package's own are well formed, and every broken entry is refused with its place and reason."""

from pathlib import Path

import pytest
from project_factory import make_project

from transnormer_lib.ledger import claims
from transnormer_lib.project import Project
from transnormer_lib.show.formulas import text_with_math

STUDIES = {"one": "01_one", "two": "02_two"}
GOOD = {
    "id": "a-claim",
    "locus": "Table 1",
    "statement": "'A statement with $x^2$.'",
    "kind": "number",
    "published": "4.98",
    "tolerance": "0.05",
    "decided_at": "quick",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose notebooks are 01_one and 02_two."""
    return make_project(tmp_path / "project", dict.fromkeys(STUDIES.values(), ()))


def write(folder: Path, *entries: dict[str, str], study: str = "one", paper: str = "transnormer") -> Path:
    text = "".join("- " + "\n  ".join(f"{key}: {value}" for key, value in e.items()) + "\n" for e in entries)
    return write_file(folder, f"paper: {paper}\nclaims:\n{text}", study)


def write_file(folder: Path, text: str, study: str = "one") -> Path:
    (folder / study).mkdir(exist_ok=True)
    (folder / study / "claims.yaml").write_text(text)
    return folder


def test_the_package_claims_load_and_their_statements_can_be_shown() -> None:
    loaded = claims.load()
    assert loaded
    assert len({claim.id for claim in loaded}) == len(loaded)
    for claim in loaded:
        assert text_with_math(claim.statement)


def test_a_well_formed_claim_loads_with_its_fields(tmp_path: Path, project: Project) -> None:
    (claim,) = claims.load(write(tmp_path, GOOD), project)
    assert (claim.id, claim.published, claim.tolerance, claim.timing) == ("a-claim", 4.98, 0.05, False)
    assert (claim.paper, claim.notebook) == ("transnormer", "01_one")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tolerance": None}, "tolerance: a claim of kind 'number' needs an explicit tolerance"),
        ({"tolerance": "-0.1"}, "tolerance=-0.1"),
        ({"tolerance": ".nan"}, "tolerance=nan"),
        ({"published": "null"}, "published=None"),
        ({"published": "'4.98'"}, "published='4.98'"),
        ({"published": "true"}, "published=True"),
        ({"kind": "theorem"}, "tolerance=0.05: a claim of kind 'theorem' has none"),
        ({"kind": "guess"}, "kind='guess'"),
        ({"paper": "other"}, "paper='other'"),
        ({"decided_at": "never"}, "decided_at='never'"),
        ({"id": "Not An Id"}, "id='Not An Id'"),
        ({"statement": "' '"}, "statement=' '"),
        ({"locus": None}, "locus: Field required"),
        ({"colour": "red"}, "colour='red'"),
        ({"timing": "'yes'"}, "timing='yes'"),
    ],
    ids=lambda value: "-".join(value) + "=" + str(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_a_broken_claim_is_refused_naming_file_claim_and_field(
    tmp_path: Path, project: Project, change: dict[str, str | None], named: str
) -> None:
    entry = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=r"one/claims\.yaml: claim ") as error:
        claims.load(write(tmp_path, entry), project)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_an_id_used_in_two_files_is_refused_naming_both(tmp_path: Path, project: Project) -> None:
    write(tmp_path, GOOD, study="one")
    write(tmp_path, GOOD, study="two")
    with pytest.raises(ValueError, match=r"id='a-claim': used twice, in one/claims.yaml and in two/claims.yaml"):
        claims.load(tmp_path, project)


def test_claims_of_a_study_without_a_notebook_are_refused(tmp_path: Path, project: Project) -> None:
    with pytest.raises(ValueError, match=r"three/claims\.yaml: notebooks/ holds no NN_three\.ipynb"):
        claims.load(write(tmp_path, GOOD, study="three"), project)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("- a: 1", "must hold 'paper: NAME' and 'claims:', a list"),
        ("paper: gau\nclaims: {}", "must hold 'paper: NAME' and 'claims:', a list"),
        ("paper: gau\nclaims: [just text]", "must be a mapping"),
        ("- [", "not valid YAML"),
    ],
    ids=["list", "no-list", "text", "broken"],
)
def test_a_file_without_paper_and_claims_is_refused(tmp_path: Path, project: Project, text: str, named: str) -> None:
    with pytest.raises(ValueError, match=r"claims\.yaml") as error:
        claims.load(write_file(tmp_path, text), project)
    assert named in str(error.value)


def test_claims_keep_the_order_of_their_file_and_notebooks_their_number(tmp_path: Path) -> None:
    project = make_project(tmp_path / "project", {"02_a": (), "01_b": ()})
    write(tmp_path, {**GOOD, "id": "z"}, study="a")
    write(tmp_path, {**GOOD, "id": "c"}, {**GOOD, "id": "b"}, study="b")
    assert [claim.id for claim in claims.load(tmp_path, project)] == ["c", "b", "z"]


def test_only_where_there_is_a_plan_a_claim_can_come_after_it(tmp_path: Path, project: Project) -> None:
    folder = write(tmp_path, {**GOOD, "exploratory": "true"})
    with pytest.raises(ValueError, match=r"one/claims\.yaml: claim 'a-claim': exploratory=True: the study has no plan"):
        claims.load(folder, project)
    (folder / "one" / "plan_of_this.yaml").write_text("question: Why?\n")
    (claim,) = claims.load(folder, project)
    assert claim.exploratory
