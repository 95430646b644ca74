"""Rules for every test of the suite."""

import os
import re
import signal
from pathlib import Path
from zlib import crc32

import pytest
import torch

try:
    from hypothesis import settings
except ImportError:  # the kernels' tests run where torch, triton, numpy and pytest are all there is
    pass
else:
    # How long an example takes is the machine's affair. A commit is tried with the same examples everywhere;
    # TRANSNORMER_EXPLORE=1 draws others.
    settings.register_profile("ours", deadline=None, derandomize="TRANSNORMER_EXPLORE" not in os.environ)
    settings.load_profile("ours")

if "PYTEST_XDIST_WORKER" in os.environ:
    # A worker has one core. With a thread on every core in each of them, tensors of a few numbers wait for each other.
    torch.set_num_threads(1)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # `nohup make test &` ignores Ctrl-C in this process and all that it starts; the tests send it on purpose.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if not torch.cuda.is_available():
    # Without a GPU Triton's interpreter runs the kernels. Triton reads this once, when it is first imported.
    os.environ["TRITON_INTERPRET"] = "1"


# Read before a test takes it out of the environment.
_PLACE_OF_SAMPLES = Path(
    os.environ.get("TRANSNORMER_DATA_ROOT") or Path(__file__).resolve().parents[2] / "shared" / "data"
)


@pytest.fixture(scope="session")
def sample_root() -> Path:
    """A data root with samples of real data: ``TRANSNORMER_DATA_ROOT``, else ``../shared/data``; skips without."""
    if not _PLACE_OF_SAMPLES.is_dir():
        pytest.skip(f"no real data at {_PLACE_OF_SAMPLES}")
    return _PLACE_OF_SAMPLES


@pytest.fixture
def no_real_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data root, an empty cache of the Hub, no network."""
    from huggingface_hub import constants  # read from the environment once, when it is first imported

    monkeypatch.delenv("TRANSNORMER_DATA_ROOT", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a name that holds an address: it differs between workers, which then cannot share the tests out.

    ``TRANSNORMER_SAMPLE=12`` keeps one test of twelve, the same ones everywhere: what ``make machines`` tries.
    """
    one_of = int(os.environ.get("TRANSNORMER_SAMPLE", "1"))
    if one_of > 1:
        items[:] = [item for item in items if crc32(item.nodeid.encode()) % one_of == 0]
    unstable = [item.nodeid for item in items if re.search(r"\b0x[0-9a-f]{6,}", item.nodeid)]
    if unstable:
        raise pytest.UsageError(f"give the parameters ids; the address in these names changes: {unstable}")
