"""Operations are counted as they run: products by multiply-adds, all else number by number, views not at all."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from transnormer_lib.analysis.operation_counts import counted

A, B, STATE = torch.ones(3, 5), torch.ones(5, 7), torch.zeros(4, 4)
CALLS: dict[str, tuple[Callable[[], object], int]] = {
    "a product": (lambda: A @ B, 2 * 3 * 5 * 7),
    "an elementwise operator": (lambda: A.exp(), 15),
    "an update in place": (lambda: STATE.addcmul_(B.view(35)[:4, None], B.view(35)[:4]), 16),
    "a reduction reads all": (lambda: A.sum(), 15),
    "a view": (lambda: A.mT[1:].unsqueeze(0), 0),
    "two calls": (lambda: (A + 1) * A, 30),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_counted(name: str) -> None:
    call, expected = CALLS[name]
    assert counted(call) == expected


def test_the_products_inside_fused_attention_count() -> None:
    q = torch.ones(1, 1, 6, 4)
    assert counted(lambda: F.scaled_dot_product_attention(q, q, q)) >= 2 * 2 * 6 * 6 * 4
