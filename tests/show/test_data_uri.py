"""A text comes back from its address whatever it holds, and the address cannot leave the attribute that holds it."""

from html.parser import HTMLParser
from urllib.parse import unquote
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.show.data_uri import data_uri


class Sources(HTMLParser):
    """The images of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str | None] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {value}" for _, value in attrs]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_an_attribute_gives_the_text_back(text: str) -> None:
    (source,) = Sources(f'<img src="{data_uri("text/csv", text)}">').found
    assert source is not None
    assert unquote(source.partition(",")[2]) == text


def test_another_reader_of_addresses_gives_the_text_back() -> None:
    text = "panel,x\n\"a, b\",50%\n<svg d='M 0 1'/>&#x27; é\t\\"
    with urlopen(data_uri("text/csv;charset=utf-8", text)) as reply:
        assert reply.read().decode() == text


@pytest.mark.parametrize("kind", ["", "text", "text/csv,", 'text/"csv', "a/b/c"])
def test_what_is_no_media_type_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"kind=.*: must be a media type"):
        data_uri(kind, "x")
