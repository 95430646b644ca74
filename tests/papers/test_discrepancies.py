"""The register of discrepancies as data: every entry is complete, and an invalid file is refused with a clear error."""

import re
from pathlib import Path

import pytest

from transnormer_lib.ledger import claims
from transnormer_lib.papers import catalogue, discrepancies, settings
from transnormer_lib.show.formulas import text_with_math

CITED = re.compile(r"\b[\w.-]+/[\w.-]+@[0-9a-f]{7,}\b")
SUBJECTS = catalogue.papers()["transnormer"].subjects
ENTRY = "- {id: %s, locus: Table 1, says: x, evidence: y, settled: z, code: ['a.py:f'], %s}\n"


def test_every_entry_can_be_shown() -> None:
    for entry in discrepancies.load("transnormer"):
        for text in (entry.says, entry.released, entry.evidence, entry.settled, entry.no_flag):
            assert not text or text_with_math(text)


def test_every_subject_has_entries_in_the_order_of_the_register() -> None:
    subjects = [entry.subject for entry in discrepancies.load("transnormer")]
    assert list(dict.fromkeys(subjects)) == SUBJECTS


def test_every_text_about_released_code_cites_a_repository_and_commit() -> None:
    for entry in discrepancies.load("transnormer"):
        assert not entry.released or CITED.search(entry.released), entry.id


@pytest.mark.parametrize(
    "text", ["OpenNLPLab/lra, a later commit", "before 38fa81f", "OpenNLPLab/lra@main", "a@dd871ef"]
)
def test_a_text_without_repository_or_commit_is_not_a_citation(text: str) -> None:
    assert not CITED.search(text)


@pytest.mark.parametrize("source", [settings.SCRIPTS, settings.SKYFORMER])
def test_settings_from_code_cite_a_commit(source: str) -> None:
    assert CITED.fullmatch(source)
    assert source in {one.source for one in settings.load("transnormer")}


def test_every_source_of_settings_that_is_code_has_a_constant() -> None:
    assert {s.source for s in settings.load("transnormer") if "@" in s.source} == {settings.SCRIPTS, settings.SKYFORMER}


def test_every_claim_that_an_entry_names_is_in_the_ledger() -> None:
    known = set(claims.by_id(claims.load()))
    named = {claim for entry in discrepancies.load("transnormer") for claim in entry.claims}
    assert named - known == set()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"sizes": 2 * (ENTRY % ("a", "flag: f"))}, "id='a': used twice, in sizes.yaml and in sizes.yaml"),
        ({"sizes": ENTRY % ("a", "flag: f"), "norms": ENTRY % ("a", "flag: f")}, "in sizes.yaml and in norms.yaml"),
        ({"sizes": ENTRY % ("a", "inferred: true")}, "sizes.yaml: entry 1: flag=''"),
        ({"sizes": ENTRY % ("a", "flag: f, no_flag: g")}, "flag='f': an entry has either"),
        ({"sizes": ENTRY % ("a", "flag: f, effect: g")}, "effect"),
        ({"shapes": ENTRY % ("a", "flag: f")}, "shapes.yaml: no such subject; did you mean 'sizes'?"),
        ({"sizes": (ENTRY % ("a", "flag: f")).replace("a.py:f", "a.py")}, "code"),
    ],
    ids=["twice", "twice-in-two-files", "no-flag", "both-flags", "unknown-field", "unknown-subject", "no-place"],
)
def test_an_invalid_register_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)):
        discrepancies.read(tmp_path, "gau", SUBJECTS)


def test_a_setting_without_a_value_at_its_source_is_refused() -> None:
    assert settings.said("transnormer", "Table 13", "autoregressive", "glu") == 2048
    with pytest.raises(ValueError, match=r"name='glu': Section 5\.1 gives no value of it for the autoregressive model"):
        settings.said("transnormer", "Section 5.1", "autoregressive", "glu")
