"""From every number of README's answers and of the committed report to its record, and from there to the runs."""

import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from chaos_trials import Tried
from page_checks import Page

from transnormer_lib.analysis.seeds import paired_difference
from transnormer_lib.ledger import kept, theses
from transnormer_lib.ledger.claims import by_id, load
from transnormer_lib.ledger.kept import Kept
from transnormer_lib.ledger.theses import Answer
from transnormer_lib.ledger.values import rounded
from transnormer_lib.ledger.verdicts import FAILURES, VERDICTS, Judgement
from transnormer_lib.papers import discrepancies
from transnormer_lib.papers.catalogue import papers
from transnormer_lib.project import Project
from transnormer_lib.report import findings, front, index, readme
from transnormer_lib.report.terms import terms
from transnormer_lib.show import cards
from transnormer_lib.sums import is_whole
from transnormer_lib.training import carried

PROJECT = Project(Path(__file__).resolve().parents[2])
PUBLISHED = PROJECT.root / "reports" / "published"
README = (PROJECT.root / "README.md").read_text(encoding="utf-8")
CLAIMS = by_id(load())
ENTRIES: dict[str, dict[str, Any]] = {
    entry["id"]: entry for entry in json.loads((PUBLISHED / "claims.json").read_text(encoding="utf-8"))
}
ABOVE = [one for notebook in PROJECT.notebooks for one in kept.larger("quick", notebook, PROJECT)]
NUMBER = re.compile(r"(?<![\w.])\d(?:[\d,\u202f]*\d)?(?:\.\d+)?")


def answers() -> list[Answer]:
    """The theses' answers, from the committed ledger."""
    claims = tuple(CLAIMS.values())
    return [theses.answer(p, thesis, CLAIMS, ENTRIES) for p in papers() for thesis in theses.load(p, claims)]


def record(notebook: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PUBLISHED / "records" / f"{notebook}.json").read_text(encoding="utf-8"))
    return found


def numbers(text: str) -> list[str]:
    return NUMBER.findall(text)


def texts(value: Any) -> Iterator[str]:
    """All that a value of JSON holds, as text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)
    elif value is not None:
        yield str(value)


def test_readme_s_answers_are_those_of_the_committed_report(tried: Tried) -> None:
    begin, end = readme.marks("answers")
    written = README.split(begin)[1].split(end)[0].strip()
    assert written == readme.block(answers(), ABOVE), "run: make readme publish, on the same report"
    tried("number traced", len(numbers(written)))


def test_the_committed_answers_follow_from_the_committed_claims(tried: Tried) -> None:
    written = json.loads((PUBLISHED / "theses.json").read_text(encoding="utf-8"))
    assert written == theses.as_json(answers())
    tried("number traced", sum(len(numbers(text)) for text in texts(written)))


def test_readme_s_pictures_are_figures_of_the_committed_report(tried: Tried) -> None:
    for stem, (notebook, figure) in readme.PICTURES.items():
        page = (PUBLISHED / f"{notebook}.html").read_text(encoding="utf-8")
        found = re.search(rf'id="fig-{figure}".*?src="data:image/svg\+xml,([^"]+)"', page, re.DOTALL)
        assert found is not None, f"{notebook} shows no figure {figure}"
        drawn = (PROJECT.root / "docs" / "pictures" / f"{stem}.svg").read_text(encoding="utf-8")
        assert unquote(unescape(found[1])) == drawn, "run: make readme publish, on the same report"
        tried("number traced")


def _sources() -> set[str]:
    """Every number that index and found may show: of claims, theses, records, kept files and texts that we wrote."""
    found = answers()
    told: list[str] = [text for entry in ENTRIES.values() for text in texts(entry)]
    told += [text for one in found for text in (one.because, front.effect_text(one), front.published_text(one)) if text]
    told += [text for one in found for text in texts(one.thesis.model_dump())]
    told += [text for section in front.sections(found, ABOVE, CLAIMS) for text in (*section["sentences"],)]
    told += [text for paper in papers().values() for text in texts(paper.model_dump())]
    told += [text for one in ABOVE for text in texts(one.origin(CLAIMS))] + findings.how_sure(ABOVE)
    told += [text for notebook in PROJECT.notebooks for text in texts(record(notebook))]
    told += [text for notebook in PROJECT.notebooks for text in texts(_prose(notebook))]
    told += [text for term in terms() for text in texts(term.model_dump())]
    told += [text for entry in ENTRIES.values() for text in _row(entry)]
    told += [f"{record(notebook)['provenance']['wall_seconds']:.0f}" for notebook in PROJECT.notebooks]
    records = [record(notebook) for notebook in PROJECT.notebooks]
    told += [one["provenance"]["commit"][:12] for one in records]  # some are digits alone
    told += texts(index.run_facts(records, len(records)))
    told += _counts()
    return {number for text in told for number in numbers(text)}


def _row(entry: Mapping[str, Any]) -> Iterator[str]:
    """What a table shows of a claim."""
    measured, seeds = entry["measured"], entry["seeds"]
    interval = measured.get("interval") if isinstance(measured, Mapping) else None
    judgement = Judgement(entry["verdict"], measured, seeds and tuple(seeds), entry["reason"], interval)
    claim = CLAIMS[entry["id"]]
    yield from texts(cards.view(claim, judgement))
    yield from texts(cards.tried_text(claim, judgement))
    yield cards.claim_line(claim, judgement)


def _counts() -> list[str]:
    """How many claims, discrepancies and notebooks there are, and the ticks of the plots."""
    verdicts = Counter(entry["verdict"] for entry in ENTRIES.values())
    found = [len(ENTRIES), *verdicts.values(), len(ENTRIES) - verdicts["not run"] - verdicts["undecided"]]
    found.append(sum(verdicts[word] for word in FAILURES))
    for paper in papers():
        entries = discrepancies.load(paper)
        found += [len(entries), sum(bool(entry.flag) for entry in entries)]
    axes = [section["axis"] for section in front.sections(answers(), ABOVE, CLAIMS) if section["axis"]]
    ticks = ["".join(label for _, label in axis.ticks).lstrip("−") for axis in axes]  # a page's text joins them
    return [*map(str, found), *ticks]


def _prose(notebook: str) -> list[str]:
    cells = json.loads(PROJECT.notebook_path(notebook).read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]


@pytest.mark.parametrize("page", ["index", "found"])
def test_every_number_of_a_committed_page_has_a_source(page: str, tried: Tried) -> None:
    told = re.sub(
        r"The other \d+|\d+ of our own that failed", " ", Page(PUBLISHED / f"{page}.html").text
    )  # folded rows
    found, sources = numbers(told), _sources()
    assert len(found) > 50
    assert [number for number in found if number not in sources] == []
    tried("number traced", len(found))


def _words(html: str) -> str:
    """The text of a part of a page without its formulas and drawings; no tag joins two numbers."""
    html = re.sub(r"<(math|script|style|svg)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


# What a page counts of itself: its exhibits, its lines of code, its parameters and its claims.
COUNTED = re.compile(
    r"(?:Figure|Table) \d+\.\d+|(?:Code|Printed|defaults) \d+ lines|(?:The other|All) \d+ claims"
    rf"|(?<![\w.,])\d+ (?:claims:|parameters have|\S (?:{'|'.join(VERDICTS)}))"
)


# Of a comparison that a larger scale's kept one replaces in the ledger only the page has the p-value after Holm.
_P = r"([\d.]+(?:·10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?)"
HOLM = re.compile(rf"\bp (?:= )?{_P}[;,] (?:but )?{_P} among (\d+) orderings", re.IGNORECASE)
DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def _value(text: str) -> float:
    return float(text.replace("·10", "e").translate(DIGITS))


@pytest.mark.parametrize("notebook", PROJECT.notebooks)
def test_every_number_of_a_notebook_s_page_stands_in_what_was_executed_or_judged(notebook: str, tried: Tried) -> None:
    """In its executed notebook as it is committed, its record, its claims, the theses or a term."""
    executed = json.loads(gzip.decompress((PUBLISHED / f"{notebook}.ipynb.gz").read_bytes()))
    told = [text for cell in executed["cells"] for text in texts([cell["source"], cell.get("outputs", [])])]
    told += [unescape(re.sub(r"<[^>]+>", " ", text)) for text in told] + [*texts(record(notebook))]
    told += [text for entry in ENTRIES.values() if entry["notebook"] == notebook for text in _row(entry)]
    told += [text for entry in ENTRIES.values() if entry["notebook"] == notebook for text in texts(entry)]
    told += [text for one in ABOVE if one.notebook == notebook for text in texts(one.origin(CLAIMS))]
    for found in answers():
        told += texts([found.because, front.effect_text(found), front.published_text(found), found.thesis.model_dump()])
    told += [text for term in terms() for text in texts(term.model_dump())]
    told += [*texts(index.run_facts([record(notebook)], 1)), *_counts()]
    provenance = record(notebook)["provenance"]
    told += [f"{seconds:.0f}" for seconds in (provenance["wall_seconds"], sum(provenance.get("training", {}).values()))]
    own = {number.replace(",", "") for text in told for number in numbers(text)}
    page = _words((PUBLISHED / f"{notebook}.html").read_text(encoding="utf-8"))
    for p, corrected, members in HOLM.findall(page):
        assert 0.9 * _value(p) <= _value(corrected) <= 1.1 * int(members) * _value(p)
    shown = numbers(COUNTED.sub(" ", HOLM.sub(r"p \1", page)))
    assert len(shown) > 100
    assert [number for number in shown if number.replace(",", "") not in own] == []
    tried("number traced", len(shown))


LEDGER_ROW = re.compile(r'<tr id="claim-([^"]+)" [^>]*data-verdict="([^"]+)".*?</tr>', re.DOTALL)


def test_the_numbers_of_a_claim_s_row_in_the_committed_ledger_are_that_claim_s_own(tried: Tried) -> None:
    """Row by row, so that a number which stands in another claim's row is found."""
    page, seen = (PUBLISHED / "ledger.html").read_text(encoding="utf-8"), set()
    for row in LEDGER_ROW.finditer(page):
        name, verdict = row[1], row[2]
        entry = ENTRIES[name]
        own = {number for text in (*texts(entry), *_row(entry), name) for number in numbers(str(text))}
        shown = numbers(_words(row[0]))
        assert verdict == entry["verdict"]
        assert [number for number in shown if number not in own] == [], name
        seen.add(name)
        tried("number traced", len(shown))
    assert seen == ENTRIES.keys()


THESIS_ROW = re.compile(r'<details class="thesis" id="thesis-([^"]+)">(.*?)</div></details>', re.DOTALL)


def test_the_numbers_of_a_thesis_row_on_the_committed_index_are_that_thesis_own(tried: Tried) -> None:
    """Row by row, as in the ledger; the words of the page of findings are compared whole."""
    page, seen = (PUBLISHED / "index.html").read_text(encoding="utf-8"), set()
    rows = {row["id"]: row for section in front.sections(answers(), ABOVE, CLAIMS) for row in section["rows"]}
    for name, shown in THESIS_ROW.findall(page):
        told = {key: value for key, value in rows[name].items() if key != "plot"} | {"claims": len(rows[name]["parts"])}
        own = {number for text in texts(told) for number in numbers(text)}
        text = _words(shown)
        assert [number for number in numbers(text) if number not in own] == [], name
        assert (rows[name]["effect"] or "") in text
        seen.add(name)
        tried("number traced", len(numbers(text)))
    assert seen == rows.keys()


def test_the_words_of_found_are_those_of_the_answers(tried: Tried) -> None:
    text = Page(PUBLISHED / "found.html").text
    for paper in findings.found(answers()):
        told = [*(one.text for one in (*paper.told, *paper.own)), *paper.unsettled]
        assert [one for one in told if one not in text] == []
        tried("number traced", sum(len(numbers(one)) for one in told))


@pytest.mark.parametrize("notebook", PROJECT.notebooks)
def test_every_claim_leads_to_the_record_of_its_run_or_to_a_kept_file(notebook: str, tried: Tried) -> None:
    """A verdict of a run stands on a good record of its notebook at quick, a kept one is what the kept file says."""
    found = record(notebook)
    if "sha256" in found:  # records that were written before records had digests have none
        assert is_whole(found)
    assert (found["notebook"], found["preset"], found["status"]) == (notebook, "quick", "ok")
    assert re.fullmatch(r"[0-9a-f]{40}", found["provenance"]["commit"])
    larger = {e["id"]: e for one in ABOVE if one.notebook == notebook for e in one.claims if e["verdict"] != "not run"}
    for name, entry in ENTRIES.items():
        if entry["notebook"] != notebook:
            continue
        if entry["source"] == "kept":
            same = ("verdict", "scale", "measured", "seeds", *kept.JUDGED_BY)
            assert {key: entry[key] for key in same} == {key: larger[name][key] for key in same}
        else:
            assert (entry["source"], entry["scale"]) == ("run", "quick")
        tried("number traced", sum(len(numbers(text)) for text in texts(entry["measured"])))


COMPARED = [(one, entry) for one in ABOVE for entry in one.claims if "better" in list(texts(entry["measured"]))]


@pytest.mark.parametrize("one", ABOVE, ids=[one.notebook for one in ABOVE])
def test_the_interval_of_a_kept_comparison_follows_from_its_values(one: Kept, tried: Tried) -> None:
    for owner, entry in COMPARED:
        measured = entry["measured"]
        if owner is not one or "interval" not in measured:
            continue
        assert len(set(entry["seeds"])) == len(entry["seeds"]) == len(measured["better"]) == len(measured["worse"])
        sides = [paired_difference(measured["better"], measured["worse"], higher) for higher in (False, True)]
        found = [(rounded(side.mean), rounded(side.low), rounded(side.high)) for side in sides]
        assert (measured["difference"], *measured["interval"]) in found, entry["id"]
        tried("number traced", 3)


@pytest.mark.parametrize("one", ABOVE, ids=[one.notebook for one in ABOVE])
def test_the_values_of_a_kept_comparison_are_those_of_the_runs_of_its_seeds(one: Kept, tried: Tried) -> None:
    """A side whose first value is a loss or a score of a run of that seed has no value that is not.

    What was measured otherwise, as times and what weights do on other data, has its record in the kept claim alone.
    """
    scores: dict[int, set[float]] = {}
    for run in one.runs:
        points = [*run["validation"], *run.get("at_end", {}).values()]
        values = [value for point in points for value in point.values() if math.isfinite(value)]
        scores.setdefault(run["seed"], set()).update(rounded(f * value) for value in values for f in (1, 100))
    traced = 0
    for owner, entry in COMPARED:
        claim = CLAIMS.get(entry["id"])
        if owner is not one or claim is None or claim.timing or claim.rounds:
            continue
        assert set(entry["seeds"]) <= scores.keys(), entry["id"]
        for side in ("better", "worse"):
            own = [value in scores[s] for s, value in zip(entry["seeds"], entry["measured"][side], strict=True)]
            assert len(set(own)) == 1, (entry["id"], side, own)
            traced += sum(own)
    tried("number traced", traced)


def test_a_run_that_is_carried_as_well_says_the_same_there() -> None:
    """Of the same training: another of the same name took another time."""
    runs = carried.records(kept.folder(PROJECT) / "night" / "records.json.gz").values()
    there = {(config.name, record["seconds"]): record for config, record in runs}
    for run in (run for one in ABOVE for run in one.runs):
        other = there.get((run["name"], run["seconds"]), run)
        assert {name: other[name] for name in run.keys() & other.keys()} == {
            name: run[name] for name in run.keys() & other.keys()
        }
