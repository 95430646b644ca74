"""Train a small TransNormer on a text of your own, export it, and let it write.

    python examples/train_on_your_text.py my_text.txt my-model --steps 500

The run is kept in runs/ (or $TRANSNORMER_RUNS): the same command again trains nothing, and an interrupted one resumes.
"""

import argparse
from pathlib import Path

from transnormer_lib.data.vocabulary import vocabulary_size
from transnormer_lib.models.architectures import architecture
from transnormer_lib.models.text import stream
from transnormer_lib.training.config import DataConfig, OptimizerConfig, RunConfig
from transnormer_lib.training.export import export, exported
from transnormer_lib.training.store import RunStore

LENGTH = 128  # tokens per training sequence; with bytes, a token is one byte


def run_config(text: Path, steps: int) -> RunConfig:
    model = architecture(
        "transnormer-t2", kind="decoder", vocab_size=vocabulary_size("bytes"), max_length=LENGTH, dim=128, heads=4,
        layers=4, block_size=32,
    )  # fmt: skip
    data = DataConfig(corpus=str(text.resolve()), vocabulary="bytes", length=LENGTH, batch_size=16)
    optimizer = OptimizerConfig(learning_rate=1e-2, schedule="cosine", warmup=steps // 10, clip_norm=1.0)
    return RunConfig(name=text.stem, model=model, data=data, optimizer=optimizer, steps=steps, seed=0)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on a text of your own.")
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path, help="a new folder for the trained model")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    run = RunStore().get(run_config(options.text, options.steps))
    print(f"{run.parameters:,} parameters, {run.validation['bits_per_byte']:.3f} bits per byte on held-out text")
    export(run, options.folder)
    for piece in stream(exported(run), "The ", tokens=200):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
