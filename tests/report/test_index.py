"""The index: failures first, then what was not run, then the rest; a failed notebook costs only itself."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page_checks import Page, check_page
from report_factory import ABSENT, CLAIMS, TABLE, THEORY, fail, make_report, record_json, write_kept, write_record

from transnormer_lib import cli
from transnormer_lib.project import UserMistake
from transnormer_lib.report.index import build_overview, build_report

QUICK = Path("reports") / "quick"
FACTORIES = Path(__file__).parents[1] / "factories"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("index")
    make_report(root)
    build_report(root, "quick", CLAIMS)
    build_overview(root, None)
    return root


def test_the_index_loads_nothing_and_every_link_leads_to_an_anchor(root: Path) -> None:
    check_page(root / "reports" / "index.html")
    check_page(root / QUICK / "index.html")


def test_records_of_other_code_are_named_with_their_commit_and_those_of_the_present_one_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_dir = make_report(tmp_path)

    def told() -> list[str]:
        build_report(tmp_path, "quick", CLAIMS)
        assert cli.main(["claims", "--root", str(tmp_path)]) == 0
        lines = [line.removeprefix("claims: ") for line in capsys.readouterr().err.splitlines()]
        text = Page(report_dir / "index.html").text
        assert [line in text for line in lines] == [True] * len(lines)
        assert ("since these notebooks ran" in text) is bool(lines)
        return lines

    assert told() == []
    provenance = record_json(TABLE)["provenance"] | {"commit": "fedcba9876543210", "dirty": False}
    write_record(report_dir, TABLE, provenance=provenance)
    assert told() == []  # the same code at another commit
    write_record(report_dir, TABLE, provenance=provenance, digest="0123456789abcdef")
    (stale,) = told()
    assert f"changed since these notebooks ran: {TABLE} (at fedcba987654). Their results count as they are" in stale


def test_failures_come_before_the_notebooks_and_nothing_that_held_is_among_them(root: Path) -> None:
    text = Page(root / QUICK / "index.html").text
    order = ["What failed", "bound-breaks", "The notebooks", "How this report was made"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "bound-holds" not in text


def test_what_is_wrong_in_print_comes_before_what_models_contradict(tmp_path: Path) -> None:
    make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    text = Page(tmp_path / QUICK / "index.html").text
    failed = text[text.index("What failed") : text.index("The notebooks")]
    assert failed.index("In print") < failed.index("bound-breaks")
    assert "In what was measured" not in failed  # nothing that was measured failed here


def test_what_failed_of_our_own_does_not_stand_among_the_paper_s_claims(tmp_path: Path) -> None:
    make_report(tmp_path)
    ours = {"statement": "Beyond the paper, it breaks."}
    build_report(tmp_path, "quick", [one.model_copy(update=ours if one.id == "bound-breaks" else {}) for one in CLAIMS])
    text = Page(tmp_path / QUICK / "index.html").text
    failed = text[text.index("What failed") : text.index("The notebooks")]
    assert "bound-breaks" not in failed[: failed.index("1 of our own that failed, which no paper states and no thesis")]
    assert failed.count("Beyond the paper, it breaks.") == 1


def keep_at_night(root: Path, content: str) -> Path:
    return write_kept(root, THEORY, content)


def test_what_larger_scales_kept_is_named_with_its_machine_and_counts(tmp_path: Path) -> None:
    make_report(tmp_path)
    before = build_report(tmp_path, "quick", CLAIMS)
    fields = {"preset": "night", "scale": "night", "notebook": THEORY, "parameters": {}, "runs": [], "threads": 1}
    fields |= {
        "device": "a machine",
        "commit": "abc",
        "started": "2026-11-21T20:00:00+00:00",
        "claims": [{"id": "unmeasured", "verdict": "refuted", "scale": "night", "measured": None, "seeds": None}],
    }
    keep_at_night(tmp_path, json.dumps(fields))
    after = build_report(tmp_path, "quick", CLAIMS)
    text = Page(tmp_path / QUICK / "index.html").text
    assert "Kept from the preset night, 2026-11-21" in text
    assert "on a machine" in text
    moved = {verdict: after.counts[verdict] - before.counts[verdict] for verdict in ("not run", "refuted")}
    assert moved == {"not run": -1, "refuted": 1}
    assert "kept from night" in Page(tmp_path / QUICK / "ledger.html").text


def test_where_this_reports_own_runs_say_otherwise_the_ledger_says_both(tmp_path: Path) -> None:
    make_report(tmp_path)
    fields = {"preset": "night", "scale": "night", "notebook": TABLE, "parameters": {}, "runs": [], "threads": 1}
    fields |= {"device": "a machine", "commit": "abc", "started": "2026-11-21T20:00:00+00:00"}
    measured = {"value": 5.0, "interval": [4.9, 5.1]}
    entry = {"id": "perplexity", "scale": "night", "measured": measured, "seeds": [10, 11]}
    for verdict, both in (("reproduced", True), ("undecided", False)):
        write_kept(tmp_path, TABLE, {**fields, "claims": [entry | {"verdict": verdict}]})
        build_report(tmp_path, "quick", CLAIMS)
        text = Page(tmp_path / QUICK / "ledger.html").text
        assert ("kept from night; this report's own runs: undecided" in text) is both


PLAN = {"file": "plan.yaml", "sha256": "0", "commit": "c" * 40, "date": "2026-11-20T12:00:00+00:00"}


def test_the_page_with_kept_evidence_names_the_commit_of_the_plan_and_follows_it(tmp_path: Path) -> None:
    make_report(tmp_path)
    fields = {"preset": "night", "scale": "night", "notebook": THEORY, "parameters": {}, "runs": [], "threads": 1}
    fields |= {"device": "a machine", "commit": "abc", "started": "2026-11-21T20:00:00+00:00", "claims": []}
    page = tmp_path / QUICK / f"{THEORY}.html"
    keep_at_night(tmp_path, json.dumps(fields))
    build_report(tmp_path, "quick", CLAIMS)
    assert "Plans, with the commits that hold them" not in Page(page).text
    keep_at_night(tmp_path, json.dumps({**fields, "plans": [PLAN | {"judged": 5, "after": 5}]}))
    build_report(tmp_path, "quick", CLAIMS)
    assert "plan.yaml: decided beforehand, commit cccccccccccc, 2026-11-20" in Page(page).text
    check_page(page)


def test_an_exploratory_claim_is_marked_in_its_card_in_the_tables_and_in_the_ledger(tmp_path: Path) -> None:
    make_report(tmp_path)
    build_report(tmp_path, "quick", [one.model_copy(update={"exploratory": one.id == "structure"}) for one in CLAIMS])
    page, ledger = (Page(tmp_path / QUICK / f"{name}.html").text for name in (THEORY, "ledger"))
    assert "Exploratory: added after the plan." in page
    assert page.count("exploratory: added after the plan") == ledger.count("exploratory: added after the plan") == 1


def test_a_kept_file_that_cannot_be_read_is_named_and_costs_nothing_else(tmp_path: Path) -> None:
    make_report(tmp_path)
    keep_at_night(tmp_path, "{}")
    summary = build_report(tmp_path, "quick", CLAIMS)
    assert [(item.notebook, item.line.split(":")[0]) for item in summary.failed][-1] == (
        THEORY,
        f"reports/kept/night/{THEORY}.json",
    )
    assert "Kept from larger scales" not in Page(tmp_path / QUICK / "index.html").text


def test_the_scoreboard_counts_refuted_and_not_run_before_successes(root: Path) -> None:
    text = Page(root / QUICK / "index.html").text
    score = text[: text.index("What failed")]
    places = [score.index(sign) for sign in ("✗ refuted", "○ not run", "✓ reproduced", "✓ survives")]
    assert places == sorted(places)


def test_reasons_for_what_was_not_run_are_counted(root: Path) -> None:
    text = Page(root / QUICK / "ledger.html").text
    assert "1: needs a GPU" in text
    assert "1: the notebook has not been run at this preset" in text


def test_every_claim_links_to_its_place_and_has_one_anchor_in_the_ledger(root: Path) -> None:
    page = check_page(root / QUICK / "ledger.html", scripts=1)
    for claim in CLAIMS:
        assert page.ids.count(f"claim-{claim.id}") == 1
        assert f"{claim.notebook}.html#claim-{claim.id}" in page.links


def test_loci_are_grouped_by_paper_in_natural_order(root: Path) -> None:
    text = Page(root / QUICK / "ledger.html").text
    claims = text[text.index("The Devil in") :]
    places = [claims.index(part) for part in ("Equation 9", "Equation 10", "Equation 59", "Table 1", "GAU")]
    assert places == sorted(places)


def test_titles_and_abstracts_come_from_the_first_markdown_cell(root: Path) -> None:
    text = Page(root / QUICK / "index.html").text
    assert f"Title of {THEORY}" in text
    assert f"The first paragraph of {TABLE}" in text


def test_the_summary_counts_what_claims_json_holds(root: Path) -> None:
    summary = build_report(root, "quick", CLAIMS)
    written = json.loads((root / QUICK / "claims.json").read_text())
    assert summary.index_path == root / QUICK / "index.html"
    assert summary.failed == []
    assert summary.counts["refuted"] == sum(claim["verdict"] == "refuted" for claim in written) == 1
    assert sum(summary.counts.values()) == len(written) == len(CLAIMS)


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_failed_notebook_is_named_with_its_line_and_the_others_are_kept(tmp_path: Path, status: str) -> None:
    report_dir = make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    fail(report_dir, THEORY, "code cell 3: ValueError: <script>no</script>", status=status)
    summary = build_report(tmp_path, "quick", CLAIMS)
    assert [(failed.notebook, failed.line) for failed in summary.failed] == [
        (THEORY, "code cell 3: ValueError: <script>no</script>")
    ]
    page = check_page(report_dir / "index.html")
    assert page.text.index("code cell 3: ValueError: <script>no</script>") < page.text.index("What failed")
    assert summary.counts["reproduced"] == 1
    for name in (THEORY, TABLE, ABSENT):
        check_page(report_dir / f"{name}.html")


def test_a_notebook_file_that_is_none_costs_only_itself(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    (tmp_path / "notebooks" / f"{THEORY}.ipynb").write_text("{")
    summary = build_report(tmp_path, "quick", CLAIMS)
    assert [failed.notebook for failed in summary.failed] == [THEORY]
    check_page(report_dir / "index.html")
    check_page(report_dir / f"{TABLE}.html")


def test_an_executed_notebook_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    (report_dir / f"{THEORY}.ipynb").write_text("{")
    summary = build_report(tmp_path, "quick", CLAIMS)
    assert {failed.notebook for failed in summary.failed} == {THEORY}
    check_page(report_dir / "index.html")
    check_page(report_dir / f"{TABLE}.html")


def test_a_report_without_any_run_is_built_and_says_so(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    shutil.rmtree(report_dir)
    summary = build_report(tmp_path, "quick", CLAIMS)
    assert summary.counts["not run"] == len(CLAIMS)
    page = check_page(report_dir / "index.html")
    assert "No claim failed: none has been decided yet" in page.text
    assert "0 of 3 ran" in page.text


def test_building_again_changes_nothing_and_imports_nothing_heavy(root: Path) -> None:
    files = sorted((root / QUICK).rglob("*.*"))
    before = {path: path.stat().st_mtime_ns for path in files}
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from report_factory import CLAIMS\n"
        "heavy = ('nbconvert', 'torch', 'pandas', 'scipy.stats', 'papermill')\n"
        "from transnormer_lib.report.index import build_report\n"
        "build_report(Path(sys.argv[2]), 'quick', CLAIMS)\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    arguments = [sys.executable, "-c", script, str(FACTORIES), str(root)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert before == {path: path.stat().st_mtime_ns for path in files}


def test_an_unknown_preset_is_the_users_mistake(root: Path) -> None:
    with pytest.raises(UserMistake, match="preset='fast'"):
        build_report(root, "fast", CLAIMS)


def test_the_overview_leads_to_reports_and_shows_a_refused_command(root: Path) -> None:
    path = build_overview(root, "preset='fast': <b>unknown</b>")
    page = check_page(path)
    assert "quick/index.html" in page.links
    assert "The last command was refused: preset='fast': <b>unknown</b>" in page.text
    build_overview(root, None)
    assert "refused" not in Page(path).text


def test_a_count_leads_to_the_ledger_filtered_by_its_verdict(root: Path) -> None:
    links = Page(root / QUICK / "index.html").links
    assert "ledger.html#verdict=refuted" in links
    assert "ledger.html#verdict=not%20run" in links
    assert "ledger.html#verdict=inconsistent" not in links  # there is none


def test_the_ledger_offers_what_its_claims_have_and_marks_every_claim_with_it(root: Path) -> None:
    ledger = check_page(root / QUICK / "ledger.html", scripts=1)
    html = (root / QUICK / "ledger.html").read_text()
    assert ledger.filters["paper"] == {"", "transnormer", "gau"}
    assert ledger.filters["scale"] == {"", "quick"}
    assert ledger.filters["locus"] == {"", *(claim.locus for claim in CLAIMS)}
    for name in ledger.filters:
        assert html.count(f" data-{name}=") == len(CLAIMS), name


def test_a_claim_in_the_ledger_leads_to_anchor_notebook_parameters_and_record(root: Path) -> None:
    links = Page(root / QUICK / "ledger.html").links
    ways = [f"{THEORY}.html", f"{THEORY}.html#parameters", f"records/{THEORY}.json", "#claim-bound-holds"]
    assert set(ways) <= set(links)
    assert f"records/{ABSENT}.json" not in links


def test_the_overview_leads_to_the_library_s_reference_where_that_is_published(tmp_path: Path) -> None:
    make_report(tmp_path)
    assert "api/index.html" not in Page(build_overview(tmp_path, None)).links
    reference = tmp_path / "reports" / "api" / "index.html"
    reference.parent.mkdir()
    reference.write_text("")
    assert "api/index.html" in Page(build_overview(tmp_path, None)).links


def test_the_front_page_says_how_long_notebooks_and_training_took(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    assert "0.4 minutes of notebooks, training not counted" in Page(report_dir / "index.html").text
    for name in (THEORY, TABLE):  # both read one run of a minute, one another of two
        training = {"60.0": 60.0} | ({"120.0": 120.0} if name == TABLE else {})
        write_record(report_dir, name, provenance=record_json(name)["provenance"] | {"training": training})
    build_report(tmp_path, "quick", CLAIMS)
    text = Page(report_dir / "index.html").text
    assert "0.4 minutes of notebooks, beside 3.0 minutes in which their runs were trained" in text
    assert "0.2 minutes, from the first notebook's start to the last one's end" in text
    later = record_json(THEORY)["provenance"] | {"started": "2026-01-03T03:04:05+00:00"}
    write_record(report_dir, THEORY, provenance=later)
    build_report(tmp_path, "quick", CLAIMS)
    assert "from the first notebook's start" not in Page(report_dir / "index.html").text
