"""The closed lists of words that several packages accept; importable without torch."""

from typing import Literal, get_args

Scale = Literal["quick", "night", "gpu", "paper"]
SCALES: tuple[str, ...] = get_args(Scale)  # smallest first

EpsPlacement = Literal["inside", "outside"]  # RMSNorm's ε: inside the root (Definition D.1); released code: outside
Rotary = Literal["none", "rope", "lrpe"]  # relative positions of queries and keys; released TransNormer: lrpe

# What the answer to an example is: the class of its sequence or pair; one of its sequences; a span of their tokens.
TaskKind = Literal["label", "choice", "span"]

# The paper's two variants: T1 (ReLA in its early layers, φ = ELU) and T2 (softmax, φ = 1 + ELU), with DiagAttention.
VARIANTS = ("transnormer-t1", "transnormer-t2")
