"""How the report keeps values, as plain JSON with rounded floats, and how it shows them."""

import math
from collections.abc import Mapping
from typing import Any

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_GROUPED = 10_000  # whole numbers from here on have commas between their thousands
DIGITS = 6  # significant digits kept: enough for published values, few enough for two runs to agree


def rounded(value: float) -> float:
    """``value`` to the significant digits that the ledger keeps."""
    return float(f"{value:.{DIGITS}g}")


def plain(value: Any, name: str) -> Any:
    """``value`` as JSON: numbers become Python's own, floats are rounded, infinity becomes text.

    Raises ValueError for NaN, naming the argument, and TypeError for what JSON cannot hold.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{name}[{position}]") for position, item in enumerate(value)]
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return plain(value.tolist(), name)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            raise ValueError(f"{name}=nan: must be finite, or float('inf') where a run diverged")
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return rounded(value)
    raise TypeError(f"{name}={value!r}: must be a number, a text, a list or a mapping")


def shown(value: Any, digits: int = 5) -> str:
    """A value as text: at most ``digits`` significant digits, ∞, lists and mappings written out."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return (f"{value:,}" if abs(value) >= _GROUPED else str(value)).replace("-", "−")
    if isinstance(value, float):
        return _float_text(value, digits)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {shown(item, digits)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return (
            "none"
            if not value
            else ", ".join(f"({shown(v, digits)})" if isinstance(v, list | tuple) else shown(v, digits) for v in value)
        )
    return {"inf": "∞", "-inf": "−∞"}.get(value, value) if isinstance(value, str) else str(value)


def _float_text(value: float, digits: int) -> str:
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0 or 1e-3 <= abs(value) < 10**digits:
        text = f"{value:.{digits}g}"
        text = f"{int(text):,}" if abs(value) >= _GROUPED and text.lstrip("-").isdigit() else text
    else:
        mantissa, exponent = f"{value:.3e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        factor = {"1": "", "-1": "-"}.get(mantissa, f"{mantissa}·")
        text = f"{factor}10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return text.replace("-", "−")
