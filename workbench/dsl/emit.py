"""Checked program -> the text of a KernelBench-form candidate in CuTe DSL. Same program, same text, byte for byte.

The files written here never say `from __future__ import annotations`: CuTe DSL reads annotations as values.
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
import textwrap

from workbench.dsl import expecting, pipeline
from workbench.dsl.ir import Binding, Program, Stage
from workbench.dsl.pieces import Parts
from workbench.dsl.registry import OPERATIONS
from workbench.dsl.text import format_program

HEAD = '''"""{text}"""

{imports}

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

compiled = {{}}


def call(function, key, arguments, constants=()):
    """Compile once per key (dtypes, layouts, vector width), then only launch, on torch's current stream: calling a jit function costs milliseconds each time."""
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if (function, key) not in compiled:
        compiled[function, key] = cute.compile(function, *arguments, stream, *constants)
    compiled[function, key](*arguments, stream)
'''
IMPORTS = "import torch\nimport torch.nn as nn"


def emit(program: Program, binding: Binding) -> str:
    """The whole file: kernels, launch functions, `ModelNew`. Several stages become a function each, which forward calls in order."""
    if len(program.stages) == 1:
        stage = program.stages[0]
        bound = dataclasses.replace(binding, operands=tuple(pipeline.bound(stage, binding, set()).items()))
        parts = [_emit_stage(stage, bound)]
        binding = _apart(bound, parts[0].forward)
        if binding != bound:
            parts = [_emit_stage(stage, binding)]
        forward = parts[0].forward
    else:
        parts, forward = pipeline.emit(program, binding, _emit_stage)
    extra = [line for line in binding.module_names.splitlines() if line and line not in IMPORTS.splitlines()]
    wanted = dict.fromkeys([line for part in parts for line in part.imports.splitlines()] + extra)
    imports = "\n".join([*[line for line in wanted if line.startswith(("import ", "from "))], IMPORTS])
    constants = "\n".join(line for line in extra if not line.startswith(("import ", "from ")))
    kernels = "\n\n".join(part.kernels for part in parts)
    module = _module(binding, forward)
    head = HEAD.format(text=format_program(program), imports=imports)
    return f"{head}\n{constants + chr(10) if constants else ''}\n{kernels}\n\n{expecting.definitions(kernels + module)}{module}"


def _apart(binding: Binding, forward: str) -> Binding:
    """The binding with other names for forward's arguments that the emitted body assigns to while an operand of another name still needs them."""
    needed = {name for name in binding.forward_arguments if any(role != name and _mentions(value, name) for role, value in binding.operands)}
    if not needed:
        return binding
    nodes = ast.walk(ast.parse(textwrap.dedent("def forward():\n" + textwrap.indent(forward, "    "))))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for name in sorted(assigned & needed):
        other = next(candidate for n in itertools.count(1) if (candidate := f"{name}_{n}") not in assigned and candidate not in binding.forward_arguments)
        operands = tuple((role, re.sub(rf"(?<![\w.]){name}\b", other, value)) for role, value in binding.operands)
        binding = dataclasses.replace(binding, forward_arguments=tuple(other if argument == name else argument for argument in binding.forward_arguments), operands=operands)
    return binding


def _mentions(value: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){name}\b", value) is not None


def _emit_stage(stage: Stage, binding: Binding) -> Parts:
    return OPERATIONS[stage.operation.name].emit(stage, binding)


def _module(binding: Binding, forward: str) -> str:
    init = textwrap.indent(_with_super(binding.init_source).rstrip() + "\n", "    ")
    arguments = ", ".join(("self", *binding.forward_arguments))
    return f"class ModelNew(nn.Module):\n{init}\n    def forward({arguments}):\n{textwrap.indent(forward.rstrip(), ' ' * 8)}\n"


def _with_super(source: str) -> str:
    """`super(Model, self)` would name a class that this file does not have."""
    return source.replace("super(Model, self)", "super()")
