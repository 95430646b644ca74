"""A reader in a real JupyterLab: a notebook runs to its end, a slider moves the figure, the checkout stays clean."""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import CHECKOUT, sync_api
from project_factory import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

NOTEBOOK = "01_gradient_theory.ipynb"
MINUTES = 2  # in which every notebook runs with its defaults; ours here, on any machine, gets twice as long


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--notebook-dir={tmp_path}"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=ours", *saves[1].split()]
    log = (tmp_path / "lab.log").open("w")
    server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=tmp_path)
    try:
        wait_until(lambda: "is running at" in (tmp_path / "lab.log").read_text() or server.poll() is not None)
        assert server.poll() is None, (tmp_path / "lab.log").read_text()
        yield f"http://127.0.0.1:{port}/lab/tree/notebooks/{NOTEBOOK}?token=ours", folder / NOTEBOOK
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def run_all(page: Any) -> None:
    """Run all cells. Lab drops the command while it still connects to the kernel, so it is given until a cell runs."""
    for _ in range(6):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        with suppress(sync_api.TimeoutError):
            page.locator(".jp-InputPrompt", has_text=re.compile(r"\[(\*|\d+)\]")).first.wait_for(timeout=10_000)
            return
    pytest.fail("no cell ran")


def test_a_notebook_runs_a_slider_moves_and_saving_leaves_the_committed_file(
    lab: tuple[str, Path], browser: Any
) -> None:
    address, path = lab
    committed = path.read_bytes()
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    run_all(page)
    page.wait_for_function(
        "document.querySelector('.jp-Notebook-ExecutionIndicator[data-status=idle]')", timeout=2 * MINUTES * 60_000
    )
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.error']").count() == 0

    # Lab keeps only the cells near the window in the page, so the slider is looked for downwards from the first cell.
    page.evaluate("document.querySelector('.jp-WindowedPanel-outer')?.scrollTo(0, 0)")
    slider = page.locator(".widget-slider").first
    for _ in range(60):
        if slider.count():
            break
        page.mouse.move(800, 600)
        page.mouse.wheel(0, 800)
        page.wait_for_timeout(200)
    slider.scroll_into_view_if_needed()
    caption = page.locator("figcaption", has_text="The derivatives of one output by the").first
    before = caption.inner_text()
    handle = slider.locator(".noUi-handle").first
    handle.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "(before) => [...document.querySelectorAll('figcaption')].some((one) =>"
        " one.textContent.startsWith('The derivatives of one output by the') && one.innerText !== before)",
        arg=before,
    )

    saved = path.stat().st_mtime_ns
    page.keyboard.press("Escape")
    page.keyboard.press("Control+s")
    wait_until(lambda: path.stat().st_mtime_ns != saved and path.read_bytes().endswith(b"}\n"))
    assert path.read_bytes() == committed
    beside = {found.name for found in path.parent.iterdir()} - {".ipynb_checkpoints"}  # which git ignores
    assert {name for name in beside if not name.startswith(".~")} == {NOTEBOOK}  # Lab's copy while it writes
    page.close()
