"""The data tests keep what they derive in a folder of their own, never in the user's cache."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSNORMER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
