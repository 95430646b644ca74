"""LSH attention of the studies: one definition, whose decoders do not see the future."""

import pytest
import torch

from transnormer_lib import attention
from transnormer_lib.studies.common import lsh


@pytest.mark.parametrize("row", lsh.ROWS)
def test_a_row_names_its_rounds(row: str) -> None:
    assert lsh.options(row, buckets=8, chunk_size=4, decoder=True)["hashes"] == int(row[-1])


def test_decoders_and_others_differ_in_their_chunks_alone() -> None:
    one, other = (lsh.options("lsh-4", buckets=None, chunk_size=4, decoder=decoder) for decoder in (True, False))
    assert {name for name in one if one[name] != other[name]} == {"chunking"}
    assert "buckets" not in one


def test_a_decoder_s_outputs_do_not_depend_on_later_tokens() -> None:
    options = lsh.options("lsh-4", buckets=4, chunk_size=4, decoder=True)
    core = attention.build("reformer", {"heads": 1, "head_dim": 8, "causal": True, **options}).double().eval()
    x = torch.randn(1, 1, 40, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = x.clone()
    other[:, :, 30:] = -x[:, :, 30:]
    torch.testing.assert_close(core(x, x, x)[:, :, :30], core(other, other, other)[:, :, :30])


def test_another_row_is_refused() -> None:
    with pytest.raises(ValueError, match="row='lsh-2'"):
        lsh.options("lsh-2", buckets=4, chunk_size=4, decoder=True)
