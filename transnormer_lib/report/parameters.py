"""The parameters of a notebook: read from its one ``parameters`` cell, and checked strictly.

papermill itself only prints a warning for a name it does not know and checks no types, so that a mistyped
parameter would silently run with its default. Here it is refused before anything runs.
"""

import ast
import io
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from transnormer_lib.checks import nearest
from transnormer_lib.ledger.judging import read_notebook
from transnormer_lib.project import Project, UserMistake
from transnormer_lib.strict import check_type

_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "Literal": Literal,
}
# Of what a type is written; anything else in its place is code.
_OF_A_TYPE = (ast.Name, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.Constant, ast.UnaryOp, ast.USub, ast.Load)
# A study with none of the seeds, rows or lengths that its notebook has would fail in some cell.
_NAMES_OR_NUMBERS = ("list[int]", "list[str]")
# Without matched controls nothing is judged, and the ledger says so; without tasks Figure 1 has no scores of ours.
_MAY_BE_EMPTY = ("controls", "scores_tasks")


@dataclass(frozen=True)
class Parameter:
    """One line of a parameters cell: ``name: type = default  # comment``."""

    name: str
    annotation: str
    type: Any
    default: Any
    comment: str


def parameters_cell(cells: list[dict[str, Any]], notebook: str) -> dict[str, Any]:
    """The one cell tagged ``parameters``; any other number of them is refused."""
    found = [cell for cell in cells if "parameters" in cell.get("metadata", {}).get("tags", [])]
    if len(found) != 1:
        raise UserMistake(f"{notebook}: has {len(found)} cells tagged 'parameters', needs exactly one")
    return found[0]


def parse(source: str, notebook: str) -> list[Parameter]:
    """The parameters that a cell's source declares. Raises :class:`UserMistake` for anything else."""
    try:
        body = ast.parse(source).body
        comments = {
            token.start[0]: token.string.lstrip("# ").strip()
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
    except SyntaxError as error:
        raise UserMistake(f"{notebook}: parameters cell, line {error.lineno}: {error.msg}") from None
    except (tokenize.TokenError, ValueError, RecursionError, MemoryError) as error:
        raise UserMistake(f"{notebook}: parameters cell: {' '.join(str(error).split())}") from None
    found = []
    for node in body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None):
            line = source.splitlines()[node.lineno - 1]
            raise UserMistake(f"{notebook}: parameters cell: {line!r}: must be 'name: type = default  # comment'")
        annotation = ast.unparse(node.annotation)
        if not all(isinstance(part, _OF_A_TYPE) for part in ast.walk(node.annotation)):
            raise UserMistake(f"{notebook}: parameter {node.target.id}: {annotation}: must be a type")
        try:
            kind = eval(annotation, {"__builtins__": {}}, _TYPES)
            default = ast.literal_eval(node.value)
        except Exception as error:  # an annotation is an expression, which can fail in any way
            line = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UserMistake(f"{notebook}: parameter {node.target.id}: {line}") from None
        name = node.target.id
        _check(notebook, name, annotation, kind, default)
        found.append(Parameter(name, annotation, kind, default, comments.get(node.end_lineno or node.lineno, "")))
    return found


def _check(notebook: str, name: str, annotation: str, kind: Any, value: Any) -> None:
    try:
        check_type(name, value, kind, annotation)
    except ValueError as mistake:
        raise UserMistake(f"{notebook}: {mistake}") from None


def source_of(project: Project, notebook: str) -> dict[str, Any]:
    """The JSON of a notebook in the checkout. Raises :class:`UserMistake` for a file that is no notebook."""
    path = project.notebook_path(notebook)
    found = read_notebook(path)
    if found is None:
        where = path.relative_to(project.root).as_posix()
        raise UserMistake(f"{where}: must be a notebook, JSON whose cells have a type and a text")
    return found


def declared(project: Project, notebook: str) -> list[Parameter]:
    """The parameters of a notebook in the checkout."""
    cell = parameters_cell(source_of(project, notebook)["cells"], notebook)
    return parse("".join(cell["source"]), notebook)


def resolve(project: Project, preset: str, notebook: str) -> dict[str, Any]:
    """Every parameter of the notebook with the value it has under the preset.

    A preset's YAML says what differs from the notebook's defaults. ``extends: NN_other`` takes over the values that the
    preset gives to another notebook, for the parameters that both have; ``extends: {NN_other: base_}`` does so for the
    parameters named with a prefix. Of several notebooks the first goes before the others, the notebook's own values
    before all. Of a mapping, such as a rate per row, each entry counts on its own.

    Raises :class:`UserMistake` for a name that the notebook does not have (naming the nearest), a value of the wrong
    type, a number that is negative, not finite or beyond a billion, a list of names or whole numbers that holds one
    twice or is empty where the notebook's is not, a ``scale`` that is not the preset's, and an ``extends`` that is
    neither form, unknown or in a circle.
    """
    return _resolve(project, preset, notebook, ())


def _resolve(project: Project, preset: str, notebook: str, extending: tuple[str, ...]) -> dict[str, Any]:
    where = f"params/{preset}/{notebook}.yaml"
    if notebook in extending:
        raise UserMistake(f"{where}: extends: goes in a circle, {' -> '.join((*extending, notebook))}")
    known = {p.name: p for p in declared(project, notebook)}
    resolved = {name: p.default for name, p in known.items()}
    values = dict(project.values(preset, notebook))
    extends = values.pop("extends", {})
    if isinstance(extends, str):
        extends = {extends: ""}
    if not (isinstance(extends, dict) and all(isinstance(part, str) for pair in extends.items() for part in pair)):
        raise UserMistake(f"{where}: extends={extends!r}: must be a notebook, or map notebooks to prefixes")
    for other, prefix in extends.items():
        if other not in project.notebooks:
            raise UserMistake(f"{where}: extends={other!r}: no such notebook{nearest(other, project.notebooks)}")
        taken = _resolve(project, preset, other, (*extending, notebook))
        values = _merged({prefix + name: value for name, value in taken.items() if prefix + name in known}, values)
    scale = project.preset(preset).scale
    if values.setdefault("scale", scale) != scale:
        raise UserMistake(f"{where}: scale={values['scale']!r}: the preset's is {scale!r}")
    for name, value in values.items():
        if name in known:
            _check(where, name, known[name].annotation, known[name].type, value)
            empty = value == [] != known[name].default and known[name].annotation in _NAMES_OR_NUMBERS
            if empty and name not in _MAY_BE_EMPTY:
                raise UserMistake(f"{where}: {name}=[]: must hold at least one, as in the notebook")
            if known[name].annotation in _NAMES_OR_NUMBERS and len(set(value)) < len(value):
                raise UserMistake(f"{where}: {name}={value!r}: holds a value twice")
            resolved[name] = value
        elif name != "scale":
            raise UserMistake(f"{where}: {name}={value!r}: no such parameter{nearest(name, known)}")
    return resolved


def _merged(taken: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The notebook's own values before those taken over; of two mappings, its own entries before the others."""
    merged = {**taken, **own}
    for name in taken.keys() & own.keys():
        if isinstance(taken[name], Mapping) and isinstance(own[name], Mapping):
            merged[name] = {**taken[name], **own[name]}
    return merged


def changed(project: Project, notebook: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the resolved ``values`` that are not the notebook's defaults."""
    defaults = {p.name: p.default for p in declared(project, notebook)}
    return {name: value for name, value in values.items() if value != defaults[name]}
