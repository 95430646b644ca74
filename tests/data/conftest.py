"""The data tests keep what they derive in a folder of their own, never in the user's cache, and open no connection."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSNORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("TRANSNORMER_DATA_ROOT", raising=False)
        yield


@pytest.fixture
def data_root(no_real_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data root, an empty cache, an empty cache of the Hub, and no network."""
    root = tmp_path / "root"
    root.mkdir()
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(root))
    monkeypatch.setenv("TRANSNORMER_CACHE", str(tmp_path / "cache"))
    return root


@pytest.fixture
def real_root(sample_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The samples of real data as the data root."""
    monkeypatch.setenv("TRANSNORMER_DATA_ROOT", str(sample_root))
    return sample_root
