"""Variables of the environment that a library refuses while it is imported: one line instead of a traceback."""

import os
import reprlib
import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")

_PREFIXES = ("HF_", "PYTORCH_", "TORCH", "TQDM_", "TRITON_")
_SECRET = "TOKEN"  # in the name of a variable whose value is never printed


def names_refused_variables(command: Callable[P, int]) -> Callable[P, int]:
    """A command that ends with one line and exit code 2 if a library cannot be imported while such variables are set.

    Which of them is at fault only the library knows, so all that are set are named. An ImportError passes: then
    something is not installed.
    """

    @wraps(command)
    def named(*arguments: P.args, **keywords: P.kwargs) -> int:
        try:
            return command(*arguments, **keywords)
        except (ImportError, MemoryError):
            raise
        except Exception as problem:
            library, variables = _importing(problem), _set()
            if not (library and variables):
                raise
            reason = " ".join(str(problem).split())[:160]
            print(f"transnormer: {library} cannot be imported ({reason}) with {', '.join(variables)}", file=sys.stderr)
            return 2

    return named


def _importing(problem: Exception) -> str:
    """The library whose module was being run when ``problem`` arose; "" if none was."""
    for frame, _ in traceback.walk_tb(problem.__traceback__):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if frame.f_code.co_name == "<module>" and package not in ("transnormer_lib", "transnormer_kernels"):
            return package
    return ""


def _set() -> list[str]:
    found = {name: value for name, value in os.environ.items() if name.startswith(_PREFIXES) and _SECRET not in name}
    return [f"{name}={reprlib.repr(value)}" for name, value in sorted(found.items())]
