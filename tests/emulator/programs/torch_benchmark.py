"""Divides two benchmark times, one of them of a torch function, as NVIDIA's cta_norm.py does."""

import torch
from cutlass.testing import JitArguments, benchmark

x = torch.ones(1000, device="cuda")
print(f"ratio {1.0 / benchmark(lambda values: values + 1, kernel_arguments=JitArguments(x)):.3f}")
