"""A decoder's step made ready to run many times: the numbers of ``LanguageModel.step``, with less around its products.

At batch 1 a step is some twenty small operations per layer, and starting one from Python costs more than its
arithmetic, the more so since every layer's weights drive the interpreter out of the processor's cache. So

- the projections to q, k and v become one matrix, and on a CPU every matrix is kept transposed, which a matrix–vector
  product reads faster; the prepared matrices take as much memory again as the model's own;
- the tensors between the operations, and the views of them, are made once for a batch and its states;
- states are checked when they come from elsewhere, not when they are those that the last step returned;
- dropout, hooks and the calls of submodules are left out.

A mechanism's arithmetic stays its own: ``recurrence``, or ``bound`` where it has one on fixed memory.

Shapes: B batch, H heads, D width or head_dim, V vocabulary.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transnormer_lib import attention
from transnormer_lib.attention.interface import without_autocast
from transnormer_lib.attention.norms import LayerNorm, RMSNorm, inverse_rms
from transnormer_lib.attention.recurrent import State, check_state
from transnormer_lib.models.blocks import Block
from transnormer_lib.models.feed_forward import FFN, GLU
from transnormer_lib.models.language_model import LanguageModel, ModelState

Map = Callable[[Tensor], Tensor]
Mix = Callable[[Tensor, int], Tensor]  # (x [B, D], position) → y [B, D]; updates the state that it is bound to

_WIDE = (torch.float32, torch.float64)


class Stepper:
    """The step of ``model``, whose weights are read here, once: make a new one after they change.

    Records no gradient, drops nothing out, and autocast does not apply. Its states are those of the model's own
    ``prefill``, ``step`` and ``initial_state``. Raises ValueError for a model that does not run as a recurrence, or is
    in training mode.
    """

    @torch.no_grad()
    def __init__(self, model: LanguageModel) -> None:
        model.initial_state(1)  # raises for a model without a recurrent form
        if model.training:
            raise ValueError("model.training=True: call model.eval() first, since a step drops nothing out")
        self.model = model
        self.layers = [_Layer(block) for block in model.stack()]
        self.final_norm = _norm(model.final_norm)
        self._states: ModelState | None = None  # those of the last step
        self._held: ModelState = []  # their tensors, to which the calls are bound
        self._batch, self._position = 0, 0
        self._calls: list[Mix] = []

    def prefill(self, input_ids_BN: Tensor) -> tuple[Tensor, ModelState]:
        """The model's own ``prefill``."""
        return self.model.prefill(input_ids_BN)

    def step(self, input_ids_B: Tensor, states: ModelState) -> tuple[Tensor, ModelState]:
        """(logits [B, V] after one more token per sequence, the states after it), as ``LanguageModel.step``.

        ``states`` are updated in place and returned. Raises ValueError for states that do not fit.
        """
        with torch.no_grad():
            hidden_BD, states = self.advance(input_ids_B, states)
            return self.model.logits(hidden_BD), states

    def advance(self, input_ids_B: Tensor, states: ModelState) -> tuple[Tensor, ModelState]:
        """:meth:`step` up to the hidden states [B, D] after the final norm."""
        if not self._bound_to(states) or input_ids_B.shape != (self._batch,):
            self._bind(input_ids_B, states)
        position = self._position
        with torch.no_grad(), without_autocast(input_ids_B.device.type):
            x = self.model.embed(input_ids_B[:, None], start=position)[:, 0]
            for call in self._calls:
                x = call(x, position)
            x = self.final_norm(x)
            after = torch.tensor(position + 1)
        for state in states:
            state["position"] = after
        self._position, self._held = position + 1, [dict(state) for state in states]
        return x, states

    def _bound_to(self, states: ModelState) -> bool:
        """Whether these are the states of the last step, with the very tensors that it left in them."""
        return states is self._states and all(
            state.get(name) is x for state, held in zip(states, self._held, strict=True) for name, x in held.items()
        )

    def _bind(self, input_ids_B: Tensor, states: ModelState) -> None:
        if input_ids_B.ndim != 1 or not len(input_ids_B):
            raise ValueError(f"input_ids_B.shape={tuple(input_ids_B.shape)}: must be [B], one token per sequence")
        blocks, weight = self.model.stack(), self.model.embedding.weight
        if len(states) != len(blocks):
            raise ValueError(f"states: holds {len(states)} states, must hold one per layer, {len(blocks)}")
        for block, state in zip(blocks, states, strict=True):
            mixed = block.attention
            own = mixed.states_of(state) if isinstance(mixed, attention.ParallelAttention) else [state]
            for mechanism, one in zip(block.mechanisms, own, strict=True):
                leading = mechanism.state_leading
                token = weight.new_empty(len(input_ids_B), *leading, self.model.config.dim // math.prod(leading))
                check_state(one, mechanism.state_shapes(), mechanism.state_dtype(weight.dtype), "token", token)
            state.update({name: tensor.contiguous() for name, tensor in state.items()})
        self._states, self._batch, self._position = states, len(input_ids_B), int(states[0]["position"])
        token_BD = weight.new_empty(self._batch, self.model.config.dim)
        self._calls = [layer.bound(token_BD, state) for layer, state in zip(self.layers, states, strict=True)]


class Rereader:
    """A step without a state: the model reads the whole text once more for every token, as its parallel form does.

    What a decoder without a recurrent form has, and softmax attention without a cache.
    """

    def __init__(self, model: LanguageModel) -> None:
        if model.config.kind != "decoder":
            raise ValueError(f"kind={model.config.kind!r}: only a decoder continues a text")
        self.model = model

    @torch.no_grad()
    def prefill(self, input_ids_BN: Tensor) -> tuple[Tensor, ModelState]:
        """(logits [B, V] of the token after the text, the text as a state)."""
        logits_BV = self.model.logits(self.model.hidden(input_ids_BN)[:, -1])
        return logits_BV, [{"text": input_ids_BN, "position": torch.tensor(input_ids_BN.shape[1])}]

    def step(self, input_ids_B: Tensor, states: ModelState) -> tuple[Tensor, ModelState]:
        """(logits [B, V] after one more token per sequence, the longer text)."""
        return self.prefill(torch.cat([states[0]["text"], input_ids_B[:, None]], dim=1))


class _Layer:
    """One block's matrices and norms."""

    def __init__(self, block: Block) -> None:
        self.mixer = _mixer(block.attention)
        self.attention_norm, self.pre_norm = _norm(block.attention_norm), block.pre_norm
        self.feed_forward = None if block.feed_forward is None else _feed_forward(block.feed_forward)
        self.feed_forward_norm = _norm(block.feed_forward_norm or nn.Identity())

    def bound(self, token_BD: Tensor, state: State) -> Mix:
        """The layer as a call for tokens such as ``token_BD``, which updates ``state``."""
        mix, norm, pre_norm = self.mixer(token_BD, state), self.attention_norm, self.pre_norm
        feed_forward = None if self.feed_forward is None else self.feed_forward(token_BD)
        feed_forward_norm = self.feed_forward_norm

        def layer(x: Tensor, position: int) -> Tensor:
            x = x + mix(norm(x) if pre_norm else x, position)
            if not pre_norm:
                x = norm(x)
            if feed_forward is None:
                return x
            if pre_norm:
                return x + feed_forward(feed_forward_norm(x))
            return feed_forward_norm(x + feed_forward(x))

        return layer


Mixer = Callable[[Tensor, State], Mix]  # (a token [B, D], its state) → the part of a layer that mixes tokens


def _mixer(module: nn.Module) -> Mixer:
    if isinstance(module, attention.AttentionBlock):
        return _block(module)
    if isinstance(module, attention.ParallelAttention):
        return _side_by_side(module)
    assert isinstance(module, attention.MultiHeadAttention)
    heads, out_proj = _heads(module), _Linear(module.out_proj)

    def mixer(token_BD: Tensor, state: State) -> Mix:
        attend = heads(token_BD, state)
        return lambda x, position: out_proj(attend(x, position))

    return mixer


def _block(module: attention.AttentionBlock) -> Mixer:
    def mixer(token_BD: Tensor, state: State) -> Mix:
        def mix(x: Tensor, position: int) -> Tensor:
            y, after = module.recurrence(x, state, position)
            state.update(after)
            return y

        return mix

    return mixer


def _heads(module: attention.MultiHeadAttention) -> Mixer:
    """The concatenated heads [B, H·D], before the output projection."""
    mechanism, project = module.attention, _Linear(module.q_proj, module.k_proj, module.v_proj)
    h, d = mechanism.config.heads, mechanism.config.head_dim

    def mixer(token_BD: Tensor, state: State) -> Mix:
        qkv, o = token_BD.new_empty(len(token_BD), 3 * h * d), token_BD.new_empty(len(token_BD), h * d)
        o_BHD = o.view(-1, h, d)
        attend = mechanism.bound(qkv.view(-1, 3, h, d).transpose(0, 1), o_BHD, state)

        def mix(x: Tensor, position: int) -> Tensor:
            project.into(x, qkv)
            attend(position)
            if mechanism.norm_after is not None:
                o_BHD.copy_(mechanism.normed(o_BHD[:, :, None])[:, :, 0])
            return o

        return mix

    return mixer


def _side_by_side(module: attention.ParallelAttention) -> Mixer:
    branches, out_proj = [_heads(branch) for branch in module.side_by_side()], _Linear(module.out_proj)

    def mixer(token_BD: Tensor, state: State) -> Mix:
        states = module.states_of(state)
        calls = [heads(token_BD, own) for heads, own in zip(branches, states, strict=True)]

        def mix(x: Tensor, position: int) -> Tensor:
            y = out_proj(torch.cat([call(x, position) for call in calls], dim=-1))
            for own in states:
                own["position"] = torch.tensor(position + 1)
            state.update(attention.joined(states))
            return y

        return mix

    return mixer


class _Linear:
    """Linear layers that share their input x [B, D], their outputs concatenated."""

    def __init__(self, *layers: nn.Module) -> None:
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        assert len(linear) == len(layers)
        weight = torch.cat([one.weight.detach() for one in linear])
        bias = [one.bias.detach() for one in linear if one.bias is not None]
        fast = weight.device.type == "cpu" and weight.dtype in _WIDE
        self.transposed = weight.t().contiguous() if fast else weight.t()
        self.bias = torch.cat(bias) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return torch.mm(x, self.transposed)
        return torch.addmm(self.bias, x, self.transposed)

    def into(self, x: Tensor, out: Tensor) -> None:
        if self.bias is None:
            torch.mm(x, self.transposed, out=out)
        else:
            torch.addmm(self.bias, x, self.transposed, out=out)


def _feed_forward(module: FFN | GLU) -> Callable[[Tensor], Map]:
    """(a token [B, D]) → the feed-forward part for such tokens."""
    activation, down = module.activation.forward, _Linear(module.down)
    up = _Linear(module.up if isinstance(module, FFN) else module.gate_and_value)
    if isinstance(module, FFN):
        return lambda token_BD: lambda x: down(activation(up(x)))

    def bound(token_BD: Tensor) -> Map:
        both = token_BD.new_empty(len(token_BD), up.transposed.shape[1])
        gate, value = both.chunk(2, dim=-1)

        def glu(x: Tensor) -> Tensor:
            up.into(x, both)
            return down(activation(gate) * value)

        return glu

    return bound


def _norm(module: nn.Module) -> Map:
    """The module's function of x [B, D]; the two usual norms in few operations."""
    if isinstance(module, LayerNorm) and module.gain is not None and module.gain.dtype in _WIDE:
        size, gain, bias, eps = (module.size,), module.gain.detach(), module.bias, module.eps
        return lambda x: torch.layer_norm(x, size, gain, bias, eps)
    if isinstance(module, RMSNorm) and module.gain is None:
        eps, placement, forward = module.eps, module.eps_placement, module.forward
        return lambda x: x * inverse_rms(x, eps, placement) if x.dtype in _WIDE else forward(x)
    return module.forward
