"""The data sets that are not embedded: where they are on the Hugging Face Hub and what they must contain.

A data set is named ``OWNER/NAME/CONFIG``; the same path below ``TRANSNORMER_DATA_ROOT`` holds its files as
``SPLIT-*.parquet``. This module only describes the data sets; ``sources`` reads them.

Each revision is a commit, so later changes to a repository do not change the data. The commits and the sha256 of the
files come from public repositories that pin the same commits (for GPT-2's files, also from openai/tiktoken). No public
pin of ``clue/clue`` and ``ylecun/mnist`` was found, so their revision is ``main``: the first read records the
fingerprints that later reads are checked against.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MOVING = "main"  # a revision that is a branch, not a commit


@dataclass(frozen=True)
class Column:
    """One column that is read, and its valid values."""

    name: str
    # image, audio: a struct with a file in its field ``bytes``, PNG or JPEG, FLAC or WAV; nested: any list or struct,
    # for the task to read
    kind: Literal["text", "label", "image", "audio", "nested"]
    labels: tuple[int, int] | None = None  # the lowest and the highest label
    blank: bool = False  # text: a row may be empty
    size: tuple[int, int] | None = None  # image: width and height in pixels
    optional: bool = False  # a sample may lack the column


@dataclass(frozen=True)
class HubFile:
    """One file of a repository."""

    path: str  # below the repository's root
    size: int  # bytes; approximate where sha256 is None
    sha256: str | None = None


@dataclass(frozen=True)
class Split:
    files: tuple[HubFile, ...]
    rows: int  # as published; a sample in a data root has fewer
    hidden_labels: bool = False  # the publisher withholds the labels and writes -1

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class HubDataset:
    """One configuration of one repository."""

    repository: str  # OWNER/NAME
    config: str
    revision: str
    licence: str
    columns: tuple[Column, ...]
    splits: Mapping[str, Split]
    tsv: tuple[str, ...] = ()  # column names if the files are tab-separated without a header; otherwise Parquet
    withheld: Mapping[str, str] = field(default_factory=dict)  # published splits that are not used, and why

    @property
    def name(self) -> str:
        return f"{self.repository}/{self.config}"


@dataclass(frozen=True)
class TokenizerFiles:
    """The files of a published byte-pair vocabulary."""

    repository: str
    revision: str
    licence: str
    vocabulary: HubFile
    merges: HubFile


def _parquet(config: str, split: str, size: int, sha256: str | None = None, shard: int = 0, of: int = 1) -> HubFile:
    return HubFile(f"{config}/{split}-{shard:05}-of-{of:05}.parquet", size, sha256)


def _numbered(folder: str, count: int, size: int) -> tuple[HubFile, ...]:
    """The files that the Hub itself converts to Parquet, each of about ``size`` bytes."""
    return tuple(HubFile(f"{folder}/{number:04}.parquet", size) for number in range(count))


# The splits that are one Parquet file: data set, split, rows, bytes, sha256 (-: not known).
_PARQUET = """
wikitext-103-v1 validation 3_760 655_106 -
wikitext-103-v1 test 4_358 721_735 -
wikitext-103-raw-v1 validation 3_760 657_209 -
wikitext-103-raw-v1 test 4_358 732_610 -
mnli train 392_702 52_224_361 49a4a5508b89b8fed2c6e81d2c47d00f4759050a7048c6cc5d95d31122ced3c1
mnli validation_matched 9_815 1_214_936 7f918c09d9c35446b8e8f06a5672f8ab704e2897fecbf52e2e154141f3d7c421
mnli validation_mismatched 9_832 1_251_152 04aba92823a954be36fe1b69b61eed334c9eb1009daba0dd79f69d77b87c535c
qnli train 104_743 17_528_917 ebc7cb70a5bbde0b0336c3d51f31bb4df4673e908e8874b090b52169b1365c6c
qnli validation 5_463 872_062 e69311b81dc65589286091d9905a27617a90436dd215c7a59832fa8f4f336169
qqp train 363_846 33_558_839 4d6f02e643f7c36e9a4f7d4971a5ee9bd74063a319452fe6c87850c739774cd7
qqp validation 40_430 3_729_274 efd86a539c412d74874ee451573d7bd142f56c47fe36de033b9f367d8bb0fa71
sst2 train 67_349 3_110_468 66a253e67968acfabcbe49dbe9da964b42ac1c851c40ab760e8c8942efdb3229
sst2 validation 872 72_819 a1371f3b3a7b0bcefa8388799a9359dc3ce76c349cc0079507a7991364fd2a9b
mrpc train 3_668 649_281 61fd41301e0e244b0420c4350a170c8e7cf64740335fc875a4af2d79af0df0af
mrpc validation 408 75_678 33c007dbf5bfa8463d87a13e6226df8c0fcf2596c2cd39d0f3bb79754e00f50f
cola train 8_551 251_124 2e7538afa2000e63f5343f16a758d75c452661a384208399d2035cd2fce45c33
cola validation 1_043 37_551 c14b7219a7d9f9fe3dd291fd000f6623ee413805eb108c9c49578ed50873e4ba
imdb train 25_000 20_979_968 db47d16b5c297cc0dd625e519c81319c24c9149e70e8496de5475f6fa928342c
imdb test 25_000 20_470_363 b52e26e2f872d282ffac460bf9770b25ac6f102cda0e6ca7158df98c94e8b3da
cifar10 train 50_000 119_705_255 8428b53a88a11ac374111006708df51469e315a22ac6d66470afd9c78d2ae883
cifar10 test 10_000 23_940_850 841389e6f2d64f28bf17310e430aebac20ec3ba611a3c5e231dc93c645ce84de
mnist train 60_000 15_600_000 -
mnist test 10_000 2_600_000 -
tnews train 53_360 3_400_000 -
tnews validation 10_000 650_000 -
afqmc train 34_334 2_700_000 -
afqmc validation 4_316 340_000 -
csl train 20_000 11_000_000 -
csl validation 3_000 1_600_000 -
iflytek train 12_133 7_000_000 -
iflytek validation 2_599 1_500_000 -
cluewsc2020 train 1_244 170_000 -
cluewsc2020 validation 304 50_000 -
cmnli train 391_783 48_000_000 -
cmnli validation 12_241 1_500_000 -
cmrc2018 train 10_142 4_700_000 -
cmrc2018 validation 3_219 1_700_000 -
chid train 84_709 140_000_000 -
chid validation 3_218 5_500_000 -
c3 train 11_869 3_500_000 -
c3 validation 3_816 1_200_000 -
"""


def _splits(dataset: str, config: str = "") -> dict[str, Split]:
    found = {}
    for of, name, rows, size, sha256 in map(str.split, _PARQUET.strip().splitlines()):
        if of == dataset:
            file = _parquet(config or dataset, name, int(size), None if sha256 == "-" else sha256)
            found[name] = Split((file,), int(rows))
    return found


def _wikitext(config: str, *train: int) -> HubDataset:
    """``train``: bytes per file."""
    shards = tuple(_parquet(config, "train", size, None, shard, len(train)) for shard, size in enumerate(train))
    return HubDataset(
        repository="Salesforce/wikitext",
        config=config,
        revision="b08601e04326c79dfdd32d625aee71d232d685c3",
        licence="CC BY-SA 3.0 and GFDL",
        # A row is a line; blank lines are empty rows in the Hub's copy.
        columns=(Column("text", "text", blank=True),),
        splits={"train": Split(shards, 1_801_350), **_splits(config)},
    )


_ON_VALIDATION = "the paper's scores are those of the validation split"
_HIDDEN = f"its labels are kept by GLUE's server; {_ON_VALIDATION}"


def _glue(
    config: str,
    *texts: str,
    labels: int = 2,
    blank: bool = False,
    tests: tuple[str, ...] = ("test",),
    withheld: str = _HIDDEN,
) -> HubDataset:
    return HubDataset(
        repository="nyu-mll/glue",
        config=config,
        revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
        licence="of each task's own authors; see the data set's card",
        columns=(*(Column(text, "text", blank=blank) for text in texts), Column("label", "label", (0, labels - 1))),
        splits=_splits(config),
        withheld=dict.fromkeys(tests, withheld),
    )


def _clue(config: str, *columns: Column, labels: int = 0, test: Split | None = None) -> HubDataset:
    """Rows as in the Hub's own description of the data set; ``labels`` 0: its answers are no label."""
    label = (Column("label", "label", (0, labels - 1)),) if labels else ()
    return HubDataset(
        repository="clue/clue",
        config=config,
        revision=MOVING,
        licence="not stated",
        columns=(*columns, *label),
        splits=_splits(config) | ({} if test is None else {"test": test}),
        withheld={}
        if test
        else {"test": "its labels are kept by CLUE's server; Table 5 is about the validation split"},
    )


_ALL = (
    _wikitext("wikitext-103-v1", 155_788_327, 155_928_670),
    _wikitext("wikitext-103-raw-v1", 156_987_808, 157_088_770),
    _glue("mnli", "premise", "hypothesis", labels=3, tests=("test_matched", "test_mismatched")),
    _glue("qnli", "question", "sentence"),
    _glue("qqp", "question1", "question2", blank=True),  # some of Quora's questions are empty
    _glue("sst2", "sentence"),
    _glue("mrpc", "sentence1", "sentence2", withheld=f"its labels are public (1,725 rows), but {_ON_VALIDATION}"),
    _glue("cola", "sentence"),
    HubDataset(
        repository="stanfordnlp/imdb",
        config="plain_text",
        revision="e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
        licence="not stated; for research (Maas et al., 2011)",
        columns=(Column("text", "text"), Column("label", "label", (0, 1))),
        splits=_splits("imdb", "plain_text"),
        withheld={"unsupervised": "it has no labels"},
    ),
    HubDataset(
        repository="uoft-cs/cifar10",
        config="plain_text",
        revision="0b2714987fa478483af9968de7c934580d0bb9a2",
        licence="not stated (Krizhevsky, 2009)",
        columns=(Column("img", "image", size=(32, 32)), Column("label", "label", (0, 9))),
        splits=_splits("cifar10", "plain_text"),
    ),
    HubDataset(
        repository="ylecun/mnist",
        config="mnist",
        revision=MOVING,
        licence="MIT, as the data set's card says",
        columns=(Column("image", "image", size=(28, 28)), Column("label", "label", (0, 9))),
        splits=_splits("mnist"),
    ),
    HubDataset(
        repository="openslr/librispeech_asr",
        config="clean",
        revision="71cacbfb7e2354c4226d01e70d77d5fca3d04ba1",
        licence="CC BY 4.0",
        columns=(
            Column("audio", "audio"),
            Column("text", "text"),
            Column("speaker_id", "label", (0, 99_999), optional=True),
        ),
        splits={
            "train.100": Split(_numbered("clean/train.100", 14, 470_000_000), 28_539),
            "validation": Split(_numbered("clean/validation", 1, 358_000_000), 2_703),
            "test": Split(_numbered("clean/test", 1, 366_000_000), 2_620),
        },
        withheld={"train.360": "80 hours are wanted, as WSJ has; train.100 has 100"},
    ),
    HubDataset(
        repository="OpenNLPLab/lra",
        config="aan",
        revision="6cb133c44f406da743661488df9e977b87d98775",
        licence="not stated (ACL Anthology Network)",
        columns=(Column("label", "label", (0, 1)), Column("text1", "text"), Column("text2", "text")),
        splits={
            "train": Split((HubFile("data/aan/new_aan_pairs.train.tsv", 8_500_000_000),), 147_086),
            "validation": Split((HubFile("data/aan/new_aan_pairs.eval.tsv", 1_000_000_000),), 18_090),
            "test": Split((HubFile("data/aan/new_aan_pairs.test.tsv", 1_000_000_000),), 17_437),
        },
        tsv=("label", "id1", "id2", "text1", "text2"),
    ),
    _clue(
        "tnews", Column("sentence", "text"), labels=15, test=Split((_parquet("tnews", "test", 650_000),), 10_000, True)
    ),
    _clue("afqmc", Column("sentence1", "text"), Column("sentence2", "text"), labels=2),
    _clue("csl", Column("keyword", "nested"), Column("abst", "text"), labels=2),
    _clue("iflytek", Column("sentence", "text"), labels=119),
    _clue("cluewsc2020", Column("text", "text"), Column("target", "nested"), labels=2),
    _clue("cmnli", Column("sentence1", "text"), Column("sentence2", "text"), labels=3),
    _clue("cmrc2018", Column("context", "text"), Column("question", "text"), Column("answers", "nested")),
    _clue("chid", Column("candidates", "nested"), Column("content", "nested"), Column("answers", "nested")),
    _clue(
        "c3",
        Column("context", "nested"),
        Column("question", "text"),
        Column("choice", "nested"),
        Column("answer", "text"),
    ),
)
DATASETS: dict[str, HubDataset] = {dataset.name: dataset for dataset in _ALL}

SPEECH = {"librispeech-clean-100": "openslr/librispeech_asr/clean"}  # corpora of speech by their names in parameters

GPT2 = TokenizerFiles(
    repository="openai-community/gpt2",
    revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
    licence="MIT",
    vocabulary=HubFile("vocab.json", 1_042_301, "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
    merges=HubFile("merges.txt", 456_318, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
)
