"""Where bytes come from."""

import importlib.util
import io
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from transnormer_lib.data import corpora, hub, images, sources
from transnormer_lib.data.faults import DataFault, DataUnavailable

SST2, MNLI, AAN, CIFAR = "nyu-mll/glue/sst2", "nyu-mll/glue/mnli", "OpenNLPLab/lra/aan", "uoft-cs/cifar10/plain_text"
GOOD = {"sentence": ["a fine film", "dull", "ä 好"], "label": [1, 0, 1], "idx": [0, 1, 2]}


def put(root: Path, name: str, split: str, columns: Mapping[str, Any], shard: str = "00000-of-00001") -> Path:
    """A Parquet file of a data root."""
    path = root / name / f"{split}-{shard}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def table(name: str, split: str, columns: list[str] | None = None) -> pa.Table:
    """All rows of a split."""
    return pa.Table.from_batches(list(sources.batches(name, split, columns)))


def undecodable() -> pa.Array:
    given = pa.array([b"right", b"\xff\xfe", b"right"], pa.binary())
    return pa.StringArray.from_buffers(3, given.buffers()[1], given.buffers()[2])


def test_the_embedded_dump_is_the_one_that_gensim_names() -> None:
    from gensim.test.utils import datapath

    name = Path(sources.EMBEDDED["wikipedia"][1]).name
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
    package, _ = sources.EMBEDDED[name]
    assert f"package {package!r} is not installed" in str(caught.value)
    assert f"pip install {package}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sources.EMBEDDED)
def test_a_missing_file_is_reported_in_one_line_with_its_path_and_package(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, _ = sources.EMBEDDED[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; it belongs to an extra")
    monkeypatch.setitem(sources.EMBEDDED, name, (package, "no/such.file"))
    with pytest.raises(DataUnavailable) as caught:
        sources.load(name)
    for part in ("no/such.file", package, f"pip install {package}"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"name='wikitext': must be one of 'wikipedia', 'mnist-5k'"):
        sources.load("wikitext")


@pytest.mark.slow
def test_loading_opens_no_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a connection was opened: {args} {kwargs}")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path))  # cold, so that everything is computed here
    corpora.load_text_corpus.__wrapped__("wikipedia", "bpe-300")
    images.load_mnist.__wrapped__()


def test_a_table_has_the_columns_asked_for_in_that_order(data_root: Path) -> None:
    put(data_root, SST2, "train", GOOD)
    assert table(SST2, "train").to_pydict() == {name: GOOD[name] for name in ("sentence", "label")}
    assert table(SST2, "train", ["label"]).to_pydict() == {"label": GOOD["label"]}
    assert table(SST2, "train", ["label", "sentence"]).column_names == ["label", "sentence"]
    assert sources.locate(SST2, "train").origin == "data root"


def test_shards_are_read_in_order_and_a_missing_one_is_named(data_root: Path) -> None:
    for number, words in enumerate(["first", "second"]):
        put(data_root, SST2, "train", {"sentence": [words], "label": [0]}, f"{number:05}-of-00002")
    assert table(SST2, "train").column("sentence").to_pylist() == ["first", "second"]
    (data_root / SST2 / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(DataFault, match=r"train-00001-of-00002\.parquet: expected 2 shards .* found 1"):
        table(SST2, "train")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({**GOOD, "label": [0, 1, 2]}, r"row 2, column 'label': expected a label in 0…1, found 2"),
        ({**GOOD, "label": [0, -1, 1]}, r"row 1, column 'label': expected a label in 0…1, found -1"),
        ({**GOOD, "label": [0, None, 1]}, r"row 1, column 'label': expected a value, found none"),
        ({**GOOD, "label": ["0", "x", "1"]}, r"column 'label' is string, expected whole numbers"),
        ({**GOOD, "label": [0.0, 0.5, 1.0]}, r"column 'label' is double, expected whole numbers"),
        ({**GOOD, "sentence": ["a", "b", " \n"]}, r"row 2, column 'sentence': expected text, found none"),
        ({**GOOD, "sentence": [None, "b", "c"]}, r"row 0, column 'sentence': expected a value, found none"),
        ({**GOOD, "sentence": undecodable()}, r"row 1, column 'sentence': expected UTF-8: .*0xff"),
        ({**GOOD, "sentence": [1, 2, 3]}, r"column 'sentence' is int64, expected text"),
        ({"text": ["a"], "label": [0]}, r"has no column 'sentence', only text, label"),
        ({"sentence": pa.array([], pa.string()), "label": pa.array([], pa.int64())}, r"has no rows, expected"),
    ],
    ids=["high", "low", "no-label", "word-as-label", "fraction", "blank", "no-text", "bytes", "type", "column", "rows"],
)
def test_a_fault_names_the_file_the_row_and_what_was_expected(
    columns: Mapping[str, Any], message: str, data_root: Path
) -> None:
    path = put(data_root, SST2, "train", columns)
    with pytest.raises(DataFault, match=message) as caught:
        table(SST2, "train")
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(wrong=st.integers(0, 199), rows=st.integers(1, 64))
def test_the_row_is_that_of_the_file_whatever_the_batches(wrong: int, rows: int, data_root: Path) -> None:
    labels = [0] * 200
    labels[wrong] = 7
    put(data_root, SST2, "train", {"sentence": ["x"] * 200, "label": labels})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSNORMER_CACHE", str(data_root / f"{wrong}-{rows}"))
        with pytest.raises(DataFault, match=rf", row {wrong}, .*found 7"):
            list(sources.batches(SST2, "train", rows=rows))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(share=st.floats(0.0, 0.999))
def test_a_file_cut_anywhere_is_refused(share: float, data_root: Path) -> None:
    path = put(data_root, SST2, "train", {"sentence": [f"sentence {n}" for n in range(500)], "label": [0] * 500})
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSNORMER_CACHE", str(data_root / f"{share}"))
        with pytest.raises(DataFault, match=r"train-00000-of-00001\.parquet: expected a whole Parquet file"):
            table(SST2, "train")


def test_damage_inside_a_file_is_refused(data_root: Path) -> None:
    path = put(data_root, SST2, "train", {"sentence": [f"sentence {n}" for n in range(5000)], "label": [0] * 5000})
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    with pytest.raises(DataFault, match="expected a whole Parquet file"):
        table(SST2, "train")


def test_a_file_that_changes_after_its_first_reading_is_refused_until_it_is_accepted(data_root: Path) -> None:
    path = put(data_root, SST2, "train", GOOD)
    first = sources.locate(SST2, "train").fingerprint
    put(data_root, SST2, "train", {**GOOD, "label": [0, 0, 0]})
    with pytest.raises(DataFault, match=r"has sha256 \w+, expected \w+ \(recorded .*data check --accept") as caught:
        table(SST2, "train")
    assert str(path) in str(caught.value)
    assert sources.locate(SST2, "train", accept=True).fingerprint != first
    assert table(SST2, "train").column("label").to_pylist() == [0, 0, 0]


def test_a_file_changed_behind_its_size_and_time_is_found_by_reading_it_again(data_root: Path) -> None:
    path = put(data_root, SST2, "train", GOOD)
    sources.locate(SST2, "train")
    stat, content = path.stat(), bytearray(path.read_bytes())
    content[8] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    sources.locate(SST2, "train")  # trusts size and time
    with pytest.raises(DataFault, match="has sha256"):
        sources.locate(SST2, "train", rehash=True)


def test_a_split_that_the_data_root_lacks_is_not_taken_from_elsewhere(data_root: Path) -> None:
    put(data_root, MNLI, "train", {"premise": ["a"], "hypothesis": ["b"], "label": [2]})
    with pytest.raises(DataUnavailable, match=r"split 'validation_mismatched' is absent from the data root"):
        table(MNLI, "validation_mismatched")


def test_a_test_split_without_labels_says_why_it_is_not_used(data_root: Path) -> None:
    with pytest.raises(DataUnavailable, match=r"split 'test' is not used: its labels are kept by GLUE's server"):
        table(SST2, "test")


@pytest.mark.parametrize(
    ("name", "split", "columns", "message"),
    [
        ("sst2", "train", None, "name='sst2': must be one of 'Salesforce/wikitext/wikitext-103-v1'"),
        (SST2, "dev", None, "split='dev': must be one of 'train', 'validation'"),
        (SST2, "train", ["text"], "columns='text': must be one of 'sentence', 'label'"),
    ],
)
def test_names_that_nothing_has_are_refused(
    name: str, split: str, columns: list[str] | None, message: str, data_root: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        table(name, split, columns)


def test_a_data_root_that_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(tmp_path / "nowhere"))
    with pytest.raises(DataFault, match=r"TRANSNORMER_DATA_ROOT=.*nowhere: expected a folder"):
        table(SST2, "train")


def test_offline_nothing_is_fetched_and_the_reason_is_one_line(
    data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("a connection was opened"))
    with pytest.raises(DataUnavailable, match=r"sst2/train.*HF_HUB_OFFLINE forbids fetching it") as caught:
        table(SST2, "train")
    assert "\n" not in str(caught.value)


def test_a_hub_that_cannot_be_reached_makes_data_unavailable(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets
    from huggingface_hub import constants

    def fail(*_: object) -> None:
        raise ConnectionError("no\nroute")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.DownloadManager, "download", fail)
    with pytest.raises(DataUnavailable, match=r"the Hub gave ConnectionError: no route"):
        table(SST2, "train")


def test_fetching_asks_the_hub_for_the_pinned_revision_and_checks_what_comes(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets
    from huggingface_hub import constants

    asked = []
    served = put(tmp_path / "served", SST2, "train", GOOD)

    def download(self: object, url: str) -> str:
        asked.append(url)
        return str(served)

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.DownloadManager, "download", download)
    with pytest.raises(DataFault, match=r"expected 66a253e6\w+ \(published\)"):
        table(SST2, "train")
    revision = hub.DATASETS[SST2].revision
    assert asked == [f"hf://datasets/nyu-mll/glue@{revision}/sst2/train-00000-of-00001.parquet"]


def test_the_cache_of_the_hub_serves_without_network(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = hub.DATASETS["clue/clue/tnews"]
    commit = "0123456789" * 4
    folder = tmp_path / "hub" / "datasets--clue--clue"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    put(folder / "snapshots", f"{commit}/tnews", "train", {"sentence": ["新闻"], "label": [14]})
    assert table(dataset.name, "train").to_pydict() == {"sentence": ["新闻"], "label": [14]}
    assert sources.locate(dataset.name, "train").origin == "Hub"


def test_tab_separated_pairs_are_read_as_they_stand(data_root: Path) -> None:
    path = data_root / "OpenNLPLab/lra/data/aan/new_aan_pairs.train.tsv"
    path.parent.mkdir(parents=True)
    path.write_text("1.0\tP1\tP2\tb'a \"quote\n0.0\tP3\tP4\tc\td\n".replace("quote\n", "quote'\tb\n"))
    assert table(AAN, "train").to_pydict() == {"label": [1, 0], "text1": ["b'a \"quote'", "c"], "text2": ["b", "d"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1.0\tP\tP\ta\n", r"row 1: expected 5 columns"),
        (b"0.5\tP\tP\ta\tb\n", r"row 1, column 'label': expected a whole number of at most 15 digits, found '0.5'"),
        (b"9" * 400 + b"\tP\tP\ta\tb\n", r"row 1, column 'label': expected a whole number of at most 15 digits"),
        (b"2\tP\tP\ta\tb\n", r"row 1, column 'label': expected a label in 0…1, found 2"),
        (b"1\tP\tP\t\tb\n", r"row 1, column 'text1': expected text, found none"),
        (b"1\tP\tP\t\xff\tb\n", r"expected 5 columns of UTF-8 text"),
    ],
)
def test_a_fault_in_a_tab_separated_file_is_named(line: bytes, message: str, data_root: Path) -> None:
    path = data_root / "OpenNLPLab/lra/data/aan/new_aan_pairs.train.tsv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"1.0\tP\tP\ta\tb\n" + line)
    with pytest.raises(DataFault, match=message):
        table(AAN, "train")


def picture(side: int = 32, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((side, side), 50).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_images_are_structures_with_bytes_in_them(kind: str, data_root: Path) -> None:
    encoded = picture(kind=kind)
    put(data_root, CIFAR, "train", {"img": [{"bytes": encoded, "path": None}], "label": [9]})
    assert table(CIFAR, "train").column("img").to_pylist()[0]["bytes"] == encoded


@pytest.mark.parametrize(
    ("encoded", "message"),
    [
        (b"", "expected an image, found none"),
        (b"not an image", "expected a 32 × 32 PNG or JPEG, found 12 bytes that cannot be decoded"),
        (picture()[:300], "expected a 32 × 32 PNG or JPEG, found 300 bytes that cannot be decoded"),
        (picture(kind="JPEG")[:-200], "expected a 32 × 32 PNG or JPEG, found"),
        (picture(kind="BMP"), "expected a 32 × 32 PNG or JPEG, found"),
        (picture(28), "expected a 32 × 32 PNG or JPEG, found one of 28 × 28"),
    ],
    ids=["nothing", "junk", "a cut PNG", "a cut JPEG", "another format", "another size"],
)
def test_what_is_no_picture_of_the_right_size_is_named_with_its_row(
    encoded: bytes, message: str, data_root: Path
) -> None:
    put(data_root, CIFAR, "test", {"img": [{"bytes": picture()}, {"bytes": encoded}], "label": [9, 9]})
    with pytest.raises(DataFault, match=rf"test-00000-of-00001\.parquet, row 1, column 'img': {message}"):
        table(CIFAR, "test")


@pytest.mark.parametrize("cut", [1, 3])
def test_a_tab_separated_file_that_is_cut_in_its_last_column_is_refused(cut: int, data_root: Path) -> None:
    path = data_root / "OpenNLPLab/lra/data/aan/new_aan_pairs.train.tsv"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"1.0\tP\tP\ta\tbcdef\n"[:-cut])
    with pytest.raises(DataFault, match="expected a line break at the end"):
        table(AAN, "train")


@pytest.mark.parametrize("name", hub.DATASETS)
def test_the_real_samples_are_right_where_they_are_there(name: str, real_root: Path) -> None:
    if not sources.in_data_root(name):
        pytest.skip(f"the data root has no {name}")
    for split, described in hub.DATASETS[name].splits.items():
        if not list((real_root / name).glob(f"{split}-*.parquet")):
            with pytest.raises(DataUnavailable, match="is absent from the data root"):
                sources.locate(name, split)
            continue
        assert 0 < sum(batch.num_rows for batch in sources.batches(name, split)) <= described.rows
