"""Hostile text stays text: on the terminal nothing acts, on a page nothing runs, loads or is shown in another order."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from chaos_trials import Tried
from history_factory import git
from page_checks import Page
from project_factory import make_project
from report_factory import CLAIMS, TABLE, THEORY, claim, make_report, write_kept, write_record

from transnormer_lib.cli import main
from transnormer_lib.ledger.judging import write_json_list
from transnormer_lib.provenance import environment
from transnormer_lib.provenance.history import commit_of
from transnormer_lib.report.index import build_report
from transnormer_lib.report.pages import outside_resources
from transnormer_lib.visible import shows_plainly, visible

TERMINAL = {
    "a window's title": "\x1b]0;owned\x07",
    "colours": "\x1b[31mred\x1b[0m",
    "a cleared screen": "\x1b[2J\x1b[H",
    "a cursor moved up": "before\x1b[1A\x1b[2Kover",
    "a clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "a link": "\x1b]8;;http://evil.example\x1b\\text\x1b]8;;\x1b\\",
    "a device report": "\x1b[6n",
    "a line overwritten": "transnormer: all is well\rnothing is",
    "a backspace": "no\x08\x08yes",
    "a bell": "\x07",
    "one byte for two": "\x9b31mred",
    "a shift out": "\x0e",
    "a form feed": "a\x0cb",
    "a null": "a\x00b",
    "an override": "abc\u202efed",
    "an embedding": "abc\u202bfed\u202c",
    "an isolate": "abc\u2067fed\u2069",
    "half a pair": "a\ud800b",
}
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize("text", TERMINAL.values(), ids=TERMINAL.keys())
def test_what_is_printed_does_not_act(text: str, capsys: pytest.CaptureFixture[str], tried: Tried) -> None:
    @shows_plainly
    def command() -> None:
        print(f"transnormer: {text}")
        print("prefix", text, file=sys.stderr)

    before = sys.stdout, sys.stderr
    command()
    assert (sys.stdout, sys.stderr) == before
    shown = capsys.readouterr()
    for stream in shown:
        assert not ACTING.search(stream)
        assert stream.count("\n") == 1
    tried("hostile text")


@pytest.mark.parametrize("text", TERMINAL.values(), ids=TERMINAL.keys())
def test_json_that_is_printed_reads_back(text: str, tried: Tried) -> None:
    assert json.loads(visible(json.dumps([text], ensure_ascii=False))) == [text]
    tried("hostile text")


def test_bars_of_progress_still_move(capsys: pytest.CaptureFixture[str]) -> None:
    @shows_plainly
    def command() -> None:
        for text in ("\r 50%|", "\n\n", "\x1b[A", "\r" + " " * 8 + "\r"):
            sys.stderr.write(text)

    command()
    assert capsys.readouterr().err == "\r 50%|\n\n\x1b[A\r" + " " * 8 + "\\u000d"


NAMES = {name: text for name, text in TERMINAL.items() if "\x00" not in text and "\ud800" not in text}


@pytest.mark.parametrize("text", NAMES.values(), ids=NAMES.keys())
def test_no_command_prints_what_acts(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    """In claims, in names of presets and notebooks, in files to compare, and in arguments."""
    project = make_project(tmp_path, {"01_a": ["size"]})
    entry = {"id": text, "locus": text, "statement": text, "verdict": text, "notebook": "01_a", "measured": None}
    write_json_list(project.report_dir("quick") / "claims.json", [entry])
    other = tmp_path / "other.json"
    other.write_text(json.dumps([entry | {"verdict": f"not {text}"}]))
    root = ["--root", str(project.root)]
    for command in (
        ["claims"], ["claims", "--json"], ["report", "--compare", "quick", str(other)], ["claims", "--preset", text],
        ["report", "--only", text], ["plan", "--preset", text], ["sweep", "--dry-run", "--run", text],
        ["runs", "show", text, "--store", str(tmp_path)], ["report", "--compare", text, "quick"],
    ):  # fmt: skip
        main([*command, *root])
        for stream in capsys.readouterr():
            assert not ACTING.search(stream), command
    assert not ACTING.search((tmp_path / "reports" / "compare.html").read_text())
    tried("hostile text", 9)


MARKUP = {
    "a script": "<script>alert(1)</script>",
    "a script that ends another": "</script><script>alert(1)</script>",
    "an image": "<img src=http://evil.example/x.png onerror=alert(1)>",
    "an end of an attribute": "\" onmouseover=alert(1) x=\"",
    "an end of a title": "</title><script>alert(1)</script>",
    "an end of a style": "</style><img src=x onerror=alert(1)>",
    "a frame": "<iframe src=javascript:alert(1)></iframe>",
    "a base": "<base href=http://evil.example>",
    "a refresh": "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "a form": "<form action=http://evil.example><input name=x></form>",
    "a drawing": "<svg onload=alert(1)></svg>",
    "a formula's end": "$x$</math><script>alert(1)</script>",
    "a template": "{{ 7*7 }}{% for x in () %}",
    "an override": "abc\u202efed",
    "an escape": "\x1b]0;owned\x07",
}  # fmt: skip


def texts_of(page: Path) -> str:
    return re.sub(r"\s+", " ", Page(page).text)


@pytest.mark.parametrize("text", MARKUP.values(), ids=MARKUP.keys())
def test_a_page_shows_hostile_text_as_text(text: str, tmp_path: Path, tried: Tried) -> None:
    """In a statement, a locus, a reason, a kept machine and commit, a record, a parameter, and printed by a cell."""
    report_dir = make_report(tmp_path, [nbformat.v4.new_output("stream", name="stdout", text=f"printed {text}\n")])
    conditions = {"commit": text, "device": text, "started": text, "data": {text: text}, "versions": {text: text}}
    write_record(report_dir, TABLE, provenance=conditions, parameters={"scale": text, text: text})
    fields: dict[str, Any] = {"preset": "night", "scale": "night", "notebook": THEORY, "parameters": {}, "runs": []}
    fields |= {"device": text, "commit": text, "started": "2026-11-21T20:00:00+00:00", "threads": 1}
    measured = {"holds": False, "searched": 5, "counter_example": {text: text}}
    kept = {"id": "unmeasured", "verdict": "refuted", "scale": "night", "measured": measured, "seeds": None}
    kept["reason"] = text
    plan = {"file": text, "sha256": "0", "commit": text, "date": "2026-11-20T12:00:00+00:00", "judged": 1, "after": 1}
    write_kept(tmp_path, THEORY, {**fields, "claims": [kept], "plans": [plan]})
    claims = [*CLAIMS, claim("hostile", "property", TABLE, locus=f"Table {text}", published=text)]
    build_report(tmp_path, "quick", claims)
    for page in report_dir.glob("*.html"):
        html = page.read_text()
        assert not ACTING.search(html)
        body = re.sub(r"<script>\n.*?\n</script>", "", html, flags=re.DOTALL)
        body = body.replace(_policy(html), "")
        assert outside_resources(body) == [], page.name
        assert "alert(1)" not in "".join(Page(page).scripts)
    assert len(Page(report_dir / f"{TABLE}.html").scripts) == 2
    assert re.sub(r"\s+", " ", visible(text)) in texts_of(report_dir / f"{TABLE}.html")
    tried("hostile text")


# As git allows them: a branch may have neither spaces nor control characters.
BRANCH = "Zq7<script>alert(1)</script>;$(touch${IFS}Zq7)`id`|\"'\u202e"
MESSAGE = "Zq7 <img src=http://evil.example/x.png onerror=alert(1)>\x1b]0;owned\x07\n\nCo: $(touch Zq7)\u202e"
FILE = "Zq7 <script>alert(1)<\\script>\x1b[2J $(touch Zq7) `id` \u202e.yaml"


def test_of_git_nothing_is_read_but_hashes_dates_and_the_files_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tried: Tried
) -> None:
    root = tmp_path / "my commit notes ü"
    report_dir = make_report(root)
    git(root, "init", "--quiet")
    git(root, "checkout", "--quiet", "-b", BRANCH)
    (root / FILE).write_text("a: 1")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", MESSAGE)
    (root / f"new {FILE}").write_text("a: 1")
    monkeypatch.setattr(environment, "__file__", str(root / "library" / "provenance" / "environment.py"))
    made_at, dirty = environment.commit.__wrapped__()
    first = commit_of(root / "notebooks" / f"{THEORY}.ipynb", lambda text: True)
    assert first is not None
    assert (made_at, dirty) == (git(root, "rev-parse", "HEAD"), True)
    assert (first.name, first.date) == (made_at, "2026-11-20T00:00:00+00:00")
    for name in (THEORY, TABLE):
        write_record(report_dir, name, provenance=environment.provenance() | {"commit": made_at, "dirty": dirty})
    build_report(root, "quick", CLAIMS)
    main(["claims", "--root", str(root)])
    main(["report", "--compare", "quick", "HEAD:reports/quick/claims.json", "--root", str(root)])
    written = [path.read_text() for path in report_dir.rglob("*") if path.suffix in (".html", ".json")]
    assert [text for text in (*written, *capsys.readouterr()) if "Zq7" in text or ACTING.search(text)] == []
    assert not list(root.rglob("Zq7"))
    tried("hostile text of git", 3)


def _policy(html: str) -> str:
    found = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', html)
    assert found is not None
    return found[0]


def test_every_page_lets_a_browser_run_its_own_scripts_alone(tmp_path: Path) -> None:
    report_dir = make_report(tmp_path)
    build_report(tmp_path, "quick", CLAIMS)
    for page in report_dir.glob("*.html"):
        policy = _policy(html := page.read_text())
        assert html.index(policy) < html.index("<title>")
        assert "default-src 'none'" in policy
        assert policy.count("sha256-") == html.count("<script>")
        assert "unsafe-inline" not in policy.partition("script-src")[2]


HOSTILE_OUTPUTS = [
    "<iframe src='data:text/html,x'></iframe>", "<object data='data:text/html,x'></object>", "<embed src='data:,x'>",
    "<base href='http://evil.example'>", "<meta http-equiv='refresh' content='0'>", "<a href=' javascript:x'>a</a>",
    "<a href='JAVASCRIPT:x'>a</a>", "<b onclick='x'>a</b>", "<svg onload=x></svg>", "<script>x</script>",
    "<link rel=stylesheet href=http://evil.example>", "<img srcset='http://evil.example/x 1x'>",
    "<p style='background:url(http://evil.example)'>", "<a href='data:text/html,x'>a</a>",
    "<style>@import 'http://evil.example'</style>",
]  # fmt: skip


@pytest.mark.parametrize("html", HOSTILE_OUTPUTS)
def test_an_output_that_would_act_fails_its_page_alone(html: str, tmp_path: Path, tried: Tried) -> None:
    make_report(tmp_path, [nbformat.v4.new_output("display_data", data={"text/html": html})])
    summary = build_report(tmp_path, "quick", CLAIMS)
    assert {item.notebook for item in summary.failed} == {THEORY, TABLE}
    assert all("a page of the report must be complete in itself" in item.line for item in summary.failed)
    page = (tmp_path / "reports" / "quick" / f"{TABLE}.html").read_text()
    assert html not in page
    tried("hostile text")


@pytest.mark.parametrize("text", ["φ ≤ 1 – “x”", "a\tb\nc", "שלום", "👩‍🔬", "中文", "e\u0301", "\u200f"])
def test_other_text_is_unchanged(text: str) -> None:
    assert visible(text) == text


def test_streams_keep_what_else_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)

    @shows_plainly
    def command() -> bool:
        print("a", flush=True)
        return sys.stdout.isatty()

    assert command() is False
    assert stream.getvalue() == "a\n"


def test_what_the_locale_s_encoding_lacks_is_printed_as_json_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    text = "N > D², 好, 😀"

    @shows_plainly
    def command() -> None:
        print(json.dumps(text, ensure_ascii=False), flush=True)

    command()
    assert json.loads(printed.getvalue()) == text
