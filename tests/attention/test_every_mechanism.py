"""What holds for every registered mechanism, by parametrisation over the registry."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanism_cases import CAUSAL, HEAD_DIM, HEADS, draw, holes, make, options, padding
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transnormer_lib.analysis.tensor_memory import peak_bytes
from transnormer_lib.attention import AttentionBlock, about, blockwise, build, config_class, is_recurrent, names

each = pytest.mark.parametrize("name", names())
each_causal = pytest.mark.parametrize("name", CAUSAL)
each_impl = pytest.mark.parametrize("impl", ["reference", "chunked"])
FORMS = [(name, causal) for name in names() for causal in ((False, True) if name in CAUSAL else (False,))]
FORM_IDS = [f"{name}-{'causal' if causal else 'bidirectional'}" for name, causal in FORMS]
each_form = pytest.mark.parametrize(("name", "causal"), FORMS, ids=FORM_IDS)
# lrpe is a reflection and rope; blocks have their own rotation and no such field
each_rotary = pytest.mark.parametrize("rotary", ["none", "lrpe"])
lengths = st.integers(1, 41)
seeds = st.integers(0, 2**32 - 1)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    assert actual.isfinite().all()
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@each_form
@each_rotary
@settings(deadline=None, max_examples=20)
@given(n=lengths, seed=seeds, masked=st.booleans())
def test_the_fast_form_computes_the_specification(name, causal, rotary, n, seed, masked):
    x, mask = draw(name, 2, n, seed), holes(2, n, seed) if masked else None
    expected = make(name, seed, causal=causal, rotary=rotary, impl="reference")(*x, mask)
    actual = make(name, seed, causal=causal, rotary=rotary, impl="chunked")(*x, mask)
    if mask is not None:  # what stands on padding means nothing
        shape = (2, 1, n, 1) if actual.ndim == 4 else (2, n, 1)
        actual, expected = (o.masked_fill(mask.view(shape), 0.0) for o in (actual, expected))
    close(actual, expected)


@each_form
def test_both_forms_have_the_same_gradients(name, causal):
    gradients = []
    for impl in ("reference", "chunked"):
        mechanism, x = make(name, 3, causal=causal, impl=impl), [t.requires_grad_() for t in draw(name, 2, 21, 3)]
        o = mechanism(*x, holes(2, 21, 3))
        w = torch.randn(o.shape, generator=torch.Generator().manual_seed(1), dtype=o.dtype)
        w = w.masked_fill(holes(2, 21, 3).view((2, 1, 21, 1) if o.ndim == 4 else (2, 21, 1)), 0.0)
        (o * w).sum().backward()
        learned = [p for p in mechanism.parameters() if p.requires_grad]
        gradients.append([t.grad if t.grad is not None else torch.zeros_like(t) for t in [*x, *learned]])
    for reference, fast in zip(*gradients, strict=True):
        close(fast, reference, 1e-8)


@each_form
def test_the_gradients_are_those_of_finite_differences(name, causal):
    mechanism = make(name, 5, causal=causal, impl="chunked")
    x = [t.requires_grad_() for t in draw(name, 1, 11, 5)]
    assert torch.autograd.gradcheck(lambda *x: mechanism(*x), x, fast_mode=True)


@each_causal
@each_impl
@settings(deadline=None, max_examples=20)
@given(n=lengths, seed=seeds, where=st.floats(0, 1), masked=st.booleans())
def test_the_future_does_not_change_the_past(name, impl, n, seed, where, masked):
    cut, mask = round(where * n), holes(2, n, seed) if masked else None
    mechanism, one = make(name, seed, causal=True, impl=impl), draw(name, 2, n, seed)
    two = [
        torch.cat([a[..., :cut, :], b[..., cut:, :]], dim=-2)
        for a, b in zip(one, draw(name, 2, n, seed ^ 1, scale=20.0), strict=True)
    ]
    close(mechanism(*two, mask)[..., :cut, :], mechanism(*one, mask)[..., :cut, :])


@pytest.mark.slow
@each_causal
@each_impl
@each_rotary
@settings(deadline=None, max_examples=20)
@given(n=lengths, seed=seeds, where=st.floats(0.01, 1))
def test_a_prefix_alone_gives_the_prefix_of_the_whole(name, impl, rotary, n, seed, where):
    cut, x = max(1, round(where * n)), draw(name, 2, n, seed)
    mechanism = make(name, seed, causal=True, impl=impl, rotary=rotary)
    close(mechanism(*(t[..., :cut, :] for t in x)), mechanism(*x)[..., :cut, :])


@pytest.mark.parametrize("name", [name for name in names() if name not in CAUSAL])
def test_a_mechanism_without_a_published_causal_form_refuses_it(name):
    with pytest.raises(ValueError, match="causal=True: ") as caught:
        build(name, options(name, causal=True))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@each_form
@each_impl
@settings(deadline=None, max_examples=20)
@given(n=st.integers(1, 30), seed=seeds, extra=st.integers(1, 30))
def test_appending_padding_changes_nothing(name, causal, impl, n, seed, extra):
    mechanism, longer = make(name, seed, causal=causal, impl=impl), draw(name, 2, n + extra, seed)
    alone = mechanism(*(t[..., :n, :] for t in longer))
    close(mechanism(*longer, padding(2, n + extra, n))[..., :n, :], alone)


@each_form
@each_impl
def test_sequences_of_a_batch_do_not_see_each_other_nor_each_others_padding(name, causal, impl):
    mechanism, x = make(name, 1, causal=causal, impl=impl), draw(name, 2, 24, 1)
    mask = torch.stack([padding(1, 24, 24)[0], padding(1, 24, 9)[0]])
    together = mechanism(*x, mask)
    close(together[:1], mechanism(*(t[:1] for t in x)))
    close(together[1:, ..., :9, :], mechanism(*(t[1:, ..., :9, :] for t in x)))


@each_form
@each_impl
@pytest.mark.parametrize("content", [1e6, float("nan")])
def test_the_content_of_padding_is_irrelevant(name, causal, impl, content):
    mechanism, x, mask = make(name, 2, causal=causal, impl=impl), draw(name, 2, 19, 2), holes(2, 19, 2)
    other = [t.masked_fill(mask.view((2, 1, 19, 1) if t.ndim == 4 else (2, 19, 1)), content) for t in x]
    keep = ~mask.view((2, 1, 19, 1) if x[0].ndim == 4 else (2, 19, 1))
    expected, actual = (torch.where(keep, mechanism(*y, mask), 0.0) for y in (x, other))
    close(actual, expected)


@each_form
@each_impl
@each_rotary
def test_a_sequence_of_padding_alone_harms_nothing(name, causal, impl, rotary):
    mechanism = make(name, 6, causal=causal, impl=impl, rotary=rotary)
    x = [t.requires_grad_() for t in draw(name, 2, 13, 6)]
    mask = torch.stack([padding(1, 13, 13)[0], padding(1, 13, 0)[0]])
    o = mechanism(*x, mask)
    assert o.isfinite().all()
    close(o[:1], mechanism(*(t[:1] for t in x)))
    o[:1].sum().backward()
    assert all(t.grad is None or t.grad.isfinite().all() for t in (*x, *mechanism.parameters()))


@each_form
@each_impl
@each_rotary
def test_nan_in_padding_reaches_no_gradient(name, causal, impl, rotary):
    mechanism, mask = make(name, 2, causal=causal, impl=impl, rotary=rotary), holes(2, 19, 2)
    place = mask.view((2, 1, 19, 1) if len(draw(name, 1, 1, 0)) == 3 else (2, 19, 1))
    x = [t.masked_fill(place, float("nan")).requires_grad_() for t in draw(name, 2, 19, 2)]
    mechanism(*x, mask).masked_fill(place, 0.0).sum().backward()
    for t in (*x, *mechanism.parameters()):
        assert t.grad is None or t.grad.isfinite().all()


@each_form
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("scale", [1.0, 12.0], ids=["ordinary", "large"])
def test_half_precision_neither_overflows_nor_drifts(name, causal, dtype, scale):
    n, eps = 2000, torch.finfo(dtype).eps
    mechanism = make(name, 7, torch.float32, causal=causal, impl="chunked", max_length=n)
    x = draw(name, 1, n, 7, scale, dtype)
    exact, unavoidable = mechanism(*(t.float() for t in x)), torch.tensor(0.0)
    if isinstance(mechanism, AttentionBlock):  # its linear layers round as well: by as much as in the specification
        specification = make(name, 7, torch.float32, causal=causal, impl="reference", max_length=n)
        with torch.autocast("cpu", dtype):
            actual, rounded = (block(*(t.float() for t in x)) for block in (mechanism, specification))
        unavoidable = (rounded - specification(*(t.float() for t in x))).norm()
    else:
        actual = mechanism(*x)
        assert actual.dtype == dtype
    fits = exact.abs() < 0.99 * torch.finfo(dtype).max  # a sum that nothing divides may leave the dtype's range
    actual, exact = actual.float()[fits], exact[fits]
    assert actual.isfinite().all()
    smallest = torch.finfo(dtype).tiny * eps  # below it lies zero
    allowed = 2 * unavoidable + 2 * eps * exact.norm() + 2 * smallest * exact.numel() ** 0.5
    error = (actual - exact).norm()
    assert error <= allowed, f"error {error:.2g}, allowed {allowed:.2g}"


@each_form
@pytest.mark.parametrize("products", [True, False], ids=["bf16-products", "no-bf16-products"])
def test_the_backward_pass_may_run_inside_autocast(name, causal, products, monkeypatch):
    monkeypatch.setattr(blockwise, "_BFLOAT16_PRODUCTS", products)
    mechanism, n = make(name, 7, torch.float32, causal=causal, impl="chunked", max_length=150), 150
    own = torch.float32 if isinstance(mechanism, AttentionBlock) else torch.bfloat16
    inside, outside = ([t.requires_grad_() for t in draw(name, 1, n, 7, 1.0, own)] for _ in range(2))
    w = torch.randn(inside[0].shape, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", torch.bfloat16):
        (mechanism(*inside).float() * w).sum().backward()
        loss = (mechanism(*outside).float() * w).sum()
    loss.backward()
    for one, other in zip(inside, outside, strict=True):
        assert one.grad.dtype == own
        assert (one.grad - other.grad).norm() <= 0.05 * other.grad.norm()


@each_form
@each_impl
def test_an_empty_batch_has_an_empty_output_and_gradient(name, causal, impl):
    mechanism, x = make(name, 8, causal=causal, impl=impl), [t.requires_grad_() for t in draw(name, 0, 17, 8)]
    o = mechanism(*x)
    o.sum().backward()
    assert o.shape == x[0].shape
    assert all(t.grad is not None and t.grad.shape == t.shape for t in x)


@each_form
def test_a_state_dict_carries_everything_over(name, causal):
    one, two, x = make(name, 8, causal=causal), make(name, 9, causal=causal), draw(name, 2, 17, 8)
    two.load_state_dict(one.state_dict())
    assert torch.equal(one(*x), two(*x))


@each_form
def test_the_same_input_gives_the_same_output(name, causal):
    mechanism, x = make(name, 8, causal=causal), draw(name, 2, 17, 8)
    assert torch.equal(mechanism(*x), mechanism(*x))
    assert torch.equal(mechanism(*x), make(name, 8, causal=causal)(*x))


@each_form
def test_training_mode_gives_every_weight_a_finite_gradient(name, causal):
    mechanism, x = make(name, 4, causal=causal).train(), [t.requires_grad_() for t in draw(name, 2, 33, 4)]
    mechanism(*x).square().sum().backward()
    for parameter in (*mechanism.parameters(), *x):
        if parameter.requires_grad:
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CAUSAL if is_recurrent(name)])
@each_rotary
@settings(deadline=None, max_examples=20)
@given(n=lengths, seed=seeds, where=st.floats(0, 1))
def test_steps_compute_the_parallel_form(name, rotary, n, seed, where):
    mechanism, x, start = make(name, seed, causal=True, rotary=rotary), draw(name, 2, n, seed), round(where * (n - 1))
    expected = mechanism(*x)
    outputs = []
    if start:
        first, state = mechanism.prefill(*(t[..., :start, :] for t in x))
        outputs += list(first.unbind(-2))
    else:
        state = mechanism.initial_state(2, torch.float64)
    for i in range(start, n):
        o, state = mechanism.step(*(t[..., i, :] for t in x), state)
        outputs.append(o)
    close(torch.stack(outputs, dim=-2), expected.detach())
    assert int(state["position"]) == n


@pytest.mark.parametrize("name", [name for name in CAUSAL if is_recurrent(name)])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda state: {**state, "position": torch.tensor(-3)},
            r"^state\['position'\]=-3: must be the number of tokens",
        ),
        (lambda state: {"position": state["position"]}, r"^state=\['position'\]: must hold"),
        (lambda state: {k: v if k == "position" else v[:1] for k, v in state.items()}, r"shape=\(1, .*: must be \(2, "),
        (
            lambda state: {k: v if k == "position" else v.float() for k, v in state.items()},
            "torch.float32 on cpu: must",
        ),
    ],
    ids=["position", "empty", "batch", "dtype"],
)
def test_a_state_that_does_not_fit_is_refused_in_one_line(name, spoil, message):
    mechanism, x = make(name, causal=True), draw(name, 2, 5, 0)
    _, state = mechanism.prefill(*x)
    with pytest.raises(ValueError, match=message) as caught:
        mechanism.step(*(t[..., 0, :] for t in x), spoil(state))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [name for name in names() if not (name in CAUSAL and is_recurrent(name))])
def test_a_mechanism_without_a_recurrence_says_so(name):
    with pytest.raises(ValueError, match=r"has no recurrent form|causal=False"):
        make(name).initial_state(1)


@each_form
def test_the_weights_shown_are_a_matrix_per_head(name, causal):
    mechanism, x = make(name, 2, causal=causal), draw(name, 2, 14, 2)
    w = mechanism.weights(*x)
    assert w.shape[0] == 2
    assert w.shape[2:] == (14, 14)
    assert w.isfinite().all()
    if causal:
        assert not w.triu(1).any()


# The causal Informer selects as many queries as the data make it; what the others count is what runs.
@pytest.mark.parametrize(("name", "causal"), [form for form in FORMS if form != ("informer", True)])
@pytest.mark.parametrize("n", [1, 21, 48])
def test_operations_are_those_that_pytorch_counts(name, causal, n):
    mechanism, x = make(name, causal=causal, impl="chunked"), draw(name, 1, n, 0)
    linear = sum(layer.weight.numel() for layer in mechanism.modules() if isinstance(layer, torch.nn.Linear))
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        mechanism(*x)
    counted = counter.get_total_flops()
    assert mechanism.flops(n) + 2 * n * linear == counted


WITH_DROPOUT = [form for form in FORMS if "dropout" in config_class(form[0]).__dataclass_fields__]


@pytest.mark.parametrize(("name", "causal"), WITH_DROPOUT)
@each_impl
def test_attention_dropout_acts_in_training_alone(name, causal, impl):
    with_dropout, without = (make(name, 1, causal=causal, impl=impl, dropout=p) for p in (0.2, 0.0))
    x = draw(name, 1, 12, 1)
    close(with_dropout(*x), without(*x))

    def trained(mechanism, seed):  # what training draws besides comes first, and is the same for both
        torch.manual_seed(seed)
        return mechanism.train()(*x).detach()

    assert not torch.equal(trained(with_dropout, 0), trained(without, 0))


# Training draws something besides, or a norm stands after the dropout: the mean is then not that of evaluation.
@pytest.mark.slow
@pytest.mark.parametrize(("name", "causal"), [form for form in WITH_DROPOUT if form[0] not in ("rela", "reformer")])
@each_impl
def test_attention_dropout_keeps_the_mean(name, causal, impl):
    torch.manual_seed(0)
    mechanism, x = make(name, 1, causal=causal, impl=impl, dropout=0.2), draw(name, 1, 12, 1)
    expected, samples = mechanism(*x), torch.stack([mechanism.train()(*x).detach() for _ in range(300)])
    error = (samples.mean(0) - expected) / (samples.std(0) / 300**0.5 + 1e-9)
    assert error.abs().max() < 6  # standard errors: one in 10^9 for a normal number


@each_form
def test_more_tokens_cost_more_operations(name, causal):
    mechanism = make(name, causal=causal, max_length=4096)
    counts = [mechanism.flops(n) for n in (64, 1024, 4096)]
    assert 0 < counts[0] < counts[1] < counts[2]


# Between what a form of that order may grow over four times the length: whole chunks, n log n, lower-order terms.
_GROWTH = {"linear": (1.5, 4.4), "linearithmic": (3.0, 5.2), "quadratic": (8.0, 17.0)}


@pytest.mark.slow
@each_form
def test_memory_grows_as_the_table_of_mechanisms_says(name, causal):
    memory, peaks = about(name).memory, []
    growth = "quadratic" if "N²" in memory else "linearithmic" if "ln N" in memory else "linear"
    lengths = (512, 2048) if growth == "quadratic" else (2048, 8192)
    for n in lengths:
        fields = {"heads": 1, "causal": causal, "impl": "chunked", "max_length": n, "dtype": torch.float32}
        mechanism = make_at_published_size(name, **fields)
        shape = (1, n, 32) if isinstance(mechanism, AttentionBlock) else (1, 1, n, 32)
        count = 1 if isinstance(mechanism, AttentionBlock) else 3
        x = [torch.randn(shape, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(count)]
        peaks.append(peak_bytes(lambda mechanism=mechanism, x=x: mechanism(*x).sum().backward()))
    least, most = _GROWTH[growth]
    assert least <= peaks[1] / peaks[0] <= most, f"{peaks[0]:,} to {peaks[1]:,} bytes"


def make_at_published_size(name: str, dtype: torch.dtype, **fields):
    known = {"head_dim": 32, "dim": 32, **fields}
    config = config_class(name)
    mechanism = build(name, {key: value for key, value in known.items() if key in config.__dataclass_fields__})
    mechanism.reset_parameters(torch.Generator().manual_seed(0))
    return mechanism.to(dtype)


def test_the_sizes_of_the_cases_fit_together():
    assert make("softmax")(*draw("softmax", 1, 3, 0)).shape == (1, HEADS, 3, HEAD_DIM)
