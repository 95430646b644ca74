"""How the report writes numbers: grouped thousands, one way for powers of ten, true minus signs."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transnormer_lib.ledger.values import decimals, shown, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999, "999"),
        (1000, "1,000"),
        (-4096, "−4,096"),
        (267_744, "267,744"),
        (1609.98, "1,610"),
        (94_777.4, "94,777"),
        (124_123.0, "124,123"),
        (99_999.7, "100,000"),
        (4.1e13, "4.1·10¹³"),
        (1e-8, "10⁻⁸"),
        (-5e-4, "−5·10⁻⁴"),
        (0.001, "0.001"),
        ([124_123.0, 94_777], "124,123, 94,777"),
        ("2026", "2026"),
        (math.inf, "∞"),
        ({"seeds": [1, 2048]}, "seeds: 1, 2,048"),
    ],
    ids=str,
)
def test_a_value_as_text(value: Any, text: str) -> None:
    assert shown(value) == text


@given(st.floats(-1e300, 1e300) | st.integers(), st.integers(1, 8))
def test_a_number_reads_back_and_is_written_in_one_style(value: float, digits: int) -> None:
    text = shown(value, digits)
    assert not re.search(r"e|-|\d{4}", text.partition(".")[0]), text
    plain = text.replace(",", "").replace("−", "-")
    if "10" in plain and (found := re.fullmatch(r"(-?)(?:([\d.]+)·)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", plain)):
        sign, mantissa, exponent = found.groups(default="")
        power = exponent.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        plain = f"{sign}{mantissa or 1}e{power}"
    assert float(plain) == pytest.approx(value, rel=0.6 * 10.0 ** (1 - min(digits, 4)))


@pytest.mark.parametrize(("digits", "text"), [(1, "4·10¹³"), (2, "4.3·10¹³"), (5, "4.321·10¹³")])
def test_a_power_of_ten_has_no_more_digits_than_asked(digits: int, text: str) -> None:
    assert shown(4.321e13, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1.00"), (0.14, "0.140"), (9.996, "10.0"), (1032.4, "1,032"), (-6.2, "−6.20"), (0.0, "0.00")],
)
def test_three_significant_digits_are_three(value: float, text: str) -> None:
    assert significant(value, 3) == text


@pytest.mark.parametrize(
    ("values", "digits", "shared"),
    [
        ([616.0, 46.4], 3, 1),
        ([65.31, 8.59], 3, 2),
        ([0.0191, 1030.0], 3, None),
        ([1e-5, 1.0], 5, None),
        ([0.0], 5, None),
        ([155.98765, 5.0123], 5, 2),
    ],
)
def test_numbers_of_a_column_share_decimals_unless_too_far_apart(
    values: list[float], digits: int, shared: int | None
) -> None:
    assert decimals(values, digits) == shared
