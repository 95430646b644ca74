"""The model card: the README.md of a folder that holds a model."""

from collections.abc import Mapping
from typing import Any

LIBRARY = "transnormer-companion"


def model_card(model: Any, title: str = "", sections: Mapping[str, str] | None = None) -> str:
    """A card that says what ``model``, a ``Backbone``, is and how to load it; then ``sections``, text by heading."""
    kind, config = type(model).__name__, model.config
    head = [
        "---",
        f"library_name: {LIBRARY}",
        *(["pipeline_tag: text-generation"] if model.writes_text else []),
        "tags: [transnormer, linear-attention, pytorch]",
        "---",
    ]
    parts = [
        "\n".join(head),
        f"# {title or kind}",
        f"A {config.kind} with {model.parameter_count():,} parameters: {config.layers} layers"
        f" ({', '.join(dict.fromkeys(config.attention))}), width {config.dim}, {config.heads} heads, sequences of up to"
        f" {config.max_length:,} {'frames' if config.features else 'tokens'}, {_vocabulary(model)}.",
        "## How to load it",
        f"With the Python package `{LIBRARY}`; `.` is this folder, or give the model's name on the Hugging Face Hub.",
        f"```python\n{_loading(model)}\n```",
    ]
    for heading, text in (sections or {}).items():
        parts += [f"## {heading}", text]
    return "\n\n".join(parts) + "\n"


def _vocabulary(model: Any) -> str:
    if model.vocabulary is None:
        return f"{model.config.vocab_size:,} symbols whose meaning is not stored here"
    return f"vocabulary `{model.vocabulary.name}` of {model.vocabulary.size:,} ids"


def _loading(model: Any) -> str:
    kind = type(model).__name__
    lines = [f"from {type(model).__module__} import {kind}"]
    if not model.writes_text:
        return "\n".join([*lines, "", f'model = {kind}.from_pretrained(".")'])
    lines += ["from transnormer_lib.models.text import stream", ""]
    lines += [f'model = {kind}.from_pretrained(".")', 'for piece in stream(model, "The ", tokens=100):']
    return "\n".join([*lines, '    print(piece, end="", flush=True)'])
