"""The table of mechanisms: what each one costs, can do, and is held against.

``python -m transnormer_lib.models.catalogue`` prints docs/mechanisms.md.

Costs, sources and oracles are what the mechanisms say of themselves (``attention.about``); causal and recurrent forms
are asked of their classes; parameters are counted on the models at the paper's size.
"""

from __future__ import annotations

from dataclasses import dataclass

from transnormer_lib import attention
from transnormer_lib.models.architectures import published
from transnormer_lib.models.language_model import count_parameters


@dataclass(frozen=True)
class Row:
    """One mechanism."""

    name: str  # in the registry
    kind: str  # attention, or block: in place of attention and feed-forward
    about: attention.About
    causal: bool  # has a causal form
    recurrent: bool  # decodes token by token
    decoder: int | None  # parameters of the autoregressive model of Table 13 with it; None without a causal form
    encoder: int  # parameters of the bidirectional one


def rows() -> list[Row]:
    """Every registered mechanism, in alphabetical order."""
    found = []
    for name in attention.names():
        causal = not attention.config_class(name).causal_refusal
        found.append(
            Row(
                name,
                attention.kind(name),
                attention.about(name),
                causal,
                causal and attention.is_recurrent(name),
                count_parameters(published(name, "decoder")) if causal else None,
                count_parameters(published(name, "encoder")),
            )
        )
    return found


def table() -> list[dict[str, object]]:
    """The rows for a reader: one mapping per mechanism, all with the same keys; parameters in millions."""
    return [
        {
            "mechanism": row.name,
            "known as": row.about.title,
            "time": row.about.time,
            "memory": row.about.memory,
            "causal": "yes" if row.causal else "no",
            "recurrent": "yes" if row.recurrent else "no",
            "mask": "yes",  # a property that the tests check of every registered mechanism
            "decoder (M)": None if row.decoder is None else round(row.decoder / 1e6, 2),
            "encoder (M)": round(row.encoder / 1e6, 2),
            "source": row.about.source,
            "held against": row.about.oracle,
        }
        for row in rows()
    ]


def markdown() -> str:
    """docs/mechanisms.md."""
    lines = table()
    head = list(lines[0])
    body = [[_cell(line[name]) for name in head] for line in lines]
    rendered = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *body]]
    return "\n".join([_INTRODUCTION.strip(), "", *rendered, ""])


def _cell(value: object) -> str:
    text = "–" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")


_INTRODUCTION = """
# The mechanisms

Every attention that the paper's tables compare, behind one interface: `transnormer_lib.attention.build(name, config)`.
This page is printed by `python -m transnormer_lib.models.catalogue`; a test keeps it current.

- **time** and **memory**: orders of the fast form, per head and sequence. N tokens, D numbers per head, the other
  letters and names are fields of the mechanism's config or explained in its file; memory is beside inputs and output.
- **causal**: a causal form is published; what stands after a token then changes nothing at it. The others refuse
  `causal=True`.
- **recurrent**: `prefill` and `step` decode token by token.
- **mask**: padding changes nothing at real positions; tested for every mechanism.
- **decoder**, **encoder**: parameters in millions of the models of Tables 4 and 5 with this mechanism in every layer.
- **held against**: code or equations that this project did not write; `make oracles` runs the packages among them.
"""


if __name__ == "__main__":
    print(markdown(), end="")
