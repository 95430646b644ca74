"""The tasks of speech by name."""

from functools import lru_cache

from transnormer_lib.checks import check_choice
from transnormer_lib.data import librispeech, spoken_digits
from transnormer_lib.data.speech import SpeechTask


@lru_cache(maxsize=8)
def speech_task(name: str, length: int) -> SpeechTask:
    """The task ``name`` with utterances of at most ``length`` frames; its recordings are read when they are needed.

    Raises ValueError for an unknown name, and for a length that the task does not allow.
    """
    check_choice("task_name", name, [*spoken_digits.TASKS, librispeech.NAME])
    return librispeech.LibriSpeech(length) if name == librispeech.NAME else spoken_digits.SpokenDigits(name, length)
