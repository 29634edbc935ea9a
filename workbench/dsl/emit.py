"""Checked program -> the text of a KernelBench-form candidate in CuTe DSL. Same program, same text, byte for byte.

The files written here never say `from __future__ import annotations`: CuTe DSL reads annotations as values.
"""

from __future__ import annotations

import textwrap

from workbench.dsl import elementwise, gemm, rows
from workbench.dsl.ir import Binding, Program
from workbench.dsl.text import format_program

HEAD = '''"""{text}"""

{imports}

import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

compiled = {{}}


def call(function, key, arguments, constants=()):
    """Compile once per key (dtypes, layouts, vector width), then only launch: calling a jit function costs milliseconds each time."""
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, *constants)
    compiled[function, key](*arguments)
'''
IMPORTS = "import torch\nimport torch.nn as nn"


def emit(program: Program, binding: Binding) -> str:
    """The whole file: kernels, launch function, `ModelNew`."""
    stage = program.stages[0]
    name = stage.operation.name
    parts = {"elementwise": elementwise.emit, "gemm": gemm.emit}.get(name, rows.emit)(stage, binding)
    extra = [line for line in binding.module_names.splitlines() if line and line not in IMPORTS.splitlines()]
    imports = "\n".join([*[line for line in dict.fromkeys([*parts.imports.splitlines(), *extra]) if line.startswith(("import ", "from "))], IMPORTS])
    constants = "\n".join(line for line in extra if not line.startswith(("import ", "from ")))
    head = HEAD.format(text=format_program(program), imports=imports)
    return f"{head}\n{constants + chr(10) if constants else ''}\n{parts.kernels}\n\n{_module(binding, parts.forward)}"


def _module(binding: Binding, forward: str) -> str:
    init = textwrap.indent(_with_super(binding.init_source).rstrip() + "\n", "    ")
    arguments = ", ".join(("self", *binding.forward_arguments))
    return f"class ModelNew(nn.Module):\n{init}\n    def forward({arguments}):\n{textwrap.indent(forward.rstrip(), ' ' * 8)}\n"


def _with_super(source: str) -> str:
    """`super(Model, self)` would name a class that this file does not have."""
    return source.replace("super(Model, self)", "super()")
