"""Real errors of broken candidates, explained in one line on the candidate's own line; and what a module's
binary says.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from workbench.emulator import EmulationFault, emulated
from workbench.records import Failure
from workbench.toolchain import NEEDS_ARCH, describe_module, explain_error, instruction_mix, sass_text

TEMPLATE = """import torch, cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def kernel(x: cute.Tensor, z: cute.Tensor):
    t = cute.arch.thread_idx()[0]
    BODY

@cute.jit
def go(x: cute.Tensor, z: cute.Tensor):
    kernel(x, z).launch(grid=(1, 1, 1), block=BLOCK)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        z = torch.empty_like(x)
        FORWARD
        return z
"""
COPY = (
    "cute.copy(cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), cutlass.Float32), "
    "cute.local_tile(x, (8,), (0,)), cute.local_tile(z, (4,), (0,)))"
)
# name: (what is put where, stage, kind, text that stands on the reported line, part of the message)
CASES = {
    "syntax": ({"BODY": "z[t = x[t]"}, "source", "syntax", "z[t =", "never closed"),
    "name": ({"BODY": "z[t] = missing[t]"}, "compile", "name", "missing[t]", "'missing' is not defined"),
    "no_such_function": (
        {"BODY": "z[t] = cute.no_such_thing(x)"},
        "compile",
        "attribute",
        "no_such_thing",
        "no attribute 'no_such_thing'",
    ),
    "constant_condition": (
        {"BODY": "if cutlass.const_expr(t < 3):\n        z[t] = x[t]"},
        "compile",
        "dynamic_value",
        "const_expr",
        "`const_expr()` requires",
    ),
    "constant_range": (
        {"BODY": "for n in cutlass.range_constexpr(t):\n        z[t] = x[t]"},
        "compile",
        "dynamic_value",
        "range_constexpr",
        "known at code-read time",
    ),
    "python_float": ({"BODY": "z[t] = float(x[t])"}, "compile", "dynamic_value", "float(x", "Runtime value"),
    "value_of_text": ({"BODY": "z[t] = 'text'"}, "compile", "compile_error", "'text'", "unsupported data type"),
    "coordinate": ({"BODY": "z[t] = x[t, t, t]"}, "compile", "bad_coordinate", "x[t, t, t]", "weakly congruent"),
    "copy_shapes": ({"BODY": COPY}, "compile", "invalid_ir", "cute.copy", "expects same size in rank 0"),
    "two_types": (
        {"BODY": "a = cutlass.Float32(0)\n    if t < 3:\n        a = cutlass.Int32(4)\n    z[t] = a"},
        "compile",
        "type_mismatch",
        "if t < 3",
        "`Float32` on one path and `Int32`",
    ),
    "early_return": (
        {"BODY": "if t > 3:\n        return\n    z[t] = x[t]"},
        "compile",
        "early_exit",
        "return",
        "Early exit (return)",
    ),
    "break": (
        {"BODY": "for n in cutlass.range(8):\n        if n > t:\n            break\n    z[t] = x[t]"},
        "compile",
        "early_exit",
        "break",
        "Early exit (break)",
    ),
    "operand_type": (
        {"BODY": "op = cute.nvgpu.warp.MmaF16BF16Op(cutlass.Float32, cutlass.Float32, (16, 8, 16))"},
        "compile",
        "compile_error",
        "MmaF16BF16Op",
        "'ab_dtype'",
    ),
    "wrong_architecture": (
        {"BODY": "cute.nvgpu.warpgroup.fence()\n    z[t] = x[t]"},
        "compile",
        "backend",
        "go(from_dlpack(x), from_dlpack(z))",
        "target sm_80",
    ),
    "torch_in_kernel": ({"BODY": "z[t] = torch.exp(x[t])"}, "compile", "type", "torch.exp", "must be Tensor"),
    "zero_division": ({"BODY": "z[t] = x[t] * (1 // 0)"}, "compile", "compile_error", "1 // 0", "division"),
    "missing_module": (
        {"BODY": "import nothere"},
        "compile",
        "missing_module",
        "import nothere",
        "No module named 'nothere'",
    ),
    "missing_argument": (
        {"FORWARD": "go(from_dlpack(x))"},
        "compile",
        "arguments",
        "go(from_dlpack(x))",
        "`z` is missing",
    ),
    "wrong_argument": ({"FORWARD": "go(x, z)"}, "compile", "arguments", "go(x, z)", "argument #1 (x)"),
    "too_many_threads": ({"BLOCK": "(2048, 1, 1)"}, "launch", "bad_launch", "", "2048 threads"),
    "too_much_shared": (
        {
            "BODY": "s = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(200000))\n"
            "    s[t] = x[t]\n    z[t] = s[t]"
        },
        "launch",
        "bad_launch",
        "",
        "800000 bytes of shared memory",
    ),
    "raises": (
        {"FORWARD": "go(from_dlpack(x), from_dlpack(z))\n        raise RuntimeError('own words')"},
        "run",
        "exception",
        "raise RuntimeError",
        "own words",
    ),
    "shapes": (
        {"FORWARD": "z = z @ torch.zeros(3, 3)"},
        "run",
        "exception",
        "z @ torch",
        "shapes cannot be multiplied",
    ),
}


def failure_of(path: Path) -> Failure:
    """Run the candidate at `path` and explain what it raises."""
    try:
        with emulated(source_file=str(path)):
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
            module.ModelNew()(torch.zeros(32))
    except EmulationFault as fault:
        return fault.failure
    except Exception as error:
        return explain_error(error, str(path), "run")
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("case", CASES)
def test_explained_on_its_line(case: str, tmp_path: Path) -> None:
    parts, stage, kind, place, message = CASES[case]
    source = TEMPLATE
    for key, text in {
        "BODY": "z[t] = x[t]",
        "BLOCK": "(32, 1, 1)",
        "FORWARD": "go(from_dlpack(x), from_dlpack(z))",
        **parts,
    }.items():
        source = source.replace(key, text)
    folder = tmp_path / "cutegen-x1"
    folder.mkdir()
    path = folder / f"explained_{case}.py"
    path.write_text(source)
    failure = failure_of(path)
    assert (failure.stage, failure.kind) == (stage, kind)
    assert message in failure.message
    assert (
        "\n" not in failure.message
        and "\x1b" not in failure.message
        and str(tmp_path) not in failure.message
        and len(failure.detail) <= 10_000
    )
    assert failure.line is not None and place in source.splitlines()[failure.line - 1]


def test_an_operation_of_a_newer_architecture_says_which() -> None:
    class DSLUserCodeError(Exception):
        """As CuTe DSL raises it."""

    text = (
        "expects arch to be sm_90a, but got sm_80\nsuggestion: Ensure env CUTE_DSL_ARCH matches your GPU architecture"
    )
    failure = explain_error(DSLUserCodeError(text), "candidate.py")
    assert failure.kind == NEEDS_ARCH and failure.hint == "give --arch sm_90a"
    assert failure.message == "DSLUserCodeError: it needs sm_90a, and is compiled for sm_80"


def test_a_module_is_described(tmp_path: Path) -> None:
    path = tmp_path / "described.py"
    path.write_text(
        TEMPLATE.replace("BODY", "z[t] = x[t] * 2.0 + 1.0")
        .replace("BLOCK", "(32, 1, 1)")
        .replace("FORWARD", "go(from_dlpack(x), from_dlpack(z))")
    )
    with emulated(source_file=str(path)) as emulation:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        module.ModelNew()(torch.zeros(32))
    compiled = emulation.modules[0]
    (build,) = describe_module(compiled.ptx, compiled.cubin, "sm_80", want_sass=True)
    assert (
        build.registers is not None
        and 4 <= build.registers <= 32
        and not build.spill_bytes
        and build.static_shared_bytes == 0
    )
    sass = sass_text(compiled.cubin)
    mix = dict(instruction_mix(sass))
    assert mix["load global"] == len(re.findall(r"\bLDG", sass)) == 1 and mix["store global"] == 1 and mix["fp32"] >= 1
