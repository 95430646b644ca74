"""A decoder's step against its matrix–vector products alone: how much of its time is anything else.

Shapes: B sequences, N length, D width.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, product

import torch
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.analysis.interleaved import interleaved
from transnormer_lib.attention.recurrent import repeated
from transnormer_lib.checks import check_count
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import LanguageModel, ModelState, build_model
from transnormer_lib.models.stepper import Stepper
from transnormer_lib.progress import Told, tracked

BATCHES = (1, 256)
POSITION = 392  # half of an image of 28 × 28
AIM = 1.5  # a step within this many times its products
ARCHITECTURES = ("linear", "transnormer-t2", "vanilla")

Step = Callable[[Tensor, ModelState], tuple[Tensor, ModelState]]


@dataclass(frozen=True)
class StepRatio:
    """One model at one batch size: seconds of a step and of its products, one median per round."""

    model: str
    batch: int
    products: tuple[float, ...]
    prepared: tuple[float, ...]  # ``Stepper``
    plain: tuple[float, ...]  # ``LanguageModel.step``

    def ratios(self, seconds: Sequence[float]) -> list[float]:
        """Step through products in each round."""
        return [own / floor for own, floor in zip(seconds, self.products, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios(self.prepared))


Product = tuple[Tensor, Tensor, Tensor]  # two factors and the memory of their product


def products(model: LanguageModel, batch: int, positions: Sequence[int]) -> Callable[[], None]:
    """A call that makes the matrix products of one step and nothing else, into memory that is there; at each of the
    ``positions`` in turn.

    They are those with every weight as its ``nn.Linear`` stores it, with the output matrix, and with what the state
    holds at the position: φ(q)^T S and φ(q)^T z, or q K^T and p V over the tokens that a query meets. The sum
    S + φ(k) v^T is none. Raises ValueError for a mechanism whose state holds anything else.
    """
    weights = [layer.weight.detach() for layer in model.modules() if isinstance(layer, nn.Linear)]
    if model.head is None:
        weights.append((model.embedding.weight if model.output is None else model.output).detach())
    dtype = weights[0].dtype
    with_weights: list[Product] = []
    for weight in weights:
        x, out = torch.randn(batch, weight.shape[1], dtype=dtype), torch.empty(batch, weight.shape[0], dtype=dtype)
        with_weights.append((x, weight.t(), out))
    mechanisms = [one for block in model.stack() for one in block.mechanisms]
    of_mechanisms = [_with_state(mechanism, batch, positions, dtype) for mechanism in mechanisms]
    turns = cycle(list(zip(*of_mechanisms, strict=True)))

    def call() -> None:
        with torch.inference_mode():
            for x, matrix, out in with_weights:
                torch.mm(x, matrix, out=out)
            for with_state in next(turns):
                for q, held, out in with_state:
                    torch.bmm(q, held, out=out)

    return call


def _with_state(
    mechanism: attention.Mechanism, batch: int, positions: Sequence[int], dtype: torch.dtype
) -> list[list[Product]]:
    """For each position the products of one token with the mechanism's state."""
    shapes = mechanism.state_shapes()
    if "kv" in shapes and isinstance(mechanism, attention.Attention):
        many, (features, width) = batch * mechanism.config.heads, shapes["kv"]
        q, s = torch.randn(many, 1, features, dtype=dtype), torch.randn(many, features, width, dtype=dtype)
        found = [(q, s, torch.empty(many, 1, width, dtype=dtype))]
        if "z" in shapes:
            found.append((q, torch.randn(many, features, 1, dtype=dtype), torch.empty(many, 1, 1, dtype=dtype)))
        return [found] * len(positions)
    if mechanism.name not in ("diag", "softmax"):
        raise ValueError(f"attention={mechanism.name!r}: what a step reads of its state is not known here")
    seen = [(n % mechanism.config.block_size if mechanism.name == "diag" else n) + 1 for n in positions]
    many, width = batch * mechanism.config.heads, mechanism.config.head_dim
    keys, values = (torch.randn(many, max(seen), width, dtype=dtype) for _ in range(2))
    q, o = torch.randn(many, 1, width, dtype=dtype), torch.empty(many, 1, width, dtype=dtype)
    p = torch.randn(many * max(seen), dtype=dtype)
    weights = [p[: many * n].view(many, 1, n) for n in seen]
    return [[(q, keys[:, :n].mT, w), (w, values[:, :n], o)] for n, w in zip(seen, weights, strict=True)]


def step_ratios(
    models: Mapping[str, LanguageModel],
    batches: Sequence[int] = BATCHES,
    *,
    position: int = POSITION,
    rounds: int = 9,
    told: Told | None = None,
) -> list[StepRatio]:
    """Measure a step of every model at every batch size, after ``position`` random tokens and more with each step.

    Steps and products take turns, at the same positions. ``told`` gets a line of progress for each pair. Raises
    ValueError for counts below 1, and if a model has no room for all steps.
    """
    check_count("position", position)
    check_count("rounds", rounds)
    found = []
    for (name, model), batch in tracked(product(models.items(), batches), "model and batch", told=told):
        check_count("batch", batch)
        repeats = max(25 // batch, 3)
        positions = range(position, position + rounds * repeats + 1)
        if positions[-1] >= model.config.max_length:
            raise ValueError(f"position={position}: leaves no room for {len(positions)} steps of {name!r}")
        stepper = Stepper(model.eval())
        calls = {
            "products": products(model, batch, positions),
            "prepared": _stepping(stepper.step, model, batch, position),
            "plain": _stepping(model.step, model, batch, position),
        }
        seconds = interleaved(calls, rounds=rounds, repeats=repeats)
        found.append(StepRatio(name, batch, *(tuple(seconds[label]) for label in calls)))
    return found


def _stepping(step: Step, model: LanguageModel, batch: int, position: int) -> Callable[[], None]:
    """A call that makes the next step of ``batch`` sequences that have all read the same ``position`` tokens."""
    ids_1N = torch.randint(model.config.vocab_size, (1, position), generator=torch.Generator().manual_seed(0))
    states = [repeated(state, batch) for state in model.prefill(ids_1N)[1]]
    ids_B = ids_1N[0, -1].repeat(batch)

    def call() -> None:
        nonlocal states
        _, states = step(ids_B, states)

    return call


def image_model(name: str, max_length: int) -> LanguageModel:
    """A decoder of the size of Katharopoulos et al.'s image models (Section 4.2): 8 layers of width 256, 8 heads."""
    hidden = 0 if name.startswith("transnormer") else 1024  # a GLU of as many weights
    config = architecture(
        name, kind="decoder", vocab_size=256, max_length=max_length, dim=256, heads=8, layers=8, hidden=hidden
    )
    return build_model(config, seed=0)


@dataclass(frozen=True)
class StepBenchmark:
    """The ratios of decoders of the image models' size on this machine."""

    position: int
    threads: int
    rows: tuple[StepRatio, ...]

    def as_text(self) -> str:
        """A table: medians in milliseconds, and the ratios to the products, each with its least and greatest round."""
        lines = [
            f"one decoder step, 8 layers of width 256, float32, after {self.position} tokens, {self.threads} thread(s)",
            f"{'':16}{'batch':>6}{'products':>11}{'step':>11} ms{'x products':>13}  {'(rounds)':14}{'unprepared':>11}",
        ]
        for row in self.rows:
            floor, own = (1e3 * statistics.median(seconds) for seconds in (row.products, row.prepared))
            ratios, plain = row.ratios(row.prepared), statistics.median(row.ratios(row.plain))
            spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
            lines.append(
                f"{row.model:16}{row.batch:6}{floor:11.2f}{own:11.2f}   {row.ratio:13.2f}  {spread:14}{plain:11.2f}"
            )
        return "\n".join([*lines, f"aim: at most {AIM:g} x products"])

    def as_json(self) -> str:
        rows = [asdict(row) | {"ratio": row.ratio} for row in self.rows]
        return json.dumps({"position": self.position, "threads": self.threads, "aim": AIM, "rows": rows}, indent=1)


def benchmark(lengths: Sequence[int] | None = None, rounds: int = 9, *, told: Told | None = None) -> StepBenchmark:
    """:func:`step_ratios` of the image models after the first of ``lengths`` tokens, at batch 1 and 256."""
    position = (lengths or (POSITION,))[0]
    models = {name: image_model(name, position + 25 * rounds + 2) for name in ARCHITECTURES}
    ratios = step_ratios(models, position=position, rounds=rounds, told=told)
    return StepBenchmark(position, torch.get_num_threads(), tuple(ratios))
