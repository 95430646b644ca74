"""A sample of the tests on other machines: ``make machines``, or ``python tests/machines.py NAME...`` for some.

One core, old processors and little memory are imitated here. Other versions of Python and of torch are installed into
environments of their own, under ``.venv/machines``, where an interpreter or a wheel can be had. What cannot be had or
imitated is said; the workflow's matrix tries it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv" / "machines"
SAMPLE = "12"  # one test of so many
GIB = 2**30
CONTROL_GROUPS = Path("/sys/fs/cgroup")
PINNED = "tests/test_environment.py::test_every_dependency_is_pinned_within_its_range_and_installed_so"


class Absent(Exception):
    """This machine cannot be had or imitated here; the message says why."""


@dataclass(frozen=True)
class Machine:
    """What a run of the tests gets."""

    python: Callable[[], Path] = lambda: Path(sys.executable)
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix: Callable[[], Sequence[str | Path]] = tuple  # of the command
    but: str = ""  # the tests that need not pass, as pytest names them


def one_core() -> Sequence[str | Path]:
    """What keeps a command on the first core that this process may use."""
    if not shutil.which("taskset"):
        raise Absent("needs taskset")
    return ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]


def little_memory() -> Sequence[str | Path]:
    """What gives 4 GiB to all processes of a command together."""
    for folder, limit in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        group = CONTROL_GROUPS / folder / "transnormer-machines"
        try:
            group.mkdir(exist_ok=True)
            (group / limit).write_text(str(4 * GIB))
        except OSError:
            continue
        return ["sh", "-c", 'echo $$ >"$0" && exec "$@"', group / "cgroup.procs"]
    scope = ["systemd-run", "--quiet", "--scope", f"--property=MemoryMax={4 * GIB}"]
    back = ["setpriv", f"--reuid={os.getuid()}", f"--regid={os.getgid()}", "--init-groups"]  # from root to this user
    for prefix in ([*scope, "--user"], ["sudo", "--non-interactive", "--preserve-env", *scope, *back]):
        with suppress(OSError, subprocess.SubprocessError):
            if subprocess.run([*prefix, "true"], capture_output=True, timeout=30).returncode == 0:
                return prefix
    raise Absent("needs a memory control group, which root or systemd may make")


def interpreter(version: str) -> Path:
    """An installed Python of this version."""
    name = f"python{version}"
    found = [*Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"), *filter(None, [shutil.which(name)])]
    for path in map(Path, found):
        if subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    raise Absent(f"{name} is not installed")


def installed(name: str, python: Path, *requirements: str) -> Path:
    """The interpreter of an environment with the project, its pinned packages, and ``requirements`` in their stead."""
    folder = FOLDER / name
    if not (folder / ".installed").exists():
        replaced = tuple(requirement.partition("==")[0] + "==" for requirement in requirements)
        # A version of torch brings the version of triton that fits it.
        skipped = (*replaced, "triton==") if replaced else ()
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        folder.mkdir(parents=True, exist_ok=True)
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(line for line in lines if not line.startswith(skipped or "\0")))
        command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", constraints]
        subprocess.run([python, "-m", "venv", folder], check=True)
        done = subprocess.run([*command, *requirements, "-e", f"{ROOT}[dev]"], capture_output=True, text=True)
        if done.returncode:
            raise Absent(f"cannot be installed: {done.stderr.strip().splitlines()[-1][:160]}")
        (folder / ".installed").touch()
    return folder / "bin" / "python"


def with_python(version: str) -> Machine:
    """This project under another Python."""
    return Machine(lambda: installed(f"python-{version}", interpreter(version)))


def with_torch(version: str, *others: str) -> Machine:
    """This project with another torch, and other versions of other packages."""
    return Machine(
        lambda: installed(f"torch-{version}", Path(sys.executable), f"torch=={version}", *others), but=PINNED
    )


MACHINES = {
    "one core": Machine(prefix=one_core),
    "AVX2 alone, no bfloat16": Machine(environment={"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}),
    "no AVX": Machine(environment={"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}),
    "4 GiB of memory": Machine(prefix=little_memory),
    **{f"Python {version}": with_python(version) for version in ("3.11", "3.12", "3.13")},
    # The interpreter of its Triton takes an array of one number for a number, which NumPy refuses from 2.4 on.
    "torch 2.11.0, the oldest supported": with_torch("2.11.0", "numpy==2.3.5"),
    "torch 2.15.0, the newest": with_torch("2.15.0"),
}


def tried(machine: Machine) -> tuple[bool, str]:
    """Run the sample; whether it passed, and the last line of the tests. Raises Absent."""
    environment = os.environ | {"TRANSNORMER_SAMPLE": SAMPLE} | machine.environment
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "-r", "fE"]
    options += ["--deselect", machine.but] if machine.but else []
    done = subprocess.run(
        [*machine.prefix(), machine.python(), "-m", "pytest", *options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    faults = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return done.returncode == 0, "\n  ".join([lines[-1], *faults])


def main() -> int:
    """Exit code 1 if a test failed on any of them."""
    wrong = 0
    for name in sys.argv[1:] or MACHINES:
        if name not in MACHINES:
            raise SystemExit(f"machine={name!r}: must be one of {', '.join(MACHINES)}")
        try:
            good, line = tried(MACHINES[name])
        except (Absent, subprocess.SubprocessError) as why:
            good, line = True, f"skipped: {why}"
        wrong += not good
        print(f"machines: {name}: {line}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
