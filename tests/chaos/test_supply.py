"""What is installed: every package pinned, every file of the lock with a digest; JupyterLab for this machine alone."""

import re
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_trials import Tried
from project_factory import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
LOCK = (CHECKOUT / "requirements.lock").read_text()
PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    return {plain(name): version for name, version in PIN.findall(text)}


def test_every_package_of_the_lock_has_a_version_and_digests(tried: Tried) -> None:
    entries = re.split(r"\n(?=\S)", LOCK.strip())
    for entry in entries:
        assert PIN.match(entry), entry[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry[:80]
    assert "://" not in LOCK
    tried("package locked", len(entries))


def test_the_lock_has_what_is_pinned_and_what_is_needed(tried: Tried) -> None:
    locked, pinned = pins(LOCK), pins((CHECKOUT / "constraints.txt").read_text())
    assert {name: locked[name] for name in locked.keys() & pinned.keys()} == {
        name: pinned[name] for name in locked.keys() & pinned.keys()
    }, "run: make lock"
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    needed = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"]]
    needed += project["build-system"]["requires"]
    names = {plain(re.match(r"[\w.-]+", one)[0]) for one in needed}  # type: ignore[index]
    assert names - locked.keys() == set(), "run: make lock"
    tried("package locked", len(names))


def test_a_locked_set_up_installs_nothing_but_the_lock(tried: Tried) -> None:
    said = subprocess.run(
        ["make", "-n", "-B", "setup", "LOCKED=1"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout
    installs = said.replace("\\\n", " ").split("pip install ")[1:]
    # When pip resolves, it takes an extra of a package for another package, which the lock lacks.
    assert ["--require-hashes --no-deps -r requirements.lock" in installs[0], len(installs)] == [True, 2]
    assert "--no-deps --no-build-isolation -e ." in installs[1]
    tried("locked set-up")


def test_the_container_and_the_tools_are_locked(tried: Tried) -> None:
    assert "make setup LOCKED=1" in (CHECKOUT / "Containerfile").read_text()
    (tools,) = re.findall(r"supply.log (.+) \\$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert len(pins(tools.replace(" ", "\n"))) == len(tools.split()) == 3
    tried("locked set-up")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """A JupyterLab with the options of ``make lab`` and no configuration: its port and its process."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.delenv("JUPYTER_TOKEN", raising=False)
    rule = re.search(r"^\t@\$\(BIN\)/jupyter lab (.+)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None
    options = [word for word in rule[1].split() if not word.startswith("$") and not word.endswith(".ipynb")]
    log = tmp_path / "lab.log"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0", *options]
    with log.open("w") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        address = re.compile(r"http://127\.0\.0\.1:(\d+)/\S*token=[0-9a-f]{48}")
        wait_until(lambda: address.search(log.read_text()) is not None or server.poll() is not None)
        found = address.search(log.read_text())
        assert found is not None, log.read_text()
        yield int(found[1]), server.pid
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
def test_lab_listens_on_this_machine_alone_and_asks_for_a_token(lab: tuple[int, int], tried: Tried) -> None:
    port, _ = lab
    for path in ("api/contents", "api/kernels", "api/sessions", "api/terminals"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20)
        assert refused.value.code == 403
    with socket.socket() as other:  # another address of this machine, which a server of 0.0.0.0 would answer
        other.settimeout(5)
        with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
            other.connect(("127.0.0.2", port))
    tried("server", 5)
