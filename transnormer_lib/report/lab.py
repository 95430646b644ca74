"""What ``make lab`` adds to JupyterLab: a notebook is saved as it is committed, without outputs.

Lab saves by itself every two minutes. With outputs, counters and the versions of the machine in the file, the checkout
would differ from the commit as soon as somebody had run a cell.
"""

from typing import Any

_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
_LANGUAGE = {"name": "python"}


def without_outputs(model: dict[str, Any], path: str, **_: Any) -> None:
    """Take outputs, counters and the machine out of a committed notebook that Jupyter is about to save, in place.

    A hook of Jupyter's (``ContentsManager.pre_save_hook``); ``path`` is below the folder that Lab shows. What is not in
    ``notebooks/`` is left as it is: a report's executed notebooks hold its measurements.
    """
    committed = path.strip("/").startswith("notebooks/")
    if not committed or model["type"] != "notebook" or model["content"]["nbformat"] != 4:
        return
    content = model["content"]
    content["metadata"] |= {"kernelspec": dict(_KERNEL), "language_info": dict(_LANGUAGE)}
    for name in set(content["metadata"]) - {"kernelspec", "language_info"}:
        del content["metadata"][name]
    for cell in content["cells"]:
        tags = cell["metadata"].get("tags")
        cell["metadata"] = {"tags": tags} if tags else {}
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
