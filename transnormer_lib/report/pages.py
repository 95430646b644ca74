"""What every page of the report shares: templates, claim rows, provenance, the digest that spares rendering.

``write_notebook_page`` makes the page of one notebook. It imports the renderer, and with it nbconvert, only
when something that the page shows has changed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from transnormer_lib.ledger.claims import Claim
from transnormer_lib.ledger.judging import Ledger
from transnormer_lib.ledger.values import shown
from transnormer_lib.ledger.verdicts import VERDICTS
from transnormer_lib.show import cards
from transnormer_lib.show.formulas import text_with_math

_HERE = Path(__file__).parent
_TEMPLATES = _HERE / "templates"
_DIGEST = re.compile(r'<meta name="companion-digest" content="([0-9a-f]+)">')


class PageError(ValueError):
    """A page that cannot be made as it must be; the message says why."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["badge"] = lambda verdict: Markup(cards.badge(verdict))
    environment.filters["math"] = lambda text: Markup(text_with_math(text))
    environment.globals["style"] = Markup((_TEMPLATES / "style.css").read_text(encoding="utf-8"))
    environment.globals["output_styles"] = Markup(cards.output_styles())
    return environment


def html_page(template: str, **context: Any) -> str:
    """A page from its template. Raises PageError if it would load anything from outside itself."""
    html = str(_environment().get_template(template).render(**context))
    outside = outside_resources(html)
    if outside:
        raise PageError(f"the page would load {outside[0]}; a page of the report brings everything with it")
    return html


class _Resources(HTMLParser):
    """Collects what a browser would fetch for a page: not its hyperlinks."""

    _ATTRIBUTES = ("src", "srcset", "poster", "data", "background", "xlink:href")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        for name, value in attrs:
            value = (value or "").strip()
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
    """What a browser would fetch or run to show ``html``, beyond the page itself."""
    parser = _Resources()
    parser.feed(html)
    return parser.found


@lru_cache(maxsize=1)
def renderer_digest() -> str:
    """Digest of the code and the templates that make pages: an edit of them renders every page anew."""
    digest = hashlib.sha256()
    for folder in (_HERE, Path(cards.__file__).parent):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".j2", ".css")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def content_digest(*content: Any) -> str:
    """Digest of all that a page shows, and of the renderer."""
    text = json.dumps([renderer_digest(), *content], sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_current(path: Path, digest: str) -> bool:
    """Whether the page at ``path`` was made from content with this digest."""
    if not path.exists():
        return False
    with path.open(encoding="utf-8") as file:
        match = _DIGEST.search(file.read(2000))
    return match is not None and match[1] == digest


def claim_rows(
    claims: Iterable[Claim], ledger: Ledger, *, here: str, anchored: set[str] | None
) -> list[dict[str, Any]]:
    """Claims as the tables of the page ``here`` show them, failures first.

    A row links to the claim's card unless it lies on this page as the claim's anchor. ``anchored`` are the
    claims whose anchor is the row itself; None stands for all of them.
    """
    anchors = {entry["id"]: str(entry["anchor"]) for entry in ledger.claims}
    rows = []
    for claim in claims:
        judgement = ledger.judgements[claim.id]
        own = anchored is None or claim.id in anchored
        page, _, fragment = anchors[claim.id].partition("#")
        target = f"#{fragment}" if page == f"{here}.html" else anchors[claim.id]
        row = {
            "id": claim.id,
            "locus": claim.locus,
            "statement": claim.statement,
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "remarks": [line for line in (judgement.reason, cards.tried_text(claim, judgement)) if line],
            "published": cards.published_text(claim),
            "ours": cards.measured_text(claim, judgement),
            "href": None if own and target.startswith("#") else target,
            "anchored": own,
        }
        rows.append(row)
    return sorted(rows, key=lambda row: VERDICTS.index(row["verdict"]))


def provenance_facts(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The circumstances of a run, as names and texts."""
    found = record.get("provenance") or {}
    facts = [
        ("commit", commit_text(found)),
        ("started", date_text(found.get("started"))),
        ("took", None if found.get("wall_seconds") is None else f"{found['wall_seconds']:.0f} s"),
        ("peak memory", memory_text(found.get("peak_memory_bytes"))),
        ("python", found.get("python") or (found.get("versions") or {}).get("python")),
        ("device", found.get("device")),
        ("seeds", None if found.get("seeds") is None else shown(found["seeds"])),
        ("digest", str(record["digest"])[:16] if record.get("digest") else None),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def commit_text(provenance: Mapping[str, Any]) -> str | None:
    """The commit of a run, shortened, and whether the working tree differed from it."""
    commit = provenance.get("commit")
    return None if not commit else str(commit)[:12] + (" with local changes" if provenance.get("dirty") else "")


def date_text(moment: Any) -> str | None:
    """An ISO 8601 time to the minute; what is not one stays as it is."""
    from datetime import UTC, datetime

    if not moment:
        return None
    try:
        return datetime.fromisoformat(str(moment)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return str(moment)


def memory_text(size: Any) -> str | None:
    """Bytes as GB or MB."""
    if not isinstance(size, int | float):
        return None
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
