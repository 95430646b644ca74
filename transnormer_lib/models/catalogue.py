"""The table of mechanisms: cost, forms, source and oracle of each.

``python -m transnormer_lib.models.catalogue`` prints docs/mechanisms.md.
"""

from typing import get_args

from transnormer_lib import attention
from transnormer_lib.models.architectures import published
from transnormer_lib.models.config import Kind
from transnormer_lib.models.language_model import count_parameters


def table() -> list[dict[str, object]]:
    """One row per registered mechanism, in alphabetical order, all with the same keys; parameters in millions."""
    rows: list[dict[str, object]] = []
    for name in attention.names():
        about, causal = attention.about(name), not attention.config_class(name).causal_refusal
        decoder, encoder = (
            round(count_parameters(published(name, kind)) / 1e6, 2) if causal or kind == "encoder" else None
            for kind in get_args(Kind)
        )
        rows.append(
            {
                "mechanism": name,
                "known as": about.title,
                "time": about.time,
                "memory": about.memory,
                "causal": "yes" if causal else "no",
                "recurrent": "yes" if causal and attention.is_recurrent(name) else "no",
                "mask": "yes",  # tested for every registered mechanism
                "decoder (M)": decoder,
                "encoder (M)": encoder,
                "source": about.source,
                "held against": about.oracle,
            }
        )
    return rows


def markdown() -> str:
    rows = table()
    body = [[_cell(value) for value in row.values()] for row in rows]
    rendered = ["| " + " | ".join(cells) + " |" for cells in [list(rows[0]), ["---"] * len(rows[0]), *body]]
    return "\n".join([_INTRODUCTION.strip(), "", *rendered, ""])


def _cell(value: object) -> str:
    text = "–" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")


_INTRODUCTION = """
# The mechanisms

Every attention that the paper's tables compare, and `scattered`, a control of this project, behind one interface:
`transnormer_lib.attention.build(name, config)`.
`python -m transnormer_lib.models.catalogue` prints this page; a test keeps it current.

- **time** and **memory**: orders of the fast form, per head and sequence. N tokens, D numbers per head; other letters
  and names are fields of the mechanism's config or explained in its file. Memory excludes inputs and output.
- **causal**: a causal form is published, in which no token depends on a later one. The others refuse `causal=True`.
- **recurrent**: `prefill` and `step` decode token by token.
- **mask**: padding changes nothing at real positions; tested for every mechanism.
- **decoder**, **encoder**: parameters in millions of the models of Tables 4 and 5 with this mechanism in every layer.
- **held against**: code or equations from outside this project; `make oracles` runs the packages among them.

Each has first, second and forward-mode derivatives and runs under `torch.func.vmap`, `torch.compile`, `copy` and
`pickle`, with the results of its specification.

In float16 or bfloat16, q, k and v are multiplied and summed in float32, and the result is rounded once. So a float16
gradient of an attention is infinite only where the exact one exceeds 65,504. Nothing divides the sums of
`linear-unscaled`: with inputs of standard deviation σ, unit gradients of its output, D ≤ 64 and N ≤ 2,048, outputs and
gradients are finite up to σ = 2. Those of `performer` were finite up to σ = 3,000, with N ≤ 512. A backward pass inside
`torch.autocast` with float16 rounds the gradients in between too, which may exceed the range; call it outside, as
PyTorch advises.
"""


if __name__ == "__main__":
    print(markdown(), end="")
