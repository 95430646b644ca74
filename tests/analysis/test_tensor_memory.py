"""Memory of tensors is counted to the byte, whatever the process did before."""

import pytest
import torch

from transnormer_lib.analysis.tensor_memory import held_bytes, peak_bytes

MB = 2**20


def megabytes(count: int) -> torch.Tensor:
    return torch.empty(count * MB, dtype=torch.uint8)


def test_the_peak_is_the_most_alive_at_one_time() -> None:
    def call() -> None:
        first = megabytes(3)
        del first
        second = megabytes(2)
        third = megabytes(4)
        del second, third
        megabytes(5)

    assert peak_bytes(call) == 6 * MB


def test_the_peak_has_the_temporary_memory_of_an_operator() -> None:
    x = torch.zeros(MB)
    assert peak_bytes(lambda: x.median()) >= 4 * MB  # it sorts a copy, and returns one number


def test_what_was_allocated_before_neither_counts_nor_makes_room() -> None:
    held = [megabytes(7)]

    def call() -> None:
        held.clear()
        megabytes(3)

    assert peak_bytes(call) == 3 * MB


def test_counting_writes_no_messages(capfd: pytest.CaptureFixture[str]) -> None:
    peak_bytes(lambda: megabytes(1))
    assert capfd.readouterr() == ("", "")


def test_tensors_hold_memory_once_however_many_views_it_has() -> None:
    before = held_bytes()
    x = megabytes(3)
    parts = [x[:MB], x.view(torch.int32), torch.nn.Parameter(x.float())]  # the last is a copy, of four bytes each
    assert held_bytes() - before == 15 * MB
    del x, parts
    assert held_bytes() == before
