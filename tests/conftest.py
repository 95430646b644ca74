"""Rules for every test of the suite."""

import re

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a name that holds an address: it differs between workers, which then cannot share the tests out."""
    unstable = [item.nodeid for item in items if re.search(r"\b0x[0-9a-f]{6,}", item.nodeid)]
    if unstable:
        raise pytest.UsageError(f"give the parameters ids; the address in these names changes: {unstable}")
