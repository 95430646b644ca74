"""Little memory is imitated by what a machine allows, and skipped with the reason where it allows nothing."""

import os
import subprocess
from pathlib import Path

import machines
import pytest

RUNS = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'  # without its options
REFUSES = "#!/bin/sh\nexit 1\n"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands before all others, on a machine whose control groups may not be written."""
    monkeypatch.setattr(machines, "CONTROL_GROUPS", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name in ("systemd-run", "sudo", "setpriv"):
        make(tmp_path / name, REFUSES)
    return tmp_path


def make(path: Path, script: str) -> None:
    path.write_text(script)
    path.chmod(0o755)


@pytest.mark.parametrize("allowed", [["systemd-run"], ["sudo", "setpriv"]], ids="-".join)
def test_a_user_who_is_not_root_gets_little_memory_from_systemd_or_sudo(allowed: list[str], commands: Path) -> None:
    for name in allowed:
        make(commands / name, RUNS)
    if allowed == ["sudo", "setpriv"]:  # systemd-run refuses a user's scope, not root's
        make(commands / "systemd-run", f'#!/bin/sh\nfor o; do [ "$o" = --user ] && exit 1; done\n{RUNS[10:]}')
    prefix = machines.little_memory()
    assert prefix[0] == allowed[0]
    assert f"--property=MemoryMax={4 * 2**30}" in prefix
    assert subprocess.run([*prefix, "echo", "it ran"], capture_output=True, text=True).stdout == "it ran\n"


def test_without_either_the_machine_is_skipped_with_the_reason(commands: Path) -> None:
    with pytest.raises(machines.Absent, match="needs a memory control group, which root or systemd may make"):
        machines.little_memory()
