"""The data sets that are not embedded: where they lie on the Hugging Face Hub, and what is expected in them.

A data set is named by its place, ``OWNER/NAME/CONFIG``: the same path below ``TRANSNORMER_DATA_ROOT`` holds its files
as ``SPLIT-*.parquet``. ``sources`` reads them; this module only describes.

Revisions are commits of the Hub's repositories, so a repository that changes does not change what is read. They, and
the sha256 of files, were taken from public repositories that pin the same commits and publish the digests they got
(those of GPT-2's files stand in openai/tiktoken too); sizes of files without a digest are approximate. The revision
of ``clue/clue`` was found nowhere: ``main`` stands there, ``pinned`` is false, and the fingerprints that its first
reading records are what later readings are held to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MOVING = "main"  # a revision that is a branch, not a commit


@dataclass(frozen=True)
class Column:
    """One column that is read, and what its values must be."""

    name: str
    kind: Literal["text", "label", "image"]  # image: a structure whose field ``bytes`` is a PNG or JPEG file
    labels: tuple[int, int] | None = None  # the lowest and the highest label
    blank: bool = False  # text: a row may be empty
    size: tuple[int, int] | None = None  # image: width and height in pixels


@dataclass(frozen=True)
class HubFile:
    """One file of a repository."""

    path: str  # below the repository's root
    size: int  # bytes; approximate where sha256 is None
    sha256: str | None = None


@dataclass(frozen=True)
class Split:
    """One split of a data set."""

    files: tuple[HubFile, ...]
    rows: int  # as published; a sample in a data root has fewer
    hidden_labels: bool = False  # the publisher keeps the labels: -1 stands for each

    @property
    def size(self) -> int:
        """Bytes of all files."""
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
    title: str
    tsv: tuple[str, ...] = ()  # names of the columns of tab-separated files without a header; else Parquet
    withheld: Mapping[str, str] = field(default_factory=dict)  # splits that exist and are of no use, and why

    @property
    def name(self) -> str:
        return f"{self.repository}/{self.config}"

    @property
    def pinned(self) -> bool:
        """Whether the revision names a commit."""
        return self.revision != MOVING


@dataclass(frozen=True)
class TokenizerFiles:
    """The files of a published byte-pair vocabulary."""

    repository: str
    revision: str
    licence: str
    title: str
    vocabulary: HubFile
    merges: HubFile

    @property
    def size(self) -> int:
        return self.vocabulary.size + self.merges.size


def _parquet(config: str, split: str, size: int, sha256: str | None = None, shard: int = 0, of: int = 1) -> HubFile:
    return HubFile(f"{config}/{split}-{shard:05}-of-{of:05}.parquet", size, sha256)


def _wikitext(config: str, sizes: tuple[int, int, int, int], title: str) -> HubDataset:
    first, second, validation, test = sizes
    shards = (_parquet(config, "train", first, None, 0, 2), _parquet(config, "train", second, None, 1, 2))
    return HubDataset(
        repository="Salesforce/wikitext",
        config=config,
        revision="b08601e04326c79dfdd32d625aee71d232d685c3",
        licence="CC BY-SA 3.0 and GFDL",
        # A row is a line; the Hub's copy left blank lines empty.
        columns=(Column("text", "text", blank=True),),
        splits={
            "train": Split(shards, 1_801_350),
            "validation": Split((_parquet(config, "validation", validation),), 3_760),
            "test": Split((_parquet(config, "test", test),), 4_358),
        },
        title=title,
    )


_ON_VALIDATION = "the paper's scores are those of the validation split"
_GLUE_TEST = f"its labels are kept by GLUE's server; {_ON_VALIDATION}"
_MRPC_TEST = f"its labels are public (1,725 rows), but {_ON_VALIDATION}"
_PER_TASK = "of each task's own authors; see the data set's card"


def _glue(
    config: str,
    texts: tuple[str, ...],
    labels: int,
    splits: Mapping[str, tuple[int, int, str]],
    title: str,
    *,
    blank: bool = False,
    tests: tuple[str, ...] = ("test",),
) -> HubDataset:
    """``splits``: rows, bytes and sha256 of each split's one file."""
    return HubDataset(
        repository="nyu-mll/glue",
        config=config,
        revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
        licence=_PER_TASK,
        columns=(*(Column(text, "text", blank=blank) for text in texts), Column("label", "label", (0, labels - 1))),
        splits={
            name: Split((_parquet(config, name, size, digest),), rows) for name, (rows, size, digest) in splits.items()
        },
        title=title,
        withheld=dict.fromkeys(tests, _MRPC_TEST if config == "mrpc" else _GLUE_TEST),
    )


_ALL = (
    _wikitext("wikitext-103-v1", (155_788_327, 155_928_670, 655_106, 721_735), "WikiText-103, words"),
    _wikitext("wikitext-103-raw-v1", (156_987_808, 157_088_770, 657_209, 732_610), "WikiText-103, raw text"),
    _glue(
        "mnli",
        ("premise", "hypothesis"),
        3,
        {
            "train": (392_702, 52_224_361, "49a4a5508b89b8fed2c6e81d2c47d00f4759050a7048c6cc5d95d31122ced3c1"),
            "validation_matched": (
                9_815,
                1_214_936,
                "7f918c09d9c35446b8e8f06a5672f8ab704e2897fecbf52e2e154141f3d7c421",
            ),
            "validation_mismatched": (
                9_832,
                1_251_152,
                "04aba92823a954be36fe1b69b61eed334c9eb1009daba0dd79f69d77b87c535c",
            ),
        },
        "GLUE: MNLI, matched and mismatched",
        tests=("test_matched", "test_mismatched"),
    ),
    _glue(
        "qnli",
        ("question", "sentence"),
        2,
        {
            "train": (104_743, 17_528_917, "ebc7cb70a5bbde0b0336c3d51f31bb4df4673e908e8874b090b52169b1365c6c"),
            "validation": (5_463, 872_062, "e69311b81dc65589286091d9905a27617a90436dd215c7a59832fa8f4f336169"),
        },
        "GLUE: QNLI",
    ),
    _glue(
        "qqp",
        ("question1", "question2"),
        2,
        {
            "train": (363_846, 33_558_839, "4d6f02e643f7c36e9a4f7d4971a5ee9bd74063a319452fe6c87850c739774cd7"),
            "validation": (40_430, 3_729_274, "efd86a539c412d74874ee451573d7bd142f56c47fe36de033b9f367d8bb0fa71"),
        },
        "GLUE: QQP",
        blank=True,  # Quora's release holds a few pairs with an empty question
    ),
    _glue(
        "sst2",
        ("sentence",),
        2,
        {
            "train": (67_349, 3_110_468, "66a253e67968acfabcbe49dbe9da964b42ac1c851c40ab760e8c8942efdb3229"),
            "validation": (872, 72_819, "a1371f3b3a7b0bcefa8388799a9359dc3ce76c349cc0079507a7991364fd2a9b"),
        },
        "GLUE: SST-2",
    ),
    _glue(
        "mrpc",
        ("sentence1", "sentence2"),
        2,
        {
            "train": (3_668, 649_281, "61fd41301e0e244b0420c4350a170c8e7cf64740335fc875a4af2d79af0df0af"),
            "validation": (408, 75_678, "33c007dbf5bfa8463d87a13e6226df8c0fcf2596c2cd39d0f3bb79754e00f50f"),
        },
        "GLUE: MRPC",
    ),
    _glue(
        "cola",
        ("sentence",),
        2,
        {
            "train": (8_551, 251_124, "2e7538afa2000e63f5343f16a758d75c452661a384208399d2035cd2fce45c33"),
            "validation": (1_043, 37_551, "c14b7219a7d9f9fe3dd291fd000f6623ee413805eb108c9c49578ed50873e4ba"),
        },
        "GLUE: CoLA",
    ),
    HubDataset(
        repository="stanfordnlp/imdb",
        config="plain_text",
        revision="e6281661ce1c48d982bc483cf8a173c1bbeb5d31",
        licence="not stated; for research (Maas et al., 2011)",
        columns=(Column("text", "text"), Column("label", "label", (0, 1))),
        splits={
            "train": Split(
                (
                    _parquet(
                        "plain_text",
                        "train",
                        20_979_968,
                        "db47d16b5c297cc0dd625e519c81319c24c9149e70e8496de5475f6fa928342c",
                    ),
                ),
                25_000,
            ),
            "test": Split(
                (
                    _parquet(
                        "plain_text",
                        "test",
                        20_470_363,
                        "b52e26e2f872d282ffac460bf9770b25ac6f102cda0e6ca7158df98c94e8b3da",
                    ),
                ),
                25_000,
            ),
        },
        title="IMDb reviews (LRA Text)",
        withheld={"unsupervised": "it has no labels"},
    ),
    HubDataset(
        repository="uoft-cs/cifar10",
        config="plain_text",
        revision="0b2714987fa478483af9968de7c934580d0bb9a2",
        licence="not stated (Krizhevsky, 2009)",
        columns=(Column("img", "image", size=(32, 32)), Column("label", "label", (0, 9))),
        splits={
            "train": Split(
                (
                    _parquet(
                        "plain_text",
                        "train",
                        119_705_255,
                        "8428b53a88a11ac374111006708df51469e315a22ac6d66470afd9c78d2ae883",
                    ),
                ),
                50_000,
            ),
            "test": Split(
                (
                    _parquet(
                        "plain_text",
                        "test",
                        23_940_850,
                        "841389e6f2d64f28bf17310e430aebac20ec3ba611a3c5e231dc93c645ce84de",
                    ),
                ),
                10_000,
            ),
        },
        title="CIFAR-10 (LRA Image)",
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
        title="AAN pairs (LRA Retrieval)",
        tsv=("label", "id1", "id2", "text1", "text2"),
    ),
    HubDataset(
        repository="clue/clue",
        config="tnews",
        revision=MOVING,
        licence="not stated",
        columns=(Column("sentence", "text"), Column("label", "label", (0, 14))),
        splits={
            "train": Split((_parquet("tnews", "train", 3_400_000),), 53_360),
            "validation": Split((_parquet("tnews", "validation", 650_000),), 10_000),
            "test": Split((_parquet("tnews", "test", 650_000),), 10_000, hidden_labels=True),
        },
        title="CLUE: TNEWS",
    ),
)
DATASETS: dict[str, HubDataset] = {dataset.name: dataset for dataset in _ALL}

GPT2 = TokenizerFiles(
    repository="openai-community/gpt2",
    revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
    licence="MIT",
    title="GPT-2's byte-pair vocabulary",
    vocabulary=HubFile("vocab.json", 1_042_301, "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
    merges=HubFile("merges.txt", 456_318, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
)
