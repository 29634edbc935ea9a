"""Every instruction has the line of a statement of its own kernel, in the emulator's counts, clocks and findings and in
the SASS."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
from check_lines import Sources, check_module

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.emulator.hook import CompiledModule
from workbench.emulator.ptx.parser import parse
from workbench.emulator.ptx.source_lines import choose_donors, find_blocks
from workbench.language import Binding
from workbench.profilers import sass

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


def test_a_kernel_without_lines_of_statements_has_that_of_its_function() -> None:
    text = PTX.replace(" 21 5", " 21 0").replace(" 23 9", " 23 0")
    assert {ins.line for ins in parse(text, "candidate.py").kernels["kernel"].instructions} == {10}


def test_a_place_in_another_file_is_not_a_statement_of_the_branch_before_it_in_the_text() -> None:
    text = PTX.replace("  mov.b32 %r5, 0;", "  .loc 2 9 9\n  mov.b32 %r5, 0;").replace(
        "  .loc 1 40 0\n  setp", "  .loc 1 24 3\n  setp"
    )
    lines = [ins.line for ins in parse(text, "candidate.py").kernels["kernel"].instructions]
    assert lines[-2:] == [24, 24]


@pytest.mark.parametrize(
    ("jumps", "ends", "with_line", "donors"),
    [
        # an if with two branches: what follows them belongs to the condition
        ({1: [4], 3: [5]}, [3, 6], [1, 2, 4], [1, 1, 2, 2, 4, 1, 1]),
        # a loop of two blocks, the second without a line: it is not given that of the block before the loop
        ({3: [5], 4: [2]}, [4, 5], [0, 2], [0, 0, 2, 2, 2, 2]),
        # a loop whose first block has no line: it gets one of the loop
        ({2: [5], 4: [2]}, [4, 5], [0, 3], [0, 0, 3, 3, 3, 3]),
        # the immediate dominator has none: the last before it in the text
        ({1: [3], 3: [5]}, [5], [0, 2], [0, 0, 2, 0, 2, 2]),
        # nothing reaches the last block; nothing before the first line
        ({}, [1, 2], [1], [1, 1, 1]),
    ],
)
def test_donors_are_in_the_enclosing_loop_or_statement(
    jumps: dict[int, list[int]], ends: Sequence[int], with_line: list[int], donors: list[int]
) -> None:
    has_line = [n in with_line for n in range(len(donors))]
    assert choose_donors(has_line, find_blocks(len(donors), jumps, ends)) == donors


LISTING = """
\t//## File "/job/candidate.py", line 10
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/job/candidate.py", line 12
        /*0010*/                   ISETP.GE.AND P0, PT, R1, R2, PT ;
\t//## File "/job/candidate.py", line 30
        /*0020*/              @P0  BRA `(.L_x_1) ;
\t//## File "/job/candidate.py", line 14
        /*0030*/                   STG.E desc[UR4][R2.64], R5 ;
.L_x_1:
\t//## File "/job/candidate.py", line 30
        /*0040*/                   EXIT ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
"""


def test_machine_instructions_get_lines_of_statements_too() -> None:
    plain = sass.parse_instructions(LISTING)
    assert [item.line for item in plain] == [10, 12, 30, 14, 30]
    known = sass.parse_instructions(LISTING, statements=frozenset((12, 14)))
    assert [item.line for item in known] == [12, 12, 12, 14, 12]
    assert {item.line for item in sass.parse_instructions(LISTING, statements=frozenset((99,)))} == {None}


SOURCE = '''"""A candidate."""

import cutlass.cute as cute


@cute.jit
def helper(x):
    """Not a statement."""

    # a comment
    return x + 1


@cute.jit
def other(x):
    return x


@cute.kernel
def kernel(x):
    y = helper(
        x
    )
    x[0] = y


@cute.jit
def launch(x):
    kernel(x).launch(grid=[1, 1, 1], block=[1, 1, 1])
'''


def test_the_check_finds_lines_that_are_not_the_kernels(tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text(SOURCE)
    assert {line for _, line in Sources([str(path)]).statements_of("kernel_cutlass_kernel_tensor_0")} == {
        *(11, *range(21, 25)),
    }
    text = PTX.replace("candidate.py", str(path)).replace(".entry kernel", ".entry kernel_cutlass_kernel_tensor_0")
    for line in range(1, 31):
        written = text.replace(" 23 9", f" {line} 9")
        counts, outside = check_module(CompiledModule(written, b""), "sm_80")
        assert counts["ptx_instructions"] == 9
        assert {one.line for one in outside} == {line} - {11, 21, 22, 23, 24}


@pytest.mark.few(1)
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
def test_all_lines_are_those_of_the_kernels_statements(
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
    with emulated(arch=arch, device="H200", source_file=str(path), follow=True) as emulation:
        module.ModelNew()(*(torch.randn(shape) for shape in shapes))
    for one in emulation.modules:
        counts, outside = check_module(one, arch, str(path))
        assert counts["ptx_instructions"] > 20 and counts["sass_instructions"] > 20
        assert not outside, outside
    sources = Sources([str(path)])
    for launch in emulation.launches:
        statements = {line for _, line in sources.statements_of(launch.kernel)}
        assert launch.lines and {one.line for one in launch.lines} <= statements
        assert launch.paced and launch.paced.stalls and {line for line, _ in launch.paced.stalls} <= statements
        assert {finding.line for finding in launch.findings} <= statements


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_landscapes_and_examples(tmp_path: Path) -> None:
    """The whole takes about half an hour."""
    out = tmp_path / "lines.json"
    script = Path(__file__).parents[1] / "bench" / "check_lines.py"
    done = subprocess.run([sys.executable, script, "--out", out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(out.read_text())
    assert found["checked"] == {"landscapes": 46, "examples": 14} and not found["violations"]
