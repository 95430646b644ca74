"""Triton kernels of the TransNormer companion. Imports torch and triton, nothing of ours.

- ``norm_attention``: NormAttention and the scaled linear attention it replaces, forward and backward.
- ``norm_attention_step``: one more token, with the state updated in place.
- ``diag_attention``: softmax or ReLA attention inside blocks, forward and backward.

All take q, k, v as [batch, length, heads, head_dim] on a CUDA device; with TRITON_INTERPRET=1 in the environment before
the import, on a CPU, to check them.
"""

from transnormer_kernels.diag_attention import diag_attention
from transnormer_kernels.norm_attention import norm_attention
from transnormer_kernels.step import norm_attention_step

__all__ = ["diag_attention", "norm_attention", "norm_attention_step"]
