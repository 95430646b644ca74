"""What every page of the report must satisfy, read from its HTML with the standard library's parser."""

import re
from html.parser import HTMLParser
from pathlib import Path


class Page(HTMLParser):
    """Ids, links, fetched resources, headings and visible text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
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

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            self._css(data)
        elif not {"style", "script"} & set(self._open):
            self.text += data

    def _css(self, css: str) -> None:
        self.fetched += re.findall(r"url\(\s*['\"]?([^'\")]+)", css) + re.findall(r"@import\s+\S+", css)


def check_page(path: Path, scripts: int = 0) -> Page:
    """Assert that the page loads nothing, runs nothing, has unique anchors, and that every link leads somewhere.

    ``scripts`` is the number of the project's own scripts that stand in the page.
    """
    page = Page(path)
    assert [address for address in page.fetched if not address.startswith(("data:", "#"))] == []
    assert page.tags.count("script") == scripts
    assert not {"link", "iframe", "object", "embed"} & set(page.tags)
    assert len(page.ids) == len(set(page.ids)), sorted(i for i in page.ids if page.ids.count(i) > 1)
    assert page.tags.count("h1") == 1
    for link in page.links:
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = path if not file else path.parent / file
        assert target.exists(), link
        if anchor:
            assert anchor in (page.ids if target == path else Page(target).ids), link
    return page
