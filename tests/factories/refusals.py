"""What a bad input may do: be refused in our words, or give the defined result."""

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transnormer_kernels

import transnormer_lib

_OURS = tuple(str(Path(package.__file__).parent) for package in (transnormer_lib, transnormer_kernels))
# A name, perhaps a value, then the rule: "q.shape=(2, 3): must be ...", "mine.yaml: claim 'x': kind='y': ...".
_RULE = re.compile(r"^[^:=\n]{1,200}(=.*)?: \S.*$")


class Refused(str):
    """The line with which a call was refused."""


def outcome(call: Callable[[], Any], *more: type[Exception]) -> Any:
    """The result of ``call``, or :class:`Refused` for a ValueError or TypeError (or one of ``more``) of ours.

    Ours was raised by this project's code, in one line that names what and says the rule. Any other error is a defect.
    """
    try:
        return call()
    except Exception as error:
        raised_in, line = traceback.extract_tb(error.__traceback__)[-1].filename, str(error)
        if not isinstance(error, (ValueError, TypeError, *more)) or not raised_in.startswith(_OURS):
            raise AssertionError(f"not of ours: {type(error).__name__} of {raised_in}: {line}") from error
        if not _RULE.match(line):
            raise AssertionError(f"not one line with a name and a rule: {line!r}") from error
        return Refused(line)
