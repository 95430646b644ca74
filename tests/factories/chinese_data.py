"""What the tests of Chinese text need; absent where the extra ``chinese`` is not installed."""

import importlib.util

import pytest

needs_chinese = pytest.mark.skipif(
    not all(importlib.util.find_spec(package) for package in ("snownlp", "rjieba")),
    reason="the extra 'chinese' (snownlp, rjieba) is not installed",
)
