"""Claims as data: the package's own are well formed, and every broken entry is refused with its place and reason."""

from pathlib import Path

import pytest

from transnormer_lib.ledger import claims
from transnormer_lib.show.formulas import text_with_math

GOOD = {
    "id": "a-claim",
    "paper": "transnormer",
    "locus": "Table 1",
    "statement": "'A statement with $x^2$.'",
    "kind": "number",
    "published": "4.98",
    "tolerance": "0.05",
    "decided_at": "quick",
    "notebook": "01_gradient_theory",
}


def write(folder: Path, *entries: dict[str, str], name: str = "01_gradient_theory") -> Path:
    text = "".join("- " + "\n  ".join(f"{key}: {value}" for key, value in e.items()) + "\n" for e in entries)
    (folder / f"{name}.yaml").write_text(text)
    return folder


def test_the_package_claims_load_and_their_statements_can_be_shown() -> None:
    loaded = claims.load()
    assert loaded
    assert len({claim.id for claim in loaded}) == len(loaded)
    for claim in loaded:
        assert text_with_math(claim.statement)


def test_a_well_formed_claim_loads_with_its_fields(tmp_path: Path) -> None:
    (claim,) = claims.load(write(tmp_path, GOOD))
    assert (claim.id, claim.published, claim.tolerance, claim.timing) == ("a-claim", 4.98, 0.05, False)


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
        ({"notebook": "gradient theory"}, "notebook='gradient theory'"),
        ({"notebook": "1_theory"}, "notebook='1_theory'"),
        ({"id": "Not An Id"}, "id='Not An Id'"),
        ({"statement": "' '"}, "statement=' '"),
        ({"locus": None}, "locus: Field required"),
        ({"colour": "red"}, "colour='red'"),
        ({"timing": "'yes'"}, "timing='yes'"),
    ],
    ids=lambda value: "-".join(value) + "=" + str(next(iter(value.values()))) if isinstance(value, dict) else "",
)
def test_a_broken_claim_is_refused_naming_file_claim_and_field(
    tmp_path: Path, change: dict[str, str | None], named: str
) -> None:
    entry = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=r"01_gradient_theory\.yaml: claim ") as error:
        claims.load(write(tmp_path, entry))
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_an_id_used_in_two_files_is_refused_naming_both(tmp_path: Path) -> None:
    write(tmp_path, GOOD, name="01_one")
    write(tmp_path, GOOD, name="02_two")
    with pytest.raises(ValueError, match=r"id='a-claim': used twice, in 01_one.yaml and in 02_two.yaml"):
        claims.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "named"),
    [("a: 1", "must hold a list"), ("- just text", "must be a mapping"), ("- [", "not valid YAML")],
    ids=["mapping", "text", "broken"],
)
def test_a_file_that_is_no_list_of_claims_is_refused(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "01_file.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"01_file\.yaml") as error:
        claims.load(tmp_path)
    assert named in str(error.value)


def test_claims_keep_the_order_of_their_file_and_notebooks_their_number(tmp_path: Path) -> None:
    later = {**GOOD, "notebook": "02_other"}
    write(tmp_path, {**later, "id": "z"}, {**GOOD, "id": "c"}, {**GOOD, "id": "b"}, name="99_mixed")
    assert [claim.id for claim in claims.load(tmp_path)] == ["c", "b", "z"]
