"""Triton kernels of the TransNormer companion. Imports torch and triton, nothing of ours.

Holds no kernel yet: ``transnormer_lib.attention`` therefore resolves ``impl="auto"`` to its chunked PyTorch
form on every device and refuses ``impl="triton"`` with a sentence that says so.
"""
