"""The digests of a folder when several processes write them."""

import subprocess
import sys
from pathlib import Path

import pytest

from transnormer_lib import sums

CHECKOUT = Path(__file__).resolve().parents[1]
ENTER = "path.write_text(path.name); sums.enter(path)"
WRITE = "sums.write(path, path.name)"
SCRIPT = """
import sys
from pathlib import Path
from transnormer_lib import sums
for number in range(40):
    path = Path(sys.argv[1]) / f"{{sys.argv[2]}}-{{number}}"
    {one}
"""


@pytest.mark.parametrize("one", [ENTER, WRITE], ids=["enter", "write"])
def test_two_processes_lose_no_entry_of_each_other(one: str, tmp_path: Path) -> None:
    folder = tmp_path / "night"
    folder.mkdir()
    command = [sys.executable, "-c", SCRIPT.format(one=one), str(folder)]
    writers = [subprocess.Popen([*command, name], cwd=CHECKOUT) for name in ("a", "b")]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    names = {f"{name}-{number}" for name in ("a", "b") for number in range(40)}
    sums.check(folder, names)
    assert {path.name for path in folder.iterdir()} == names | {sums.FILE}


@pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="no checkout of git")
def test_the_lock_of_kept_results_is_out_of_git_s_sight() -> None:
    asked = ["git", "-C", str(CHECKOUT), "check-ignore", "--quiet"]
    assert subprocess.run([*asked, "reports/kept/.night.sums.lock"], check=False).returncode == 0
    assert subprocess.run([*asked, "reports/kept/night/SHA256SUMS"], check=False).returncode == 1
