"""Run one notebook with papermill and check the result.

``python -m transnormer_lib.report.guard --preset quick 01_gradient_theory``

papermill alone misses several failures: a killed kernel leaves cells marked "completed", ``sys.exit(0)`` ends a
notebook silently, an unknown parameter only prints a warning. So parameters are checked before the run, and afterwards
every code cell must have been executed without an error. A record always says how the run ended; the last good copy of
an executed notebook is replaced only by another good one.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transnormer_lib.exhausted import DiskFull, writing
from transnormer_lib.ledger.judging import read_notebook
from transnormer_lib.ledger.seals import displayed
from transnormer_lib.ledger.verdicts import ON_REAL_DATA
from transnormer_lib.progress import say
from transnormer_lib.project import INTERRUPTED, Project, UserMistake, find_project
from transnormer_lib.report.records import Outcome, write_record
from transnormer_lib.report.signals import on_ending, undisturbed
from transnormer_lib.show.controls import HEADLESS
from transnormer_lib.show.evidence import PROVENANCE_MIME
from transnormer_lib.visible import shows_plainly

_DEAD = "the kernel died (killed, or out of memory)"


class NotebookFailed(RuntimeError):
    """The notebook did not run to its end; the message is one line."""


class DataAbsent(NotebookFailed):
    """The notebook needs data that this machine does not have; the message says which and how to get them."""


# Raised by signal handlers inside asyncio's loop, which passes on only KeyboardInterrupt and SystemExit.
class TimeLimit(KeyboardInterrupt):
    """The notebook exceeded its time limit."""


class Stopped(KeyboardInterrupt):
    """A signal asked the process to end."""


def one_line(text: str, limit: int = 300) -> str:
    """The first non-empty line of a text, without colour codes, cut to ``limit`` characters."""
    import re

    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    line = next((line.strip() for line in plain.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _code(notebook: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The code cells with their numbers in the source notebook, where papermill's injected cell does not count."""
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += "injected-parameters" not in cell.get("metadata", {}).get("tags", [])
            yield number, cell


def check_executed(notebook: dict[str, Any]) -> None:
    """Raise :class:`NotebookFailed` unless every non-empty code cell ran without an error; :class:`DataAbsent` if the
    error is missing data."""
    for number, cell in _code(notebook):
        for output in cell.get("outputs", []):
            if output.get("output_type") != "error":
                continue
            name, value = output.get("ename", "error"), one_line(output.get("evalue", ""))
            if name == "SystemExit":
                raise NotebookFailed(f"code cell {number} ended the notebook with sys.exit({value})")
            if name == "DataUnavailable":
                raise DataAbsent(value)
            raise NotebookFailed(f"code cell {number}: {name}: {value}")
    for number, cell in _code(notebook):
        if "".join(cell["source"]).strip() and cell.get("execution_count") is None:
            raise NotebookFailed(f"code cell {number} never ran")


def _found_provenance(notebook: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _, cell in _code(notebook):
        for output in cell.get("outputs", []):
            for key, value in output.get("data", {}).get(PROVENANCE_MIME, {}).items():
                found[key] = {**found.get(key, {}), **value} if isinstance(value, dict) else value
    return found


def _literal(path: Path) -> str:
    """The path for papermill, which formats paths with the parameters."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _execute(project: Project, notebook: str, parameters: dict[str, Any], partial: Path, minutes: float) -> None:
    import logging

    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    from transnormer_lib.report.kernel import ThisInterpreterKernel, kill_kernel, reap_kernel

    def on_alarm(_signal: int, _frame: object) -> None:
        kill_kernel()
        raise TimeLimit

    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # we report the failure ourselves, in one line
    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        with writing(partial.parent):
            papermill.execute_notebook(
                _literal(project.notebook_path(notebook)),
                _literal(partial),
                parameters=parameters,
                kernel_name="python3",
                kernel_manager_class=ThisInterpreterKernel,
                cwd=str(project.root),
                progress_bar=False,
                coalesce_streams=True,
                start_timeout=300,  # long: on a busy machine kernels start slowly
                iopub_timeout=60,
            )
    except PapermillExecutionError:
        pass  # check_executed finds the error in the partial notebook
    except DeadKernelError:
        raise NotebookFailed(_DEAD) from None
    except TimeLimit:
        raise NotebookFailed(f"stopped after {minutes:g} minutes, the preset's limit for one notebook") from None
    except DiskFull:
        raise
    except Exception:
        # If the kernel died between two cells, the next request to it fails with any kind of error.
        if (process := ThisInterpreterKernel.process) is not None and process.poll() is not None:
            raise NotebookFailed(_DEAD) from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        reap_kernel()


def run_notebook(project: Project, preset_name: str, notebook: str) -> dict[str, Any]:
    """Run a notebook; write and return its record. Raises :class:`UserMistake` only for an unknown preset.

    A successful copy becomes ``reports/<preset>/<notebook>.ipynb``. A failed or partial copy goes to ``failed/``
    beside it, and the last good copy stays.
    """
    from transnormer_lib.provenance.environment import peak_memory_bytes, provenance
    from transnormer_lib.report import parameters as notebook_parameters
    from transnormer_lib.report.staleness import digest

    preset = project.preset(preset_name)
    partial = project.report_dir(preset_name) / ".partial" / f"{notebook}.ipynb"
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)
    # The kernel inherits the preset's threads and device, and shows neither progress bars nor sliders.
    os.environ.update(preset.environment, TQDM_DISABLE="1", PYDEVD_DISABLE_FILE_VALIDATION="1")
    os.environ[HEADLESS] = "1"
    outcome, clock = Outcome(preset_name, notebook, time.time(), provenance()), time.perf_counter()
    try:
        outcome.parameters = notebook_parameters.resolve(project, preset_name, notebook)
        outcome.digest = digest(project, notebook, outcome.parameters)
        differing = notebook_parameters.changed(project, notebook, outcome.parameters)
        _execute(project, notebook, differing, partial, preset.minutes_per_notebook)
        check_executed(json.loads(partial.read_text(encoding="utf-8")))
        outcome.status = "ok"
    except UserMistake as problem:
        outcome.error, outcome.mistake = str(problem), True
    except DataAbsent as problem:
        # Scales without real data need no download, so there missing data are a failure.
        outcome.status = "no data" if preset.scale in ON_REAL_DATA else "failed"
        outcome.error = str(problem)
    except (NotebookFailed, DiskFull) as problem:
        outcome.error = str(problem)
    except KeyboardInterrupt:
        outcome.status, outcome.error = "interrupted", "interrupted before its end"
    except Exception as problem:
        outcome.error = one_line(f"{type(problem).__name__}: {problem}")
    with undisturbed():
        outcome.wall_seconds = time.perf_counter() - clock
        outcome.peak_memory_bytes = peak_memory_bytes(children=True)
        executed = read_notebook(partial)
        if executed:
            outcome.shown, outcome.displayed = _found_provenance(executed), displayed(executed)
        _publish(project.report_dir(preset_name), outcome, partial, readable=executed is not None)
        return write_record(project, outcome)


def _publish(out: Path, outcome: Outcome, partial: Path, *, readable: bool) -> None:
    """Move the executed copy to where its status says."""
    good, bad = out / f"{outcome.notebook}.ipynb", out / "failed" / f"{outcome.notebook}.ipynb"
    if outcome.status == "ok":
        partial.replace(good)
        bad.unlink(missing_ok=True)
    elif readable:
        bad.parent.mkdir(exist_ok=True)
        partial.replace(bad)
    else:
        partial.unlink(missing_ok=True)
        bad.unlink(missing_ok=True)


@shows_plainly
def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: it ran; 1: it failed; 2: a user's mistake; 130: interrupted. One line on stderr says why."""
    parser = argparse.ArgumentParser(prog="python -m transnormer_lib.report.guard", description=__doc__)
    parser.add_argument("--preset", required=True, help="the scale, a folder of params/")
    parser.add_argument("--root", type=Path, default=None, help="the project's folder (default: the current one)")
    parser.add_argument("notebook", help="number or name")
    options = parser.parse_args(arguments)

    def on_signal(_signal: int, _frame: object) -> None:
        # A second signal must not cut the clean-up short.
        on_ending(signal.SIG_IGN)
        if "transnormer_lib.report.kernel" in sys.modules:
            sys.modules["transnormer_lib.report.kernel"].kill_kernel()
        raise Stopped

    on_ending(on_signal)
    try:
        project = find_project(options.root)
        (notebook,) = project.select([options.notebook])
        say(f"  {notebook}: started")
        record = run_notebook(project, options.preset, notebook)
    except UserMistake as mistake:
        print(mistake, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before there was anything to record
        return INTERRUPTED
    except OSError as problem:  # the record cannot be written
        print(f"{options.notebook}: {one_line(str(problem))}", file=sys.stderr)
        return 1
    seconds = record["provenance"]["wall_seconds"]
    status = record["status"]
    print(f"  {notebook}: {'done' if status == 'ok' else status}, {seconds:.0f} s", flush=True)
    if status == "ok":
        return 0
    print(f"{notebook}: {record['error']}", file=sys.stderr)
    return INTERRUPTED if status == "interrupted" else 2 if record["mistake"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
