"""``impl="triton"`` is the same mechanism: the kernels, under Triton's interpreter, agree with the reference form."""

import logging

import pytest
import torch

from transnormer_lib import attention
from transnormer_lib.attention import MultiHeadAttention, build, interface
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.language_model import build_model

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CASES = {
    "norm-t1": ("norm", {"phi": "elu"}),
    "norm-t2-released": ("norm", {"phi": "1+elu", "eps_placement": "outside", "rotary": "lrpe"}),
    "norm-per-head": ("norm", {"norm_over": "head"}),
    "norm-with-gain": ("norm", {"affine": True}),
    "norm-layer": ("norm", {"norm": "layer", "affine": True}),
    "norm-scale": ("norm", {"norm": "scale", "rotary": "rope"}),
    "linear": ("linear", {}),
    "linear-lrpe": ("linear", {"rotary": "lrpe"}),
    "linear-unscaled": ("linear-unscaled", {"phi": "relu"}),
    "diag-t1": ("diag", {"scores": "rela", "block_size": 16}),
    "diag-t2-lrpe": ("diag", {"scores": "softmax", "block_size": 24, "rotary": "lrpe"}),
}


@pytest.fixture(autouse=True)
def kernels_on_this_device(monkeypatch):
    pytest.importorskip("triton")
    mechanisms = [type(build(name, {"heads": 1, "head_dim": 16})) for name in attention.names("attention")]
    for mechanism in mechanisms:
        if mechanism.kernel_devices:
            monkeypatch.setattr(mechanism, "kernel_devices", (DEVICE,))
    interface._log_once.cache_clear()


def pair(name, options, **more):
    """The mechanism's kernel and its reference, with the same parameters."""
    config = {"heads": 2, "head_dim": 16, **options, **more}
    kernel, reference = (build(name, {**config, "impl": impl}).to(DEVICE) for impl in ("triton", "reference"))
    for parameter in kernel.parameters():
        if parameter.ndim == 1 and kernel.rotary is None:
            torch.nn.init.uniform_(parameter, 0.5, 1.5, generator=None)
    reference.load_state_dict(kernel.state_dict())
    return kernel, reference


def tensors(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 2, n, 16, generator=generator).to(DEVICE).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize(("name", "options"), CASES.values(), ids=CASES)
def test_the_kernel_agrees_with_the_reference_in_values_and_gradients(name, options, causal):
    kernel, reference = pair(name, options, causal=causal)
    padding = torch.zeros(2, 70, dtype=torch.bool, device=DEVICE)
    padding[0, 50:] = True
    real = ~padding[:, None, :, None]
    results = []
    for form in (kernel, reference):
        q, k, v = tensors(70)
        o = form(q, k, v, padding)
        parameters = [p for p in form.parameters() if p.requires_grad]
        results.append([o * real, *torch.autograd.grad((o * real * torch.cos(q)).sum(), [q, k, v, *parameters])])
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).norm() <= 2e-5 * (1 + theirs.norm())


@pytest.mark.parametrize(("name", "options"), CASES.values(), ids=CASES)
def test_decoding_with_the_kernel_agrees_with_the_parallel_form(name, options):
    kernel, reference = pair(name, options, causal=True)
    q, k, v = (x.detach() for x in tensors(6))
    o = reference(q, k, v)
    _, state = kernel.prefill(q[:, :, :3], k[:, :, :3], v[:, :, :3])
    for n in range(3, 6):
        o_n, state = kernel.step(q[:, :, n], k[:, :, n], v[:, :, n], state)
        assert (o_n - o[:, :, n]).norm() <= 1e-5 * (1 + o[:, :, n].norm())


def test_padding_may_hold_anything():
    kernel, _ = pair("norm", {}, causal=True)
    q, k, v = (x.detach() for x in tensors(20))
    padding = torch.zeros(2, 20, dtype=torch.bool, device=DEVICE)
    padding[:, 15:] = True
    o = kernel(q, k, v, padding)
    k[:, :, 15:], v[:, :, 15:] = float("nan"), float("inf")
    assert torch.equal(kernel(q, k, v, padding)[:, :, :15], o[:, :, :15])


def test_heads_are_merged_without_a_copy():
    layer = MultiHeadAttention(32, pair("norm", {}, causal=True)[0]).to(DEVICE)
    seen = []
    layer.out_proj.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    layer(torch.randn(2, 10, 32, device=DEVICE))
    assert seen[0]._base is not None or seen[0].is_contiguous()
    o = layer.attention(*(x.detach() for x in tensors(10)))
    assert o.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize(
    ("name", "options", "dtype", "reason"),
    [
        ("norm", {"head_dim": 8}, torch.float32, "head_dim=8 is none of 16, 32"),
        ("norm", {}, torch.float64, "torch.float64 is not a dtype"),
        ("diag", {"block_size": 256}, torch.float32, "block_size=256 is above"),
        ("diag", {"dropout": 0.1}, torch.float32, "no dropout"),
        ("linear-unscaled", {}, torch.float16, "more than float16 holds"),
        ("linear", {"head_dim": 128, "rotary": "lrpe"}, torch.float32, "a denominator with a rotation"),
    ],
    ids=["head-dim", "dtype", "block", "dropout", "float16", "wide-rotation"],
)
def test_auto_falls_back_and_says_why_once_where_triton_refuses(name, options, dtype, reason, caplog):
    config = {"heads": 2, "head_dim": 16, "causal": True, **options}
    x = torch.randn(1, 2, 9, config["head_dim"], device=DEVICE).to(dtype)
    auto = build(name, config).to(DEVICE)
    with caplog.at_level(logging.INFO, "transnormer_lib.attention"):
        first, second = (auto(x, x, x) for _ in range(2))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert reason in caplog.text
    if not options.get("dropout"):
        chunked = build(name, {**config, "impl": "chunked"}).to(DEVICE)
        chunked.load_state_dict(auto.state_dict())
        assert torch.equal(first, second)
        assert torch.equal(first, chunked(x, x, x))
    with pytest.raises(ValueError, match=f"impl='triton': .*{reason}"):
        build(name, {**config, "impl": "triton"}).to(DEVICE)(x, x, x)


def test_a_model_takes_the_kernels_unasked_and_says_so_once(caplog, monkeypatch):
    config = architecture("transnormer-t2", kind="decoder", vocab_size=20, max_length=40, dim=32, heads=2, layers=2)
    ids = torch.randint(20, (2, 40), generator=torch.Generator().manual_seed(0)).to(DEVICE)
    model = build_model(config, seed=0).to(DEVICE)
    with caplog.at_level(logging.INFO, "transnormer_lib.attention"):
        logits = [model(ids), model(ids)]
    assert sorted(record.getMessage() for record in caplog.records) == [
        f"{name} on {DEVICE} runs triton" for name in ("diag", "norm")
    ]
    for block in model.blocks:
        monkeypatch.setattr(type(block.attention.attention), "kernel_devices", ())
    plain = model(ids)
    assert (logits[0] - plain).norm() <= 1e-5 * plain.norm()
    assert not torch.equal(logits[0], plain)  # it was another form
