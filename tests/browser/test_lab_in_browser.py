"""A reader in a real JupyterLab: a notebook runs to its end, a slider moves the figure, the checkout stays clean."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser_factory import CHECKOUT
from project_factory import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

NOTEBOOK = "01_gradient_theory.ipynb"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """The address of a JupyterLab over a copy of a notebook, started with the options of ``make lab``; and the copy."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("TRANSNORMER_RUNS", str(tmp_path / "runs"))
    saves = re.search(r"^LAB_SAVES := (.+)$", (CHECKOUT / "Makefile").read_text(), re.MULTILINE)
    assert saves is not None
    folder = tmp_path / "notebooks"
    folder.mkdir()
    shutil.copy(CHECKOUT / "notebooks" / NOTEBOOK, folder)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--notebook-dir={tmp_path}"]
    command += ["--port=0", "--IdentityProvider.token=ours", "--expose-app-in-browser", *saves[1].split()]
    log = (tmp_path / "lab.log").open("w")
    server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        address = re.compile(r"http://127\.0\.0\.1:\d+/")
        wait_until(lambda: address.search((tmp_path / "lab.log").read_text()) or server.poll() is not None)
        found = address.search((tmp_path / "lab.log").read_text())
        assert found is not None, (tmp_path / "lab.log").read_text()
        yield f"{found[0]}lab/tree/notebooks/{NOTEBOOK}?token=ours", folder / NOTEBOOK
    finally:
        server.terminate()
        server.wait(30)
        log.close()


# Runs every cell, as the menu's command does, and tells what the notebook then holds: cells without a number, errors.
RUN_ALL = """async () => {
  await jupyterapp.restored;
  const panel = jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await jupyterapp.commands.execute("notebook:run-all-cells");
  const codes = [...panel.content.model.cells].filter((cell) => cell.type === "code");
  const errors = codes.flatMap((cell) => cell.outputs.toJSON()).filter((output) => output.output_type === "error");
  return {cells: codes.length, left: codes.filter((cell) => !cell.executionCount).length,
    errors: errors.map((error) => error.evalue)};
}"""
# How the cells of words in the tables are aligned, each way once.
ALIGNED = """() => [...new Set([...document.querySelectorAll(
  ".tn-table :is(th, td):not(.tn-number), .tn-claims :is(th, td)")]
  .map((cell) => getComputedStyle(cell).textAlign))]"""
# Lab keeps only the cells near the window in the page.
SHOW_CELL = """async (words) => {
  const notebook = jupyterapp.shell.currentWidget.content;
  const number = notebook.widgets.findIndex((cell) => cell.model.sharedModel.source.includes(words));
  notebook.activeCellIndex = number;
  await notebook.scrollToItem(number, "start");
}"""


def test_a_notebook_runs_a_slider_moves_and_saving_leaves_the_committed_file(
    lab: tuple[str, Path], browser: Any
) -> None:
    address, path = lab
    committed = path.read_bytes()
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(300_000)
    page.goto(address)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    found = page.evaluate(RUN_ALL)
    assert found["cells"] > 10
    assert (found["left"], found["errors"]) == (0, [])

    page.evaluate(SHOW_CELL, "explore(one_row")
    picture = page.locator("#fig-one-row img").first
    slider = page.locator(".jp-Cell", has=picture).locator(".widget-slider").first  # other cells have sliders too
    before = picture.get_attribute("alt")
    assert page.evaluate(ALIGNED) == ["left"]
    assert page.locator(".tn-moves").count() == 0  # the controls of a page, whose script does not run here
    handle = slider.locator(".noUi-handle").first
    handle.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "(before) => [...document.querySelectorAll('#fig-one-row img')].some((one) => one.alt !== before)",
        arg=before,
    )

    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    assert path.read_bytes() == committed
    beside = {found.name for found in path.parent.iterdir()} - {".ipynb_checkpoints"}  # which git ignores
    assert {name for name in beside if not name.startswith(".~")} == {NOTEBOOK}  # Lab's copy while it writes
    page.close()
