"""What pip installs: the whole package with its data, the kernels alone, each file owned once, without the network."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import transnormer_kernels
import yaml

import transnormer_lib

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "transnormer_lib": ROOT / "transnormer_lib",
    "transnormer_kernels": ROOT / "kernels" / "transnormer_kernels",
}
WHOLE, KERNELS = (tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (ROOT, ROOT / "kernels"))


def _files(package: str) -> set[str]:
    """The files of a package in the checkout, as a wheel names them."""
    folder = PACKAGES[package]
    found = {path.relative_to(folder.parent) for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix() for path in found if "__pycache__" not in path.parts}


def _wheel(folder: Path, into: Path) -> zipfile.ZipFile:
    """The wheel of a copy of ``folder``, so that building leaves nothing in the checkout."""
    ignored = shutil.ignore_patterns(
        ".*", "__pycache__", "build", "*.egg-info", "runs", "reports", "tests", "notebooks"
    )
    copy = into / "copy of the source"
    shutil.copytree(folder, copy, ignore=ignored)
    return _built(str(copy), into)


def _built(source: str, into: Path) -> zipfile.ZipFile:
    """The wheel that pip makes of a folder or an address, with the packages that are installed here."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w"]
    done = subprocess.run([*command, str(into), source], cwd=into, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = into.glob("*.whl")
    return zipfile.ZipFile(wheel)


def _content(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def _run_from(wheel: zipfile.ZipFile, into: Path, code: str) -> str:
    """What ``code`` prints where the wheel is unpacked and the checkout is not on the path."""
    site = into / "site"
    wheel.extractall(site)
    checkout = [str(ROOT), str(ROOT / "kernels")]  # the environment may lie below it, and stays
    program = f"import sys; sys.path[:] = [{str(site)!r}, *(p for p in sys.path if p not in {checkout})]\n{code}"
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=into, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_the_whole_package_has_every_file_of_both_packages(tmp_path: Path) -> None:
    wheel = _wheel(ROOT, tmp_path)
    assert _content(wheel) == _files("transnormer_lib") | _files("transnormer_kernels")
    code = (
        "from transnormer_lib import papers, studies, attention, __file__ as where\n"
        "from transnormer_lib.papers import tables\n"
        "from transnormer_lib.show import templating\n"
        "print(where, attention.about('norm').time, bool(tables.load('transnormer', 'table_1')))"
    )
    where, *facts = _run_from(wheel, tmp_path, code).split()
    assert Path(where).is_relative_to(tmp_path)
    assert facts == ["N·D²", "True"]


@pytest.mark.slow
def test_the_kernels_alone_have_every_file_and_need_no_library(tmp_path: Path) -> None:
    wheel = _wheel(ROOT / "kernels", tmp_path)
    assert _content(wheel) == _files("transnormer_kernels")
    code = (
        "import transnormer_kernels as kernels, transnormer_kernels.bench\n"
        "print(kernels.__file__, 'transnormer_lib' in sys.modules)"
    )
    where, *facts = _run_from(wheel, tmp_path, code).split()
    assert Path(where).is_relative_to(tmp_path)
    assert facts == ["False"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="needs a checkout of git")
def test_pip_installs_what_is_committed_from_the_address_of_the_repository(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*words: str, folder: Path = repository) -> None:
        command = ["git", "-c", "user.name=A test", "-c", "user.email=a@test", *words]
        subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=True)

    git("archive", "--output", str(tmp_path / "committed.tar"), "HEAD", folder=ROOT)
    shutil.unpack_archive(tmp_path / "committed.tar", repository, filter="data")
    git("init")
    for option in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):  # as hosts set them
        git("config", option, "true")
    git("add", "--all")
    git("commit", "--message", "A copy")
    wheel = _built(f"git+{repository.as_uri()}", tmp_path)
    modules = {name for name in _content(wheel) if name.endswith("/__init__.py")}
    assert {f"{package}/__init__.py" for package in PACKAGES} <= modules


def test_a_type_checker_reads_the_annotations_of_both_packages() -> None:
    for package, folder in PACKAGES.items():
        assert (folder / "py.typed").exists(), package
        assert "py.typed" in WHOLE["tool"]["setuptools"]["package-data"][package]


def test_the_kernels_ask_for_torch_and_triton_as_the_whole_package_does() -> None:
    asked = KERNELS["project"]["dependencies"]
    assert [re.match(r"\w+", line)[0] for line in asked] == ["torch", "triton"]  # type: ignore[index]
    assert set(asked) < set(WHOLE["project"]["dependencies"])
    assert KERNELS["project"]["requires-python"] == WHOLE["project"]["requires-python"]


def test_a_version_is_written_in_its_package_and_cited_so() -> None:
    for project, package in ((WHOLE, transnormer_lib), (KERNELS, transnormer_kernels)):
        assert project["project"]["dynamic"] == ["version"]
        attribute = project["tool"]["setuptools"]["dynamic"]["version"]["attr"]
        assert attribute == f"{package.__name__}.__version__"
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == transnormer_lib.__version__
