"""The paths of a checkout, and what a preset is.

A project is a folder with ``notebooks/`` and ``params/``. ``params/<preset>/preset.yaml`` describes the preset; beside
it, one YAML per notebook has values for the notebook's parameters cell.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from transnormer_lib.checks import check_fields, nearest
from transnormer_lib.choices import SCALES, Scale
from transnormer_lib.files import read_yaml
from transnormer_lib.strict import from_plain

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells
# Names of files and folders that jobs are named by.
_NOTEBOOK = re.compile(r"\d{2}_\w+", re.ASCII)
_PRESET = re.compile(r"\w[\w-]*", re.ASCII)


class UserMistake(ValueError):
    """A mistake that the user can correct; the message is one line that says how. The command exits with 2."""


@dataclass(frozen=True)
class Preset:
    """One scale: how its notebooks are run."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012  read by pydantic, not a field

    scale: Scale  # decides which verdicts are possible; the preset's name, and quick for presets of other names
    description: str  # one line for the index page
    device: Literal["cpu", "gpu"]  # gpu: jobs on one machine take turns
    threads: int = field(metadata={"most": 1024})  # per process; with 1 results do not depend on the number of cores
    # A notebook that takes longer is stopped and has failed; at most a year.
    minutes_per_notebook: float = field(metadata={"most": 365 * 24 * 60})
    runs_per_job: int  # training runs per Snakemake job; 1 spreads them most widely over a cluster

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of every process of this preset; set them before torch is imported.

        A CPU preset uses the CPU even if there is a GPU, so that both machines give the same results.
        """
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self.threads))
        return threads | ({"ACCELERATE_USE_CPU": "true"} if self.device == "cpu" else {})


@dataclass(frozen=True)
class Project:
    """Paths of one checkout, and the names of its notebooks and presets."""

    root: Path

    @property
    def notebooks(self) -> list[str]:
        """Stems of the numbered notebooks, in order."""
        return sorted(p.stem for p in (self.root / "notebooks").glob("*.ipynb") if _NOTEBOOK.fullmatch(p.stem))

    @property
    def notebook_of_study(self) -> dict[str, str]:
        """Study → notebook: ``glue`` → ``06_glue``. A study has the name of its notebook without the number."""
        return {notebook[3:]: notebook for notebook in self.notebooks}

    @property
    def presets(self) -> list[str]:
        found = (path.parent.name for path in (self.root / "params").glob("*/preset.yaml"))
        return sorted(name for name in found if _PRESET.fullmatch(name))

    def notebook_path(self, notebook: str) -> Path:
        return self.root / "notebooks" / f"{notebook}.ipynb"

    def values_path(self, preset: str, notebook: str) -> Path:
        return self.root / "params" / preset / f"{notebook}.yaml"

    def report_dir(self, preset: str) -> Path:
        return self.root / "reports" / preset

    def select(self, only: list[str] | None) -> list[str]:
        """The notebooks that ``only`` names by number or by name; by default all."""
        if not only:
            return self.notebooks
        chosen = []
        for wanted in only:
            stem = wanted.removesuffix(".ipynb")
            matches = [n for n in self.notebooks if n == stem or n.split("_")[0] == stem]
            if not matches:
                raise UserMistake(f"only={wanted!r}: no such notebook{nearest(stem, self.notebooks)}")
            chosen += matches
        return sorted(set(chosen))

    def preset(self, name: str) -> Preset:
        """The preset's description, checked strictly. Raises UserMistake for one that is wrong or unknown."""
        if name not in self.presets:
            raise UserMistake(f"preset={name!r}: unknown{nearest(name, self.presets)}")
        path = self.root / "params" / name / "preset.yaml"
        try:
            found = from_plain(Preset, self._mapping(path))
        except UserMistake:
            raise
        except ValueError as fault:
            raise UserMistake(f"{path.relative_to(self.root)}: {fault}") from None
        # What a preset trains is not measured: only the presets that the scales are named after may claim them.
        own = name if name in SCALES else SCALES[0]
        if found.scale != own:
            raise UserMistake(
                f"{path.relative_to(self.root)}: scale={found.scale!r}: must be {own!r} in preset {name!r}"
            )
        return found

    def values(self, preset: str, notebook: str) -> dict[str, Any]:
        """The preset's values for the notebook's parameters; {} if it has no file for it."""
        path = self.values_path(preset, notebook)
        return self._mapping(path) if path.exists() else {}

    def _mapping(self, path: Path) -> dict[str, Any]:
        try:
            loaded = read_yaml(path)
        except ValueError as fault:
            raise UserMistake(f"{path.parent.relative_to(self.root)}/{fault}") from None
        if loaded is None:
            return {}
        if not isinstance(loaded, dict) or not all(isinstance(key, str) for key in loaded):
            raise UserMistake(f"{path.relative_to(self.root)}: must map names to values")
        return loaded


def find_project(root: Path | None = None) -> Project:
    """The project in the folder ``root``; by default that around the current folder, else this package's checkout.

    Raises UserMistake for a ``root`` that holds none, for none at all, and for a path that the locale cannot write.
    """
    start = (root or Path.cwd()).resolve()
    try:
        str(start).encode()
    except UnicodeEncodeError:
        named, encoding = ascii(str(start)), sys.getfilesystemencoding()
        raise UserMistake(
            f"folder={named}: has characters that the locale ({encoding}) lacks; set PYTHONUTF8=1"
        ) from None
    around = [] if root else [*start.parents, Path(__file__).resolve().parents[1]]
    for folder in (start, *around):
        if (folder / "notebooks").is_dir() and (folder / "params").is_dir():
            return Project(folder)
    if root:
        raise UserMistake(f"root={str(root)!r}: must be a folder that holds notebooks/ and params/")
    raise UserMistake(f"folder={str(start)!r}: neither it nor one above it holds notebooks/ and params/")
