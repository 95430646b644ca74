"""What all pages of the report share: the offline check, claim rows, provenance, the digest of a page's content."""

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from markupsafe import Markup

from transnormer_lib import sums
from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.judging import Ledger
from transnormer_lib.ledger.values import shown
from transnormer_lib.ledger.verdicts import VERDICTS, Judgement
from transnormer_lib.report.marks import marked
from transnormer_lib.report.math_font import with_font
from transnormer_lib.show import cards
from transnormer_lib.show.evidence import runs_text
from transnormer_lib.show.templating import css, render
from transnormer_lib.visible import visible

_MADE_OF = (".py", ".j2", ".css", ".js", ".yaml", ".woff2")
_DIGEST = re.compile(r'<meta name="companion-digest" content="([0-9a-f]+)">')


class PageError(ValueError):
    """A page cannot be made; the message says why."""


def html_page(template: str, *scripts: str, marks: bool = True, **context: Any) -> str:
    """A page from its template. Raises PageError if it would load anything from outside itself.

    ``scripts`` are the files of the templates that the page runs, the only ones that it may. ``marks``: whether the
    page's terms are marked, which lead to the glossary beside it.
    """
    elements = [Markup(f"<script>\n{css(f'report/templates/{script}')}\n</script>") for script in scripts]
    html = str(render(f"report/templates/{template}", script=Markup("\n").join(elements), **context)) + "\n"
    html = visible(re.sub("\r\n?", "\n", with_font(html)))
    html = marked(html) if marks else html
    rest = html
    for element in elements:
        rest = rest.replace(element, "", 1)
    outside = outside_resources(rest)
    if outside:
        raise PageError(f"the page would load {outside[0]}; a page of the report must be complete in itself")
    return html.replace("<head>", f"<head>\n{_policy(elements)}", 1)


def _policy(scripts: Sequence[str]) -> str:
    """What a browser may load and run for a page: what it carries itself, and of scripts these alone.

    The committed copy of a report has its styles in files beside the pages (``report.publish``).
    """
    texts = [script.removeprefix("<script>").removesuffix("</script>") for script in scripts]
    hashes = [f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts]
    rules = {
        "default-src": "'none'",
        "img-src": "data:",
        "font-src": "data:",
        "style-src": "'self' file: 'unsafe-inline'",
        "script-src": " ".join(hashes) or "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    content = "; ".join(f"{name} {value}" for name, value in rules.items())
    return f'<meta http-equiv="Content-Security-Policy" content="{content}">'


class _Resources(HTMLParser):
    """Collects what a browser would fetch for a page; hyperlinks are not fetched."""

    _ACTING = ("iframe", "frame", "object", "embed", "base", "applet")
    _SCRIPTS = re.compile(r"\s*(?:javascript|vbscript|data:text/html)", re.IGNORECASE)
    _ATTRIBUTES = ("src", "srcset", "poster", "data", "background", "xlink:href")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        if tag in self._ACTING or (tag == "meta" and "http-equiv" in dict(attrs)):
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            value = (value or "").strip()
            if name.startswith("on") or re.match(self._SCRIPTS, value):
                self.found.append(f"<{tag} {name}={value[:120]!r}>, a script")
            fetched = name in self._ATTRIBUTES or (name == "href" and tag not in ("a", "area"))
            if fetched and not value.startswith(("data:", "#")):
                self.found.append(f"<{tag} {name}={value[:120]!r}>")
            if name == "style":
                self._styles(value)
        if tag == "script":
            self.found.append("a script")

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self._styles(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def _styles(self, css: str) -> None:
        for target in re.findall(r"url\(\s*['\"]?([^'\")]*)|@import\s*([^;]*)", css):
            address = target[0] or target[1]
            if not address.startswith(("data:", "#")):
                self.found.append(f"style {address[:120]!r}")


def outside_resources(html: str) -> list[str]:
    """What a browser would fetch or run to show ``html``."""
    parser = _Resources()
    parser.feed(html)
    return parser.found


@lru_cache(maxsize=1)
def renderer_digest() -> str:
    """Digest of the code and templates that make pages, so that an edit of them renders every page again."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(cards.__file__).parent):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in _MADE_OF):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def content_digest(*content: Any) -> str:
    """Digest of a page's content and of the code that renders it."""
    text = json.dumps([renderer_digest(), *content], sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_current(path: Path, digest: str) -> bool:
    """Whether the page at ``path`` was made from content with this digest, and is what was written."""
    if sums.damage(path):
        return False
    with path.open(encoding="utf-8") as file:
        match = _DIGEST.search(file.read(2000))
    return match is not None and match[1] == digest


def claim_rows(
    claims: Iterable[Claim],
    ledger: Ledger,
    judgements: Mapping[str, Judgement],
    *,
    here: str,
    anchored: set[str] | None,
) -> list[dict[str, Any]]:
    """Claims with these judgements as the tables of the page ``here`` show them, failures first.

    ``anchored`` are the claims whose anchor is the row itself, None for all; the other rows link to the anchor.
    """
    entries = {entry["id"]: entry for entry in ledger.claims}
    rows = []
    for claim in claims:
        judgement, entry = judgements[claim.id], entries[claim.id]
        own = anchored is None or claim.id in anchored
        page, _, fragment = str(entry["anchor"]).partition("#")
        target = f"#{fragment}" if page == f"{here}.html" else entry["anchor"]
        kept = _origin(entry, ledger.judgements[claim.id]) if judgements is ledger.best else None
        rows.append(
            cards.view(claim, judgement)
            | {
                "kind": claim.kind,
                "notebook": claim.notebook,
                "reason": judgement.reason,
                "remarks": [line for line in (judgement.reason, cards.tried_text(claim, judgement), kept) if line],
                "href": None if own and target.startswith("#") else target,
                "anchored": own,
            }
        )
    return sorted(rows, key=lambda row: VERDICTS.index(row["verdict"]))


def _origin(entry: Mapping[str, Any], here: Judgement) -> str | None:
    """Where a verdict was kept from, and the one of this report's own runs if they were measured and it differs."""
    if entry["source"] != "kept":
        return None
    own = "" if here.verdict in ("not run", entry["verdict"]) else f"; this report's own runs: {here.verdict}"
    return f"kept from {entry['scale']}{own}"


def provenance_facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The conditions of a run, as names and texts."""
    found = record.get("provenance") or {}
    facts = [
        ("commit", commit_text(found)),
        ("started", date_text(found.get("started"))),
        ("took", took_text(found)),
        ("peak memory", size_text(found.get("peak_memory_bytes"))),
        ("python", found.get("python") or (found.get("versions") or {}).get("python")),
        ("device", found.get("device")),
        ("runs", runs_text(found["runs"]) if found.get("runs") else None),
        ("seeds", None if found.get("seeds") is None else shown(found["seeds"])),
        ("digest", str(record["digest"])[:16] if record.get("digest") else None),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def took_text(provenance: Mapping[str, Any]) -> str | None:
    """How long a notebook ran, and how long its runs were trained, which came before."""
    if provenance.get("wall_seconds") is None:
        return None
    trained = sum((provenance.get("training") or {}).values())
    return f"{provenance['wall_seconds']:.0f} s" + (f", beside {trained:.0f} s of training" if trained else "")


def commit_text(provenance: Mapping[str, Any]) -> str | None:
    """A run's commit, shortened, and whether there were local changes."""
    commit = provenance.get("commit")
    return None if not commit else str(commit)[:12] + (" with local changes" if provenance.get("dirty") else "")


def date_text(moment: Any) -> str | None:
    """An ISO 8601 time to the minute; other text unchanged."""
    from datetime import UTC, datetime

    if not moment:
        return None
    try:
        return datetime.fromisoformat(str(moment)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return str(moment)


def size_text(size: Any) -> str | None:
    """Bytes in GB, MB or kB; None if ``size`` is no number."""
    if not isinstance(size, int | float):
        return None
    if size >= 1e9:
        return f"{size / 1e9:.2f} GB"
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
