"""What is known of the data sets on the Hub is complete, and agrees with itself."""

import re

import pytest

from transnormer_lib.data import hub
from transnormer_lib.data.hub import DATASETS, GPT2, HubDataset

EVERY = [pytest.param(dataset, id=name) for name, dataset in DATASETS.items()]


@pytest.mark.parametrize("dataset", EVERY)
def test_a_revision_is_a_commit_or_says_that_it_moves(dataset: HubDataset) -> None:
    assert dataset.revision == hub.MOVING or re.fullmatch(r"[0-9a-f]{40}", dataset.revision)


@pytest.mark.parametrize("dataset", EVERY)
def test_every_file_has_a_size_and_a_digest_is_a_sha256(dataset: HubDataset) -> None:
    files = [file for split in dataset.splits.values() for file in split.files]
    assert len({file.path for file in files}) == len(files)
    for file in files:
        assert file.size > 0
        assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
    known = [file.sha256 for file in files if file.sha256]
    assert len(set(known)) == len(known)


@pytest.mark.parametrize("dataset", EVERY)
def test_files_need_no_loading_script_and_lie_where_a_data_root_has_them(dataset: HubDataset) -> None:
    for name, split in dataset.splits.items():
        for file in split.files:
            if dataset.tsv:
                assert file.path.endswith(".tsv")
            else:
                assert file.path.startswith((f"{dataset.config}/{name}-", f"{dataset.config}/{name}/"))
                assert file.path.endswith(".parquet")


@pytest.mark.parametrize("dataset", EVERY)
def test_columns_of_labels_have_a_range_and_columns_of_tables_exist(dataset: HubDataset) -> None:
    for column in dataset.columns:
        assert (column.kind == "label") == (column.labels is not None)
        assert not dataset.tsv or column.name in dataset.tsv
    assert dataset.licence
    assert not set(dataset.withheld) & set(dataset.splits)


def test_corpora_of_speech_are_data_sets_with_recordings() -> None:
    for name in hub.SPEECH.values():
        assert "audio" in {column.kind for column in DATASETS[name].columns}


def test_only_the_repositories_whose_commit_is_unknown_are_not_pinned() -> None:
    moving = {name for name, dataset in DATASETS.items() if dataset.revision == hub.MOVING}
    assert moving == {"ylecun/mnist/mnist", *(name for name in DATASETS if name.startswith("clue/clue/"))}


def test_the_six_tasks_of_table_5_and_both_halves_of_mnli_are_there() -> None:
    glue = {dataset.config for dataset in DATASETS.values() if dataset.repository == "nyu-mll/glue"}
    assert glue == {"mnli", "qnli", "qqp", "sst2", "mrpc", "cola"}
    assert set(DATASETS["nyu-mll/glue/mnli"].splits) == {"train", "validation_matched", "validation_mismatched"}


def test_the_public_test_labels_of_mrpc_are_not_called_hidden() -> None:
    withheld = {task: DATASETS[f"nyu-mll/glue/{task}"].withheld["test"] for task in ("mrpc", "cola")}
    assert "public (1,725 rows)" in withheld["mrpc"]
    assert "server" in withheld["cola"]


def test_the_published_byte_pairs_are_known_by_their_digest() -> None:
    assert GPT2.vocabulary.sha256
    assert GPT2.merges.sha256
