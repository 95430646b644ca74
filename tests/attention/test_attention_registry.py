"""Names, configs and the errors of building."""

import dataclasses
import json
import re

import pytest
import torch
from mechanism_cases import CAUSAL, options
from pydantic import TypeAdapter, ValidationError

from transnormer_lib.attention import (
    Attention,
    AttentionConfig,
    LinearConfig,
    NormAttention,
    NormConfig,
    about,
    build,
    classes,
    config_class,
    kind,
    names,
    register,
    registry,
)

SIZES = {"heads": 2, "head_dim": 4}


def test_the_mechanisms_of_the_paper_are_there():
    assert {"softmax", "linear", "linear-unscaled", "norm", "diag"} <= set(names())


def test_what_help_says_of_build_names_every_mechanism():
    words = re.findall(r"[\w-]+", (build.__doc__ or "").partition("The names are")[2].partition(".")[0])
    assert sorted(set(words) - {"and"}) == list(names())


@pytest.mark.parametrize("name", names())
def test_a_mapping_and_a_config_build_the_same(name):
    fields = options(name, causal=name in CAUSAL)
    config = config_class(name)(**fields)
    one, two = build(name, config), build(name, fields)
    assert type(one) is type(two)
    assert one.config == two.config == config
    assert one.name == name


@pytest.mark.parametrize("name", names())
def test_configs_are_frozen(name):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config_class(name)(**options(name)).causal = True


def test_every_row_of_the_table_is_a_mechanism():
    assert tuple(registry._table()) == names()


@pytest.mark.parametrize("name", names())
def test_a_mechanism_says_what_it_costs_and_where_it_comes_from(name):
    row = about(name)
    assert all((row.title, row.time, row.memory, row.source, row.oracle))
    assert kind(name) in ("attention", "block")
    assert name in names(kind(name))


@pytest.mark.parametrize(
    ("name", "config", "error", "message"),
    [
        ("nrom", SIZES, ValueError, "name='nrom': no such attention mechanism; did you mean 'norm'?"),
        ("zzz", SIZES, ValueError, "name='zzz': no such attention mechanism; must be one of bigbird, "),
        (
            "norm",
            {**SIZES, "casual": True},
            ValueError,
            "casual=True: 'norm' has no such field; did you mean 'causal'?",
        ),
        (
            "softmax",
            {**SIZES, "phi": "elu"},
            ValueError,
            "phi='elu': 'softmax' has no such field; must be one of heads",
        ),
        ("norm", {"heads": 2}, ValueError, "config={'heads': 2}: 'norm' also needs head_dim"),
        ("norm", LinearConfig(**SIZES), TypeError, "config=LinearConfig: 'norm' takes NormConfig"),
        ("norm", {**SIZES, "heads": 0}, ValueError, "heads=0: must be a whole number of at least 1"),
        ("norm", {**SIZES, "chunk_size": True}, ValueError, "chunk_size=True: must be a whole number"),
        ("norm", {**SIZES, "causal": 1}, ValueError, "causal=1: must be True or False"),
        ("norm", {**SIZES, "impl": "fast"}, ValueError, "impl='fast': must be one of 'auto', 'reference', 'chunked', "),
        ("norm", {**SIZES, "phi": "gelu"}, ValueError, "phi='gelu': must be one of 'elu', '1+elu', 'relu', 'identity'"),
        ("norm", {**SIZES, "eps": 0}, ValueError, "eps=0: must be a positive finite number"),
        ("lara", {**SIZES, "coefficient": -1.0}, ValueError, "coefficient=-1.0: must be a finite number and not neg"),
        ("softmax", {**SIZES, "dropout": 1.0}, ValueError, "dropout=1.0: must be in [0, 1)"),
        ("diag", {**SIZES, "norm": "layer"}, ValueError, "norm='layer': must be one of 'rms', 'none'"),
        ("performer", {**SIZES, "redraw_interval": 0}, ValueError, "redraw_interval=0: must be a whole number"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_a_bad_build_is_refused_in_one_line_that_says_why(name, config, error, message):
    with pytest.raises(error, match=re.escape(message)) as caught:
        build(name, config)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("value", [-1, "nonsense"], ids=str)
def test_every_field_refuses_a_value_of_the_wrong_kind_and_is_named(name, value):
    for field in dataclasses.fields(config_class(name)):
        with pytest.raises(ValueError, match=f"^{field.name}=") as caught:
            build(name, {**options(name), field.name: value})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", names())
def test_pydantic_builds_configs_strictly(name):
    adapter = TypeAdapter(config_class(name))
    fields = options(name)
    size = "dim" if kind(name) == "block" else "heads"
    assert adapter.validate_json(json.dumps(fields)) == config_class(name)(**fields)
    for wrong in ({**fields, "surplus": 1}, {**fields, "causal": "yes"}, {**fields, size: "2"}):
        with pytest.raises(ValidationError):
            adapter.validate_json(json.dumps(wrong))


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="name='norm': already registered by NormAttention"):
        register("norm", NormConfig)(NormAttention)


@pytest.mark.parametrize("name", [name for name in names("attention") if not classes(name)[1].kernel_devices])
def test_triton_is_refused_while_there_is_no_kernel(name):
    with pytest.raises(ValueError, match=f"impl='triton': transnormer_kernels has no kernel for '{name}'"):
        build(name, options(name, impl="triton"))


class _WithKernel(Attention):
    """Each form returns another number, so that the output says which one ran."""

    name = "toy"
    kernel_devices = ("cpu",)

    def kernel(self, q, k, v, key_padding_mask):
        return torch.full_like(v, 1.0)

    def chunked(self, q, k, v, key_padding_mask):
        return torch.full_like(v, 2.0)

    def attention_matrix(self, q, k, allowed):
        return torch.zeros(*q.shape[:3], q.shape[2], dtype=q.dtype)


@pytest.mark.parametrize(("impl", "value"), [("auto", 1.0), ("triton", 1.0), ("chunked", 2.0), ("reference", 0.0)])
def test_auto_takes_the_kernel_of_the_device_and_the_others_what_they_say(impl, value):
    q = torch.ones(1, 2, 3, 4)
    assert torch.equal(_WithKernel(AttentionConfig(**SIZES, impl=impl))(q, q, q), torch.full_like(q, value))


def test_a_kernel_for_another_device_is_not_taken():
    class Elsewhere(_WithKernel):
        kernel_devices = ("cuda",)

    q = torch.ones(1, 2, 3, 4)
    assert torch.equal(Elsewhere(AttentionConfig(**SIZES))(q, q, q), torch.full_like(q, 2.0))
    with pytest.raises(ValueError, match="impl='triton': the kernel for 'toy' runs on cuda, the tensors are on cpu"):
        Elsewhere(AttentionConfig(**SIZES, impl="triton"))(q, q, q)
