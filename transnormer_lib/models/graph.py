"""A decoder's step as one CUDA graph: every kernel of it is launched by a single call.

A graph replays fixed kernels on fixed memory, so the batch is fixed, token ids, position and states have a place of
their own on the device, and no shape depends on the position: caches have room for ``max_length`` tokens and a mask.

Shapes: B batch, L room of a cache, V vocabulary.
"""

import torch
from torch import Tensor

from transnormer_lib.attention.interface import without_autocast
from transnormer_lib.attention.recurrent import GROWS
from transnormer_lib.checks import check_count
from transnormer_lib.models.language_model import LanguageModel, ModelState

_WARM_UPS = 3  # before the capture: they compile kernels and let libraries allocate their workspaces


class GraphStepper:
    """The step of ``model`` for ``batch`` sequences, on a CUDA device captured once and replayed.

    On another device the same operations run one by one. A capture reads weights where they are, so it sees their later
    values, but not moved ones. Raises ValueError for a model in training mode and for a mechanism without
    ``fixed_recurrence``.
    """

    @torch.no_grad()
    def __init__(self, model: LanguageModel, batch: int) -> None:
        check_count("batch", batch)
        if model.training:
            raise ValueError("model.training=True: call model.eval() first, since a step drops nothing out")
        self.model, self.batch = model, batch
        device = model.embedding.weight.device
        self.ids_B = torch.zeros(batch, dtype=torch.int64, device=device)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.states = self._empty_states()
        self._read = 0  # tokens, as ``position`` says on the device
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._capture()
        else:
            self._run()  # refuses what a capture would
        self._load(model.initial_state(batch))

    def prefill(self, input_ids_BN: Tensor) -> tuple[Tensor, ModelState]:
        """The model's own ``prefill``."""
        return self.model.prefill(input_ids_BN)

    @torch.no_grad()
    def step(self, input_ids_B: Tensor, states: ModelState) -> tuple[Tensor, ModelState]:
        """(logits [B, V] after one more token per sequence, the states after it), as ``LanguageModel.step``.

        The states that it returns are its own memory, which the next step overwrites; others are copied into it.
        Raises ValueError for states that do not fit and beyond ``max_length``.
        """
        if input_ids_B.shape != (self.batch,):
            raise ValueError(f"input_ids_B.shape={tuple(input_ids_B.shape)}: must be ({self.batch},), the batch")
        if states is not self.states:
            self._load(states)
        if self._read >= self.model.config.max_length:
            raise ValueError(f"length={self._read + 1}: exceeds the model's max_length={self.model.config.max_length}")
        self.ids_B.copy_(input_ids_B)
        if self._graph is None:
            self._logits_BV = self._run()
        else:
            self._graph.replay()
        self._read += 1
        position = torch.tensor(self._read)
        for state in self.states:
            state.update({name: position for name in state if name.endswith("position")})
        return self._logits_BV.clone(), self.states

    def _run(self) -> Tensor:
        """The step itself, on the tensors of this object alone."""
        model = self.model
        with without_autocast(self.ids_B.device.type):
            x = model.embed_one(self.ids_B, self.position)
            for block, state in zip(model.stack(), self.states, strict=True):
                x = block.fixed_step(x, state, self.position)
            logits_BV = model.logits(model.final_norm(x))
            self.position += 1
        return logits_BV

    def _capture(self) -> None:
        # Warm-ups are not on the default stream, and on the capture's own, where libraries then have their handles.
        device = self.ids_B.device
        with torch.cuda.device(device):
            beside = torch.cuda.Stream()
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                for _ in range(_WARM_UPS):
                    self.position.zero_()
                    self._run()
            torch.cuda.current_stream().wait_stream(beside)
            self.position.zero_()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=beside):
                self._logits_BV = self._run()

    def _empty_states(self) -> ModelState:
        """Zeros like the model's initial states, with room for every position in the caches."""
        states = self.model.initial_state(self.batch)
        for block, state in zip(self.model.stack(), states, strict=True):
            growing = {name for one in block.mechanisms for name, shape in one.state_shapes().items() if GROWS in shape}
            for name, x in state.items():
                if name.rpartition(".")[2] in growing:
                    state[name] = x.new_zeros(*x.shape[:-2], self.model.config.max_length, x.shape[-1])
        return states

    def _load(self, states: ModelState) -> None:
        """Copy ``states`` into this object's memory."""
        if len(states) != len(self.states):
            raise ValueError(f"states: holds {len(states)} states, must hold one per layer, {len(self.states)}")
        for own, other in zip(self.states, states, strict=True):
            if own.keys() != other.keys():
                raise ValueError(f"state={sorted(other)}: must hold {', '.join(sorted(own))}")
            for name, x in own.items():
                if name.endswith("position"):
                    continue
                source = other[name]
                if x.dim() == source.dim() and x.shape[:-2] == source.shape[:-2]:
                    x, source = x[..., : source.shape[-2], :], source[..., : x.shape[-2], :]  # the room of a cache
                if x.shape != source.shape or x.dtype != source.dtype:
                    raise ValueError(
                        f"state[{name!r}] is {source.dtype}, {tuple(source.shape)}: must be {x.dtype},"
                        f" {tuple(x.shape)}, with the batch of this stepper"
                    )
                x.copy_(source)
        self._read = int(states[0]["position"])
        self.position.fill_(self._read)
