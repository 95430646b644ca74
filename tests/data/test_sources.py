"""Where bytes come from."""

import importlib.util
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.data import images, sources, text
from transnormer_lib.data.sources import DataUnavailable


def test_the_embedded_dump_is_the_one_that_gensim_names() -> None:
    from gensim.test.utils import datapath

    name = Path(sources.EMBEDDED["wikipedia"].path).name
    assert sources.load("wikipedia").content == Path(datapath(name)).read_bytes()


@given(content=st.binary(min_size=1), data=st.data())
def test_the_fingerprint_changes_with_any_one_byte(content: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255))
    assert sources.fingerprint(bytes(changed)) != sources.fingerprint(content)
    assert sources.fingerprint(content[:place]) != sources.fingerprint(content)


@pytest.mark.parametrize("name", sources.EMBEDDED)
def test_a_missing_package_is_reported_in_one_line_with_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(DataUnavailable) as caught:
        sources.load(name)
    file = sources.EMBEDDED[name]
    assert f"package {file.package!r} is not installed" in str(caught.value)
    assert f"pip install {file.distribution}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sources.EMBEDDED)
def test_a_missing_file_is_reported_in_one_line_with_its_path_and_package(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = sources.EMBEDDED[name]
    monkeypatch.setitem(sources.EMBEDDED, name, replace(file, path="no/such.file"))
    with pytest.raises(DataUnavailable) as caught:
        sources.load(name)
    for part in ("no/such.file", file.package, f"pip install {file.distribution}"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"name='wikitext': must be one of 'wikipedia', 'mnist-5k'"):
        sources.load("wikitext")


def test_loading_opens_no_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a connection was opened: {args} {kwargs}")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path))  # cold, so that everything is computed here
    text.load_text_corpus.__wrapped__("wikipedia", "bpe-300")
    images.load_mnist.__wrapped__()
