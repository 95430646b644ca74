"""A model trained by the command line, exported and loaded, is the same model inside transformers' GPT-2."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from transnormer_lib.attention.in_transformers import register
from transnormer_lib.models.language_model import LanguageModel
from transnormer_lib.visible import visible

transformers = pytest.importorskip("transformers")

HEADS, DIM, HIDDEN, LAYERS = 4, 32, 40, 2
# GPT-2's structure, but for the attention.
MODEL = {
    "kind": "decoder", "vocab_size": 258, "max_length": 64, "dim": DIM, "heads": HEADS, "feed_forward": "ffn",
    "hidden": HIDDEN, "activation": "gelu", "norm": "layer", "positions": "learned", "scale_embedding": False,
}  # fmt: skip
OURS = {"weight": "gain", "bias": "bias"}  # the names of a norm's weights
MECHANISMS = {"exported-norm": ("norm", {"phi": "1+elu"}), "exported-diag": ("diag", {"block_size": 8})}
WRITE = (
    "import json, sys\n"
    "from transnormer_lib.models.language_model import LanguageModel\n"
    "from transnormer_lib.models.sampling import Sampling\n"
    "from transnormer_lib.models.text import stream\n"
    "model = LanguageModel.from_pretrained('model')\n"
    "print(json.dumps(''.join(stream(model, 'Once ', 40, Sampling(temperature=0.8), seed=4))))"
)


def run(folder: Path, *words: str) -> str:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module", params=MECHANISMS)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of a mechanism, and a folder with a text, the run trained on it and the exported model."""
    folder = tmp_path_factory.mktemp("trained")
    mechanism, options = MECHANISMS[request.param]
    (folder / "tale.txt").write_text("".join(f"Once there was a number {n}, and it grew.\n\n" for n in range(300)))
    model = MODEL | {"attention": [mechanism] * LAYERS, "attention_options": {mechanism: options}}
    config = {"name": "tale", "model": model, "data": {"corpus": "tale.txt", "length": 32}, "steps": 20, "seed": 0}
    config["optimizer"] = {"learning_rate": 1e-2, "schedule": "cosine", "warmup": 2}
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    command = ("-m", "transnormer_lib.cli")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSNORMER_RUNS", str(folder / "runs"))
        run(folder, *command, "train", "run.yaml")
        run(folder, *command, "export", "tale", "model")
        sampled = ("--prompt", "Once ", "--tokens", "40", "--temperature", "0.8", "--top-p", "1", "--seed", "4")
        shown = run(folder, *command, "runs", "generate", "tale", *sampled)
    (folder / "written").write_text(shown)
    return request.param, folder


def test_the_loaded_model_writes_in_a_fresh_process_what_the_run_writes(exported: tuple[str, Path]) -> None:
    _, folder = exported
    assert visible(json.loads(run(folder, "-c", WRITE))) in (folder / "written").read_text()


def test_its_weights_give_the_same_logits_inside_transformers(exported: tuple[str, Path]) -> None:
    name, folder = exported
    register(name, *MECHANISMS[name])
    ours = LanguageModel.from_pretrained(folder / "model").double().eval()
    theirs = gpt2(ours, name)
    ids = torch.randint(256, (2, 29), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = ours(ids), theirs(ids).logits
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def gpt2(ours: LanguageModel, name: str) -> torch.nn.Module:
    """A GPT-2 with the model's weights. Its layers are stored transposed, the three projections as one."""
    config = transformers.GPT2Config(
        vocab_size=258, n_positions=64, n_embd=DIM, n_layer=LAYERS, n_head=HEADS, n_inner=HIDDEN,
        activation_function="gelu", attn_pdrop=0.0,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=name).double().eval()
    own, weights = ours.state_dict(), {}
    for part in ("weight", "bias"):
        weights[f"ln_f.{part}"] = own[f"final_norm.{OURS[part]}"]
        for layer in range(LAYERS):
            block = {key.removeprefix(f"blocks.{layer}."): value for key, value in own.items()}
            joined = torch.cat([block[f"attention.{which}_proj.{part}"] for which in "qkv"])
            found = {
                "ln_1": block[f"attention_norm.{OURS[part]}"],
                "ln_2": block[f"feed_forward_norm.{OURS[part]}"],
                "attn.c_attn": _turned(joined),
                "attn.c_proj": _turned(block[f"attention.out_proj.{part}"]),
                "mlp.c_fc": _turned(block[f"feed_forward.up.{part}"]),
                "mlp.c_proj": _turned(block[f"feed_forward.down.{part}"]),
            }
            weights |= {f"h.{layer}.{name}.{part}": value for name, value in found.items()}
    weights |= {"wte.weight": own["embedding.weight"], "wpe.weight": own["positions.table"]}
    model.transformer.load_state_dict(weights)
    return model


def _turned(weight: torch.Tensor) -> torch.Tensor:
    return weight.mT if weight.ndim == 2 else weight
