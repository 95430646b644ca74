"""Our mechanisms inside transformers' models: the attention is replaced, and everything else is theirs."""

import re
import subprocess
import sys
from textwrap import dedent

import pytest
import torch

from transnormer_lib.attention import build_attention, in_transformers
from transnormer_lib.attention.in_transformers import register

transformers = pytest.importorskip("transformers")

VOCABULARY, HEADS, DIM = 50, 4, 32
MECHANISMS = {
    "norm-t1": ("norm", {"phi": "elu"}),
    "norm-t2": ("norm", {"phi": "1+elu"}),
    "diag-t1": ("diag", {"block_size": 4, "scores": "rela"}),
    "diag-t2": ("diag", {"block_size": 4}),
}


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    for name, (mechanism, options) in MECHANISMS.items():
        register(name, mechanism, options)


def llama(name: str, key_heads: int = HEADS, **fields: object) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=DIM, intermediate_size=48, num_hidden_layers=2, num_attention_heads=HEADS,
        num_key_value_heads=key_heads, **fields,
    )  # fmt: skip
    return _built(config, name)


def gpt2(name: str, **fields: object) -> torch.nn.Module:
    values = {"vocab_size": VOCABULARY, "n_embd": DIM, "n_layer": 2, "n_head": HEADS} | fields
    return _built(transformers.GPT2Config(**values), name)


def _built(config: object, name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=name).double().eval()


def ids(length: int = 11, batch: int = 2) -> torch.Tensor:
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("key_heads", [4, 2, 1], ids="key-heads-{}".format)
def test_a_layer_computes_our_mechanism_on_its_own_q_k_v(name: str, key_heads: int) -> None:
    model = llama(name, key_heads)
    layer = model.model.layers[0].self_attn
    mechanism, options = MECHANISMS[name]
    shape = {"heads": HEADS, "head_dim": DIM // HEADS, "causal": True}
    ours = build_attention(mechanism, {**options, **shape, "impl": "reference"})
    seen = {}
    layer.register_forward_pre_hook(lambda _, __, given: seen.update(given), with_kwargs=True)
    layer.o_proj.register_forward_pre_hook(lambda _, given: seen.update(o=given[0]))
    model(ids())
    x = seen["hidden_states"]
    q, k, v = (
        p(x).unflatten(-1, (-1, DIM // HEADS)).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    q, k = transformers.models.llama.modeling_llama.apply_rotary_pos_emb(q, k, *seen["position_embeddings"])
    k, v = (x.repeat_interleave(HEADS // key_heads, 1) for x in (k, v))
    torch.testing.assert_close(seen["o"], ours(q, k, v).transpose(1, 2).flatten(2), rtol=1e-10, atol=1e-10)


def test_the_example_of_the_docstring_makes_a_model_that_reads() -> None:
    """In a process of its own, because a name is registered once."""
    example = re.search(r"^For example::\n\n(.*?)\n\n(?=\S)", str(in_transformers.__doc__), re.DOTALL | re.MULTILINE)
    assert example is not None
    use = "import torch\nprint(*model(torch.arange(6)[None]).logits.shape, model.config.vocab_size)"
    command = [sys.executable, "-c", f"{dedent(example[1])}\n{use}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    batch, length, logits, vocabulary = done.stdout.split()
    assert (batch, length, logits) == ("1", "6", vocabulary)


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_later_token_changes_no_earlier_output(make: object, name: str) -> None:
    model, text = make(name), ids()
    changed = text.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % VOCABULARY
    first, second = model(text).logits, model(changed).logits
    torch.testing.assert_close(first[:, :7], second[:, :7], rtol=0, atol=0)
    assert not torch.equal(first[:, 7:], second[:, 7:])


@pytest.mark.parametrize("name", MECHANISMS)
def test_padding_at_the_end_changes_no_real_output(name: str) -> None:
    model, text = llama(name), ids(8)
    padded = torch.cat([text, ids(3)], 1)
    mask = torch.ones_like(padded)
    mask[:, 8:] = 0
    ours = model(padded, attention_mask=mask).logits[:, :8]
    torch.testing.assert_close(ours, model(text).logits, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("name", MECHANISMS)
def test_generation_with_a_cache_writes_what_the_whole_text_gives(make: object, name: str) -> None:
    model, text = make(name), ids(5)
    written = [
        model.generate(text, max_new_tokens=9, do_sample=False, use_cache=use, pad_token_id=0) for use in (True, False)
    ]
    assert torch.equal(*written)


def test_gradients_reach_every_weight() -> None:
    model = llama("norm-t2").train()
    model(ids(), labels=ids()).loss.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


def test_a_bidirectional_model_sees_both_sides() -> None:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=DIM, num_hidden_layers=1, num_attention_heads=HEADS, intermediate_size=48
    )
    model = transformers.AutoModel.from_config(config, attn_implementation="norm-t2").double().eval()
    text = ids()
    changed = text.clone()
    changed[:, -1] = (changed[:, -1] + 1) % VOCABULARY
    first, second = (model(x).last_hidden_state[:, 0] for x in (text, changed))
    assert not torch.equal(first, second)


def _mask_of_ones_own() -> None:
    llama("norm-t2")(ids(), attention_mask=torch.ones(2, 1, 11, 11, dtype=torch.bool))


def _window() -> None:
    config = transformers.MistralConfig(
        vocab_size=VOCABULARY, hidden_size=DIM, intermediate_size=48, num_hidden_layers=1, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, sliding_window=4,
    )  # fmt: skip
    _built(config, "diag-t2")(ids())


def _packed() -> None:
    llama("norm-t2")(ids(6), position_ids=torch.tensor([[0, 1, 2, 0, 1, 2]] * 2), use_cache=False)


def _static_cache() -> None:
    llama("norm-t2").generate(ids(), max_new_tokens=3, cache_implementation="static", do_sample=False, pad_token_id=0)


REFUSED = {
    "a mask of one's own": (_mask_of_ones_own, r"attention_mask.shape=\(2, 1, 11, 11\): must be a padding mask"),
    "a sliding window": (_window, "only causality and padding are supported"),
    "packed sequences": (_packed, "only causality and padding are supported"),
    "a cache of fixed size": (_static_cache, "only a cache that grows"),
    "dropout in training": (lambda: gpt2("diag-t2").train()(ids()), "dropout=0.1: 'diag' has none here"),
    "another scale": (lambda: gpt2("norm-t2", scale_attn_by_inverse_layer_idx=True)(ids()), "scales by itself"),
    "a known name": (lambda: register("sdpa", "norm"), "name='sdpa': transformers has an attention"),
    "an unknown option": (lambda: register("x", "norm", {"fi": "elu"}), "'norm' has no such field"),
    "weights of its own": (lambda: register("x", "norm", {"affine": True}), "has weights of its own"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_cannot_compute_is_refused_in_one_line(case: str) -> None:
    act, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as caught:
        act()
    assert "\n" not in str(caught.value)
