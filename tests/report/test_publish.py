"""The committed report: whole, small, complete in its folder, and the one that this commit makes."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from page_checks import LARGEST_PAGE, Page
from report_factory import ABSENT, CLAIMS, THEORY, executed_notebook, fail, make_report, write_record

from transnormer_lib.ledger import kept
from transnormer_lib.ledger.claims import load
from transnormer_lib.ledger.judging import NEVER_RUN
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.report import publish
from transnormer_lib.report.index import build_report

CHECKOUT = Path(__file__).resolve().parents[2]
COMMITTED = CHECKOUT / "reports" / publish.FOLDER
PAGES = sorted(path.name for path in COMMITTED.glob("*.html"))


def entries(folder: Path) -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in json.loads((folder / "claims.json").read_text(encoding="utf-8"))}


def addresses(page: Page) -> list[str]:
    """What a page of the copy refers to, but the world outside and the values that it carries itself."""
    return [one for one in page.links + page.fetched if not one.startswith(("http", "data:"))]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = make_report(tmp_path)
    nbformat.write(executed_notebook(ABSENT, []), folder / f"{ABSENT}.ipynb")
    write_record(folder, ABSENT)
    build_report(tmp_path, "quick", CLAIMS)
    return Project(tmp_path)


def test_the_copy_is_complete_in_its_folder(project: Project) -> None:
    made = publish.publish(project)
    folder = project.report_dir(publish.FOLDER)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(made)
    assert {"index.html", f"{THEORY}.html", f"records/{THEORY}.json", "claims.json", "theses.json"} <= set(made)
    for page in folder.glob("*.html"):
        found = addresses(Page(page))
        assert [one for one in found if not (folder / (one.partition("#")[0] or page.name)).exists()] == []
        assert any(one.endswith(".css") for one in found)


def test_the_styles_are_those_of_the_report(project: Project) -> None:
    made = publish.publish(project)
    pages = "\n".join(path.read_text() for path in project.report_dir("quick").glob("*.html"))
    shared = [content.decode().strip() for name, content in made.items() if name.endswith(".css")]
    assert len(shared) > 1
    assert all(style in pages for style in shared)
    assert "<style" not in made["index.html"].decode()


def test_an_executed_notebook_is_published_without_what_its_page_shows(project: Project) -> None:
    path = project.report_dir("quick") / f"{THEORY}.ipynb"
    image = "<img alt='A &lt;' src=\"data:image/svg+xml,<svg class='a'>\">"
    figure = f'<style>p{{}}</style><figure data-values="{{&#34;model&#34;}}">{image}'
    executed = nbformat.read(path, as_version=4)
    executed.cells[-1].outputs.append(nbformat.v4.new_output("display_data", data={"text/html": figure}))
    nbformat.write(executed, path)
    write_record(path.parent, THEORY)
    made = publish.copies(project)
    assert made == publish.copies(project)
    found = nbformat.reads(gzip.decompress(made[f"{THEORY}.ipynb.gz"]), as_version=4)
    nbformat.validate(found)
    assert [cell.source for cell in found.cells] == [cell.source for cell in executed.cells]
    outputs = found.cells[-1].outputs
    assert outputs[-1].data["text/html"] == "<figure><img alt='A &lt;'>"
    assert [one.output_type for one in outputs] == [one.output_type for one in executed.cells[-1].outputs]
    assert f'<a href="{THEORY}.ipynb.gz" download>' in made[f"{THEORY}.html"].decode()


def test_what_is_no_longer_published_goes(project: Project) -> None:
    stray = project.report_dir(publish.FOLDER) / "records" / "99_gone.json"
    stray.parent.mkdir(parents=True)
    stray.write_text("{}")
    publish.publish(project)
    assert not stray.exists()


def test_a_report_with_a_failed_notebook_is_refused_and_the_copy_stays(project: Project) -> None:
    before = publish.publish(project)
    fail(project.report_dir("quick"), THEORY, "it broke")
    with pytest.raises(UserMistake, match=f"{THEORY}: failed at preset quick; run: make report PRESET=quick"):
        publish.publish(project)
    folder = project.report_dir(publish.FOLDER)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_a_copy_that_is_too_large_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "LARGEST", 1000)
    with pytest.raises(UserMistake, match=r"reports/published: .* bytes, must be at most 1,000"):
        publish.publish(project)
    assert not project.report_dir(publish.FOLDER).exists()


def test_the_committed_report_has_every_notebook_and_is_small() -> None:
    assert {"index.html", "found.html", "ledger.html", "terms.html"} <= set(PAGES)
    assert {f"{notebook}.html" for notebook in Project(CHECKOUT).notebooks} <= set(PAGES)
    files = [path for path in COMMITTED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= publish.LARGEST
    assert max(path.stat().st_size for path in files) <= LARGEST_PAGE


@pytest.mark.parametrize("name", PAGES)
def test_a_committed_pages_links_lead_to_a_file_and_its_anchor(name: str, anchors: dict[str, set[str]]) -> None:
    lost = []
    for address in addresses(Page(COMMITTED / name)):
        file, _, anchor = address.partition("#")
        there = anchors.get(file or name)
        if there is None:
            lost += [] if (COMMITTED / file).exists() else [address]
        elif anchor and "=" not in anchor and anchor not in there:
            lost.append(address)
    assert lost == []


@pytest.fixture(scope="module")
def anchors() -> dict[str, set[str]]:
    """The ids of each committed page."""
    return {name: set(Page(COMMITTED / name).ids) for name in PAGES}


def test_the_committed_report_judges_the_claims_of_this_commit() -> None:
    """What the claims' files say of a claim stands in the ledger that visitors read."""
    found = entries(COMMITTED)
    claims = {claim.id: claim for claim in load()}
    assert set(found) == set(claims)
    fields = ("locus", "statement", "kind", "notebook", "decided_at", "tolerance", "published")
    for name, claim in claims.items():
        said = json.loads(json.dumps({field: getattr(claim, field) for field in fields}))
        assert {field: found[name][field] for field in fields} == said, name


def test_the_committed_report_stands_on_the_kept_evidence_of_this_commit() -> None:
    project, found = Project(CHECKOUT), entries(COMMITTED)
    larger = {
        entry["id"]: entry
        for notebook in project.notebooks
        for one in kept.larger("quick", notebook, project)
        for entry in one.claims
        if entry["verdict"] != "not run"
    }
    standing = {name: entry for name, entry in found.items() if entry["source"] == "kept"}
    assert standing
    for name, entry in standing.items():
        assert (entry["scale"], entry["measured"]) == (larger[name]["scale"], larger[name]["measured"]), name
    missing = set(larger) - set(standing)
    assert [name for name in missing if found[name]["decided_at"] != "quick"] == []


def test_the_committed_report_is_the_one_that_this_checkout_makes() -> None:
    """Verdicts of models that quick trains may differ on another kind of processor, and timings on any."""
    folder = CHECKOUT / "reports" / "quick"
    if not (folder / "claims.json").exists():
        pytest.skip("no report to agree with: make report")
    ours, committed = entries(folder), entries(COMMITTED)
    if any(entry["reason"] == NEVER_RUN for entry in ours.values()):
        pytest.skip("the report is not whole")
    if _device(folder) != _device(COMMITTED):
        ours = {name: entry for name, entry in ours.items() if entry["kind"] in ("theorem", "misprint", "print")}
    facts = ("verdict", "scale", "source")
    differ = [
        name
        for name, entry in ours.items()
        if not entry.get("timing") and [entry[fact] for fact in facts] != [committed[name][fact] for fact in facts]
    ]
    assert differ == [], "run: make report; make readme publish"


def _device(folder: Path) -> str:
    record = json.loads((folder / "records" / "04_autoregressive_lm.json").read_text(encoding="utf-8"))
    return re.sub(r"\d+ cores?", "", record["provenance"]["device"])
