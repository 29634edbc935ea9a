"""Words of the staged subset that kernels are written in; `workbench.codegen.specialise` knows them by name.

Static               a parameter whose value is known when a file is written for one case: a configuration, say
Many, Many[type]     a parameter that holds a tuple whose length depends on the program: the tensors of an epilogue
dtype, torch_dtype   an element type by its name: "f16" is cutlass.Float16 and torch.float16
bind                 a launch function together with its configuration, as `call` in `kernels.host` compiles it
"""

import types
from typing import TypeVar

import cutlass
import torch

from workbench.kernels.dtypes import CUTE, TORCH

Static = cutlass.Constexpr
Item = TypeVar("Item")
Many = tuple[Item, ...]


def dtype(element):
    """CuTe DSL's type for a config's word, such as cutlass.Float16 for f16."""
    return getattr(cutlass, CUTE[element].removeprefix("cutlass."))


def torch_dtype(element):
    """torch's type for a config's word, such as torch.float16 for f16."""
    return getattr(torch, TORCH[element].removeprefix("torch."))


def bind(launch, cfg):
    """The launch function with its first parameter, `cfg`, given; `cute.compile` takes a method with its object."""
    return types.MethodType(launch, cfg)
