"""Every instruction has the line of a statement inside a function, never that of a function that it is not in."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
import torch

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.emulator.ptx.parser import parse
from workbench.language import Binding

INIT = "def __init__(self):\n    super().__init__()\n"
PTX = """
.file 1 "candidate.py"
.file 2 "nvidia_cutlass_dsl/tensor.py"
.visible .entry kernel(.param .u32 kernel_param_0)
{
  .reg .pred %p<4>;
  .reg .b32 %r<9>;
  .loc 1 10 0
  ld.param.b32 %r1, [kernel_param_0];
  .loc 1 21 5
  mov.b32 %r2, 0;
  .loc 1 40 0
  mov.b32 %r3, 0;
$L__BB0_1:
  .loc 1 40 0
  mov.b32 %r4, 0;
  .loc 2 7 9, function_name $L__info_string0, inlined_at 1 23 9
  add.s32 %r2, %r2, 1;
  .loc 1 40 0
  setp.lt.s32 %p1, %r2, 9;
  @%p1 bra $L__BB0_1;
  mov.b32 %r5, 0;
  ret;
}
"""


def test_an_instruction_without_a_line_of_its_own_gets_that_of_a_neighbour_in_its_block() -> None:
    lines = [ins.line for ins in parse(PTX, "candidate.py").kernels["kernel"].instructions]
    assert lines == [21, 21, 21, 23, 23, 23, 23, 23, 23]


def test_a_kernel_without_lines_of_statements_keeps_what_it_has() -> None:
    text = PTX.replace(" 21 5", " 21 0").replace(" 23 9", " 23 0")
    lines = [ins.line for ins in parse(text, "candidate.py").kernels["kernel"].instructions]
    assert lines[0] == 10 and lines[-1] == 40


@pytest.mark.parametrize(
    ("program", "shapes"),
    [
        ("softmax(x) .threads_per_row(32)", ((64, 256),)),
        ("reduce(x, op=max, axis=middle)", ((4, 40, 96),)),
        ("elementwise(gelu(x)) .vector(4) .unroll(2)", ((1000,),)),
        ("scan(x) .schedule(lookback)", ((3, 5000),)),
        ("gemm(x, w) .tile(64, 64, 16) .thread_tile(4, 4)", ((70, 64), (64, 50))),
        ("gemm(x, w) .arch(sm_90a) .mma(tf32) .tile(64, 64, 32) .schedule(pingpong)", ((70, 64), (64, 64))),
    ],
)
def test_counts_are_on_lines_inside_functions(
    program: str, shapes: tuple[tuple[int, ...], ...], tmp_path: Path
) -> None:
    names = ("x", "w")[: len(shapes)]
    path = tmp_path / "candidate.py"
    path.write_text(compile_program(program, Binding(init_source=INIT, forward_arguments=names)))
    spec = importlib.util.spec_from_file_location("candidate_of_lines", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arch = "sm_90a" if "sm_90a" in program else "sm_80"
    with emulated(arch=arch, device="H200", source_file=str(path)) as emulation:
        module.ModelNew()(*(torch.randn(shape) for shape in shapes))
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    inside = {line for node in functions for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)}
    counted = {one.line for launch in emulation.launches for one in launch.lines}
    assert counted and counted <= inside
