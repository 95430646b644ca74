"""The report that is committed, so that a visitor sees the result before anything is run.

``python -m transnormer_lib.report.publish``, as ``make publish`` does, copies the pages of ``reports/quick``, their
ledger and the records of their notebooks to ``reports/published``. The pages share their styles there, and executed
notebooks leave out what their pages show: as they are, they would make the copy twice as large.
"""

import gzip
import hashlib
import json
import re
import sys
from pathlib import Path

from transnormer_lib import sums
from transnormer_lib.files import write_bytes
from transnormer_lib.ledger.judging import last_run
from transnormer_lib.project import Project, UserMistake, find_project
from transnormer_lib.visible import shows_plainly

FOLDER = "published"
LARGEST = 10_000_000  # bytes in all
_PRESET = "quick"
_DATA = ("claims.json", "theses.json", "records/*.json")
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.DOTALL)
_TO_OVERVIEW = re.compile(r'<a href="\.\./index\.html">(.*?)</a>')  # which is not committed
_TO_NOTEBOOK = re.compile(r'<a href="(\w+\.ipynb)"(?: download)?>(.*?)</a>')
_CARRIED = re.compile(r' (?:src|href|data-values)="(?:data:|\{)[^"]*"')  # figures, their values, what a page moves


def copies(project: Project, preset: str = _PRESET) -> dict[str, bytes]:
    """The published files by their paths, from the last report of ``preset``.

    ``SHA256SUMS`` has their digests. Raises UserMistake where a notebook did not run to its end, where a file of the
    report was edited, and where all are larger than may be committed.
    """
    folder = project.report_dir(preset)
    for notebook in project.notebooks:
        if (run := last_run(folder, notebook)).status != "ok":
            raise UserMistake(f"{notebook}: {run.status} at preset {preset}; run: make report PRESET={preset}")
    for path in [*folder.glob("*.html"), folder / "claims.json", folder / "theses.json"]:
        if damage := sums.damage(path):
            raise UserMistake(f"reports/{preset}: {damage}; remove it and run: make report PRESET={preset}")
    found = {str(path.relative_to(folder)): path.read_bytes() for kind in _DATA for path in sorted(folder.glob(kind))}
    styles: dict[str, str] = {}

    def shared(style: re.Match[str]) -> str:
        name = styles.setdefault(style[1].strip(), f"styles-{len(styles) + 1}.css")
        return f'<link rel="stylesheet" href="{name}">'

    for path in sorted(folder.glob("*.html")):
        html = _TO_OVERVIEW.sub(r"\1", _STYLE.sub(shared, path.read_text(encoding="utf-8")))
        found[path.name] = _TO_NOTEBOOK.sub(_to_slim, html).encode()
    found |= {f"{notebook}.ipynb.gz": slim(folder / f"{notebook}.ipynb") for notebook in project.notebooks}
    found |= {name: f"{style}\n".encode() for style, name in styles.items()}
    digests = sorted((name, hashlib.sha256(content).hexdigest()) for name, content in found.items())
    found[sums.FILE] = sums.lines((digest, name) for name, digest in digests).encode()
    size = sum(map(len, found.values()))
    if size > LARGEST:
        raise UserMistake(f"reports/{FOLDER}: {size:,} bytes, must be at most {LARGEST:,} to be committed")
    return found


def slim(path: Path) -> bytes:
    """An executed notebook without figures, their values and styles, compressed; on one machine always alike."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for output in (output for cell in notebook["cells"] for output in cell.get("outputs", ())):
        if "text/html" in output.get("data", {}):
            output["data"]["text/html"] = _CARRIED.sub("", _STYLE.sub("", "".join(output["data"]["text/html"])))
    text = json.dumps(notebook, separators=(",", ":"), ensure_ascii=False)
    return gzip.compress(text.encode(), mtime=0)


def _to_slim(link: re.Match[str]) -> str:
    name, text = link.groups()
    return f'<a href="{name}.gz" download>{text}{".gz" if text == name else ", without figures"}</a>'


def publish(project: Project, preset: str = _PRESET) -> dict[str, bytes]:
    """Write :func:`copies` and remove what is no longer one of them; returns them."""
    made = copies(project, preset)
    folder = project.report_dir(FOLDER)
    for name, content in made.items():
        write_bytes(folder / name, content)
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).as_posix() not in made:
            path.unlink()
    return made


@shows_plainly
def main() -> int:
    """Publish; exit code 2 without a whole report."""
    try:
        made = publish(find_project())
    except UserMistake as mistake:
        print(f"publish: {mistake}", file=sys.stderr)
        return 2
    print(f"publish: reports/{FOLDER}: {len(made)} files, {sum(map(len, made.values())) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
