"""What every page of the report must satisfy, read from its HTML with the standard library's parser."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qsl

from transnormer_lib.show.templating import PACKAGE

OWN_SCRIPTS = {path.read_text(encoding="utf-8").strip() for path in PACKAGE.glob("report/templates/*.js")}
LARGEST_PAGE, LARGEST_FRAME = 2_000_000, 100_000  # bytes of a page, and of its own styles and script


class Page(HTMLParser):
    """Ids, links, fetched resources, headings, filters and visible text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.kind = ""  # the class of its body: page for a notebook's
        self.headings: list[int] = []
        self.without_alt: list[str] = []
        self.stops: list[dict[str, str | None]] = []  # elements that only the keyboard's focus scrolls
        self.filters: dict[str, set[str]] = {}
        self.styles = ""
        self.scripts: list[str] = []
        self.movable: set[str] = set()  # kinds of the figures that a visitor can move
        self._select = ""
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if tag == "script":
            self.scripts.append("")
        self._note(tag, values)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        if tag == "a" and values.get("href"):
            self.links.append(str(values["href"]))
        for name, value in attrs:
            if name in ("src", "srcset", "poster", "data", "background") or (name == "href" and tag != "a"):
                self.fetched.append(str(value))
            if name == "style":
                self._css(str(value))
        if tag not in ("meta", "img", "br", "link", "hr", "input"):
            self._open.append(tag)

    def _note(self, tag: str, values: dict[str, str | None]) -> None:
        if tag == "figure" and values.get("data-movable"):
            self.movable.add(str(values["data-movable"]))
        if tag == "body":
            self.kind = values.get("class") or ""
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag == "img" and not (values.get("alt") or "").strip():
            self.without_alt.append(str(values.get("src"))[:60])
        if tag == "select":
            self._select = str(values.get("name"))
        if tag == "option":
            self.filters.setdefault(self._select, set()).add(str(values.get("value")))
        classes = set((values.get("class") or "").split())
        if "tabindex" in values or tag == "pre" or classes & {"scroll", "tn-table"}:
            self.stops.append(values)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self._css(data)
            self.styles += data
        elif self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif not {"style", "script", "option"} & set(self._open):
            self.text += data

    def _css(self, css: str) -> None:
        self.fetched += re.findall(r"url\(\s*['\"]?([^'\")]+)", css) + re.findall(r"@import\s+\S+", css)


def check_page(path: Path, scripts: int | None = None) -> Page:
    """Assert what every page must satisfy, and that it runs as many scripts as it may, or as ``scripts`` says.

    A notebook's page runs two, a preset's front page one, another none.

    Figures that can be moved need one script that all share and one for each kind. A page loads nothing and runs no
    other script, its anchors are unique and its links lead somewhere, its headings are in order, what scrolls can be
    reached and has a name, and it is small.
    """
    page = Page(path)
    assert [address for address in page.fetched if not address.startswith(("data:", "#"))] == []
    for_moving = 1 + len(page.movable) if page.movable else 0
    if scripts is None:
        front = path.name == "index.html" and path.with_name("ledger.html").exists()
        scripts = 2 if page.kind == "page" else int(front)
    assert page.tags.count("script") == scripts + for_moving
    assert {script.strip() for script in page.scripts} <= OWN_SCRIPTS
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert len(page.ids) == len(set(page.ids)), sorted(i for i in page.ids if page.ids.count(i) > 1)
    assert page.headings.count(1) == 1
    assert all(below <= above + 1 for above, below in zip(page.headings, page.headings[1:], strict=False)), (
        page.headings
    )
    assert page.without_alt == []
    for stop in page.stops:
        assert stop.get("tabindex") == "0", stop
        assert stop.get("role"), stop
        assert stop.get("aria-label"), stop
    assert len(page.styles) + sum(map(len, page.scripts)) <= LARGEST_FRAME
    assert path.stat().st_size <= LARGEST_PAGE
    for link in page.links:
        _check_link(path, page, link)
    return page


def _check_link(path: Path, page: Page, link: str) -> None:
    """Assert that a link leads to a file and its anchor, to a filter that exists, or outside by choice."""
    if link.startswith(("http://", "https://", "data:text/yaml;", "data:text/csv;")):
        return
    file, _, anchor = link.partition("#")
    target = path if not file else path.parent / file
    assert target.exists(), link
    if not anchor:
        return
    there = page if target == path else Page(target)
    if "=" in anchor:
        for name, value in parse_qsl(anchor, strict_parsing=True):
            assert value in there.filters[name], link
    else:
        assert anchor in there.ids, link
