"""How the report keeps values, as plain JSON with rounded floats, and how it shows them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_POWERS = 1e6  # a float from here on is written with a power of ten; a whole number never is
_ALIGNED = 1e4  # numbers of a column share decimals below this size, and where none is so many times another
_MANTISSA = 4  # significant digits beside a power of ten
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
    """A value as text: at most ``digits`` significant digits, ∞, lists and mappings written out.

    Commas group thousands, and what stands before the decimal point is never rounded. A float that is too small or too
    large to be read so is a number times a power of ten.
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", "−")
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
    value += 0.0  # no minus before a zero
    if value == 0 or 1e-3 <= abs(value) < _POWERS:
        text = f"{value:,.{digits}g}"
        text = f"{value:,.0f}" if "e" in text else text
    else:
        mantissa, exponent = f"{value:.{min(digits, _MANTISSA) - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        factor = {"1": "", "-1": "-"}.get(mantissa, f"{mantissa}·")
        text = f"{factor}10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return text.replace("-", "−")


def significant(value: float, digits: int) -> str:
    """``value`` with exactly so many significant digits, zeros included; all digits before the decimal point."""
    size = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}")))) if value else 0
    return f"{value:,.{max(digits - 1 - size, 0)}f}".replace("-", "−")


def decimals(values: Iterable[float], digits: int) -> int | None:
    """How many decimals the numbers of a column share; None where their sizes are too far apart.

    The largest number has at most ``digits`` significant digits, the smallest at least three where one of them needs
    it.
    """
    found = [abs(value) for value in values]
    sizes = [size for size in found if size]
    if not sizes or not (min(sizes) >= 1e-3 and max(sizes) < min(_ALIGNED, _ALIGNED * min(sizes))):
        return None
    needed = max(len(shown(value, digits).partition(".")[2]) for value in found)
    room, least = (count - 1 - math.floor(math.log10(size)) for count, size in ((digits, max(sizes)), (3, min(sizes))))
    return min(needed, max(room, least, 0))
