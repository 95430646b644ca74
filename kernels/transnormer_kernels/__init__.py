"""Triton kernels of the TransNormer companion. They import torch and triton only.

- ``norm_attention``: NormAttention and the scaled linear attention it replaces, forward and backward.
- ``norm_attention_step``: the next token, with the state updated in place.
- ``diag_attention``: softmax or ReLA attention inside blocks, forward and backward.

All take q, k, v as [batch, length, heads, head_dim] on a CUDA device. To check them on a CPU, set TRITON_INTERPRET=1
before the import.
"""

from transnormer_kernels.diag_attention import diag_attention
from transnormer_kernels.norm_attention import norm_attention
from transnormer_kernels.step import norm_attention_step

__version__ = "0.1.0"
__all__ = ["diag_attention", "norm_attention", "norm_attention_step"]
