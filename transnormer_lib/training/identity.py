"""Which runs are the same run: equal config, data and numbers of the arithmetic (``training.numbers``).

The identity holds what can change a run's weights or what it records, and nothing else. Kernels, other mechanisms,
other tasks, evaluation, progress and checkpoints are not in it. A config field at its default is not in it either, so
that a new field with a neutral default keeps every stored run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from transnormer_lib.strict import from_plain
from transnormer_lib.training import numbers
from transnormer_lib.training.config import DataConfig, RunConfig


def run_id(
    config: RunConfig, data: Mapping[str, str] | None = None, arithmetic: Mapping[str, Any] | None = None
) -> str:
    """``<name>-<digest>``, the name of the run in a store.

    ``data`` holds fingerprints by ``DataConfig.source``, as a record does; those it lacks are computed. ``arithmetic``
    holds the numbers of the code that trained it (default: of this code).
    """
    content: dict[str, Any] = {
        "config": config.identity(),
        "data": (data or {}).get(config.data.source) or _fingerprint(config.data),
        "arithmetic": arithmetic or numbers.arithmetic(config.model.mechanisms),
        "start_from": None if config.start_from is None else run_id(config.start_from, data, arithmetic),
    }
    content["config"]["data"].pop("corpus", None)  # the fingerprint covers its content, wherever it is
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return f"{config.name}-{digest}"


def _fingerprint(data: DataConfig) -> str:
    # The fingerprint of a text does not depend on how it is cut.
    named = data if data.task_name else DataConfig(data.corpus, data.vocabulary)
    return _data_fingerprint(json.dumps(asdict(named), sort_keys=True))


@lru_cache
def _data_fingerprint(data: str) -> str:
    """The fingerprint of the task or the text that a ``DataConfig``, as JSON, names."""
    from transnormer_lib.data.corpora import load_text_corpus
    from transnormer_lib.training.setup import load_task_data

    config = from_plain(DataConfig, json.loads(data))
    if config.task == "context":
        from transnormer_lib.data.context_tasks import ContextTask

        return ContextTask(config.task_name, config.length).fingerprint
    if config.task == "pixels":
        from transnormer_lib.data.pixels import load_pixels

        return load_pixels(config.task_name).fingerprint
    if config.task == "speech":
        from transnormer_lib.data.speech_tasks import speech_task

        return speech_task(config.task_name, config.length).fingerprint
    if config.task == "classify":
        return load_task_data(config).fingerprint
    return load_text_corpus(config.corpus, config.vocabulary).fingerprint
