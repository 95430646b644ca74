"""Whether a contestant is correct: its error against float64, and the bound that its dtype allows.

The error of a tensor x is ‖x − y‖ / ‖y‖ with y the specification in float64. The bound comes from the data: twice the
specification's own error in the case's dtype on the same inputs, plus one rounding of that dtype.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from transnormer_kernels.bench import reference
from transnormer_kernels.bench.cases import Case
from transnormer_kernels.bench.contestants import Contestant, Forward, Outputs
from transnormer_kernels.bench.reference import Inputs

GPU_SCORES = 2**27  # numbers of a float64 score matrix: 1 GiB
CPU_SCORES = 2**21
_EAGER_FACTOR = 2.0


def outputs_and_gradients(forward: Forward, case: Case, x: Inputs) -> Outputs:
    """The outputs of ``forward``; with the case's backward pass also dq, dk, dv and, if there is a θ, dθ.

    A decoding step runs twice, so that the second sees the state that the first wrote.
    """
    if not case.backward:
        with torch.no_grad():
            first = forward(x)
            if case.operation != "step":
                return first
            first = {name: y.clone() for name, y in first.items()}
            second = forward(replace(x, q=x.k, k=x.v, v=x.q, state=first["state"], position=x.position + 1))
            return {"o": first["o"], "o after it": second["o"], "state": second["state"]}
    x = x.differentiable()
    leaves = x.leaves()
    outputs = forward(x)
    gradients = torch.autograd.grad(outputs["o"], tuple(leaves.values()), x.g, allow_unused=True)
    found = {f"d{name}": g for name, g in zip(leaves, gradients, strict=True) if g is not None}
    return {"o": outputs["o"].detach(), **found}


def relative_error(x: Tensor, y: Tensor) -> float:
    """‖x − y‖ / ‖y‖ in float64; infinite if shapes differ or x is not finite."""
    if x.shape != y.shape or not torch.isfinite(x).all():
        return float("inf")
    return float(torch.linalg.vector_norm(x.double() - y) / torch.linalg.vector_norm(y))


def computed_by(contestant: Contestant, case: Case) -> Case:
    """The case whose function ``contestant`` computes."""
    return replace(case, **contestant.computes)


class Judge:
    """The exact results and bounds of one case, computed once for all contestants with the same function."""

    def __init__(self, case: Case, device: torch.device, scores: int | None = None, seed: int = 1) -> None:
        self.case = case.reduced(scores or (GPU_SCORES if device.type == "cuda" else CPU_SCORES))
        self._device, self._seed = device, seed
        self._known: dict[Case, tuple[Outputs, dict[str, float]]] = {}

    @cached_property
    def inputs(self) -> Inputs:
        """The inputs of all contestants."""
        return reference.make_inputs(self.case, self._device, self._seed)

    def truth(self, contestant: Contestant) -> tuple[Outputs, dict[str, float]]:
        """The specification's outputs in float64, and the bound on the error of each."""
        case = computed_by(contestant, self.case)
        if case not in self._known:

            def specification(x: Inputs) -> Outputs:
                return reference.specification(case, x)

            exact = outputs_and_gradients(specification, case, self.inputs.to(torch.float64))
            rounded = outputs_and_gradients(specification, case, self.inputs.to(case.torch_dtype))
            rounding = torch.finfo(case.torch_dtype).eps
            bounds = {name: _EAGER_FACTOR * relative_error(rounded[name], y) + rounding for name, y in exact.items()}
            self._known[case] = exact, bounds
        return self._known[case]

    def judge(
        self, contestant: Contestant, build: Callable[[Case], Forward]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """(errors, bounds) of each output and gradient; an output that is missing has an infinite error."""
        exact, bounds = self.truth(contestant)
        found = outputs_and_gradients(build(self.case), self.case, self.inputs.to(self.case.torch_dtype))
        missing = torch.full((1,), float("nan"))
        return {name: relative_error(found.get(name, missing), y) for name, y in exact.items()}, bounds
