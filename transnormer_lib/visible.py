"""Text of others on a terminal and on a page: characters that would act are shown as what they are.

Control characters move the cursor, recolour the terminal or rename its window; bidirectional controls show a text in
another order than it has. Both become ``\\u001b`` and the like, which JSON reads back. On a terminal so does what its
encoding lacks.
"""

import codecs
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# All of Unicode's category Cc but tab and line feed, its bidirectional controls, and halves of surrogate pairs.
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_PROGRESS = re.compile(r"\r|\n*(?:\x1b\[A)*\Z")  # how bars of progress begin, or move to their line


def _escaped(lacking: UnicodeError) -> tuple[str, int]:
    assert isinstance(lacking, UnicodeEncodeError)
    return json.dumps(lacking.object[lacking.start : lacking.end])[1:-1], lacking.end


codecs.register_error("json", _escaped)


def visible(text: str) -> str:
    """``text`` with each acting character as ``\\uXXXX``."""
    return _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Visible:
    """A stream that shows acting characters; a bar of progress may go to the beginning of its line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        begin = found[0] if (found := _PROGRESS.match(text)) else ""
        shown = begin + visible(text[len(begin) :])
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(shown.encode(encoding, "json").decode(encoding))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _streams() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (None if one is None else _Visible(one) for one in before)
    try:
        yield
    finally:
        # A stream that was replaced meanwhile, because nobody reads any more, stays so.
        if isinstance(sys.stdout, _Visible):
            sys.stdout = before[0]
        sys.stderr = before[1]


def shows_plainly(command: Callable[P, T]) -> Callable[P, T]:
    """A command that prints no acting character, whatever it prints."""

    @wraps(command)
    def plain(*arguments: P.args, **named: P.kwargs) -> T:
        with _streams():
            return command(*arguments, **named)

    return plain
