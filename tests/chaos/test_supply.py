"""What is installed: every package pinned, every file of the lock with a digest; JupyterLab for this machine alone."""

import json
import re
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import metadata
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


def audit(folder: Path, tool: str | None) -> tuple[int, str]:
    """Exit code and words of ``make audit`` with this text as pip-audit; None for one that cannot be installed."""
    supply, broken, set_up = folder / "supply", folder / "bin" / "python", folder / "set-up"
    for name, script in ((supply / "bin" / "pip-audit", tool or ""), (broken, "exit 1")):
        name.parent.mkdir(parents=True)
        name.write_text(f"#!/bin/sh\n{script}\n")
        name.chmod(0o755)
    set_up.touch()  # newer than what it is made from
    if tool is not None:
        (supply / ".installed").touch()
    own = {"STAMP": set_up, "BIN": broken.parent, "SUPPLY": supply, "VENV": folder}
    command = ["make", "audit", *(f"{name}={value}" for name, value in own.items())]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


WRITES = 'while [ "$1" != --output ]; do shift; done; echo {{}} > "$2"; echo {said} >&2; exit {code}'
AUDITS = {
    "a known fault": (WRITES.format(said="torch has a fault", code=1), False, "torch has a fault"),
    "none": (WRITES.format(said="No known faults", code=0), True, "No known faults"),
    "no network": ("echo cannot connect >&2; exit 1", True, "skipped, advisories cannot be reached now"),
    "no tool": (None, True, "skipped, the tool cannot be had now"),
}


@pytest.mark.parametrize("found", AUDITS)
def test_an_audit_fails_for_a_known_fault_and_says_what_it_could_not_ask(
    found: str, tmp_path: Path, tried: Tried
) -> None:
    tool, passes, said = AUDITS[found]
    code, words = audit(tmp_path, tool)
    assert (code == 0) is passes, words
    assert said in words
    tried("audit")


@pytest.mark.slow
def test_the_bill_of_materials_lists_what_is_installed_with_versions(tmp_path: Path, tried: Tried) -> None:
    if not (CHECKOUT / ".venv" / ".installed").exists():
        pytest.skip("this checkout has no environment of its own")
    done = subprocess.run(["make", "sbom"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if "supply: failed" in done.stderr:
        pytest.skip("the tool cannot be had now")
    assert done.returncode == 0, done.stderr
    parts = json.loads((CHECKOUT / "sbom.json").read_text())["components"]
    listed = {plain(part["name"]): part["version"] for part in parts}
    installed = {plain(one.metadata["Name"]): one.version for one in metadata.distributions()}
    assert listed == {name: version for name, version in installed.items() if name in listed}
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert {plain(re.match(r"[\w.-]+", one)[0]) for one in project["dependencies"]} <= listed.keys()  # type: ignore[index]
    tried("bill of materials", len(listed))


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


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
        wait_until(lambda: _answers(int(found[1])))  # it names its address before it listens
        yield int(found[1]), server.pid
    finally:
        server.terminate()
        server.wait(30)


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
