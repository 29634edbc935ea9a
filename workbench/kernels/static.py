"""The staging vocabulary of the kernel library; `workbench.codegen.specialise` recognises these names.

Static: a parameter that is known when a file is written for one case, such as a configuration. Many, Many[type]: a
tuple whose length depends on the program, such as the epilogue's tensors. dtype, torch_dtype: an element type by name;
"f16" is cutlass.Float16 and torch.float16. bind: a launch function with its configuration, for `call` of
`kernels.host`.
"""

import types
from collections.abc import Sequence
from typing import TypeVar

import cutlass
import torch

from workbench.kernels.dtypes import CUTE, TORCH

Static = cutlass.Constexpr
Item = TypeVar("Item")
Many = Sequence[Item]  # TVM FFI takes tuple[Item, ...] for a tuple of two


def dtype(element):
    """Return CuTe DSL's type of an element type name, such as cutlass.Float16 for f16."""
    return getattr(cutlass, CUTE[element].removeprefix("cutlass."))


def torch_dtype(element):
    """Return torch's dtype of an element type name, such as torch.float16 for f16."""
    return getattr(torch, TORCH[element].removeprefix("torch."))


def bind(launch, cfg):
    """Bind `cfg` as the first parameter of a launch function; `cute.compile` takes methods with their object."""
    return types.MethodType(launch, cfg)
