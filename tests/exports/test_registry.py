"""`export --as operators`: the file registers the kernel with nvidia-cutlass-operators, which finds and runs it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from real_packages import install
from running_exports import LINEAR, export

from workbench.errors import UserError

PRODUCT = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul({operands})

def get_inputs():
    return [torch.randn(32, 32).bfloat16(), torch.randn(32, 32).bfloat16()]
"""
TWO_RESULTS = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x), x.exp()

def get_inputs():
    return [torch.randn(4, 32)]
"""
RUN = """
import sys, torch
from running_exports import without_workbench
from workbench.emulator import emulated

def agree(made, wanted):
    torch.testing.assert_close(made.float(), wanted.float(), rtol=2e-2, atol=2e-2)

with emulated(arch="sm_80", device="H200", source_file="product.py"), without_workbench():
    import cutlass.operators as ops
    import linear, product, two_results

    a, b = torch.randn(24, 40).bfloat16(), torch.randn(40, 56).bfloat16()
    out = torch.empty(24, 56).bfloat16()
    query = ops.GemmArguments(a, b, out, accumulator_type=torch.float32)
    found = ops.get_operators(query, target_sm="80")
    ours = [item for item in found if type(item).__module__ == "product"]
    assert len(ours) == 1 and len(found) > 1, found  # beside NVIDIA's own
    ours[0].run(query)
    agree(out, a @ b)
    assert not [item for item in ops.get_operators(ops.GemmArguments(
        a.half(), b.half(), out.half(), accumulator_type=torch.float32)) if type(item).__module__ == "product"]

    module, x = torch.nn.Linear(8, 24), torch.randn(16, 8)
    weights = {"linear_weight": module.weight.detach(), "linear_bias": module.bias.detach()}
    wanted = torch.nn.functional.gelu(module(x)).detach()
    arguments = linear.Arguments(x=x, **weights)
    [operator] = ops.get_operators(arguments, target_sm="90a")
    operator.run(arguments, operator.compile(arguments))
    agree(arguments.output, wanted)
    given = torch.empty_like(wanted)
    operator.run(linear.Arguments(x=x, **weights, output=given))
    agree(given, wanted)
    wrong = linear.Arguments(x=x.double(), **weights)
    assert not ops.get_operators(wrong) and "x is torch.float64" in str(operator.supports(wrong).error)
    assert not ops.get_operators(linear.Arguments(x=x, linear_weight=x, linear_bias=weights["linear_bias"]))

    arguments = two_results.Arguments(x=x)
    ops.get_operators(arguments)[0].run(arguments)
    agree(arguments.output, x.relu())
    agree(arguments.output1, x.exp())
print("ran")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_registry_finds_and_runs_the_kernels(tmp_path: Path) -> None:
    environment = install(tmp_path / "package")
    product = PRODUCT.format(operands="a, b")
    for name, source in (("linear", LINEAR), ("product", product), ("two_results", TWO_RESULTS)):
        (tmp_path / name).mkdir()
        (tmp_path / f"{name}.py").write_text(export(source, tmp_path / name, form="operators"))
    (tmp_path / "run.py").write_text(RUN)
    environment["PYTHONPATH"] += f":{Path(__file__).parent}"
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.stdout.strip() == "ran", done.stdout + done.stderr


def find_classes(text: str) -> dict[str, dict[str, str]]:
    """The operators of a file, with their attributes as text."""
    return {
        node.name: {
            ast.unparse(item.targets[0]): ast.unparse(item.value) for item in node.body if isinstance(item, ast.Assign)
        }
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }


def test_written_text(tmp_path: Path) -> None:
    text = export(PRODUCT.format(operands="b, a"), tmp_path, form="operators")
    assert "workbench" not in text
    classes = find_classes(text)
    assert classes["KernelOperator"]["target"] == "'80'" and "torch.bfloat16" in classes["KernelOperator"]["inputs"]
    assert classes["KernelProduct"]["supported_args_type"] == "ops.GemmArguments"
    assert "run(b, a)" in classes["KernelProduct"]["function"]  # A of the registry is forward's second argument


def test_module_with_more_than_a_product_has_its_own_arguments_only(tmp_path: Path) -> None:
    classes = find_classes(export(LINEAR, tmp_path, form="operators"))
    assert "KernelProduct" not in classes and "(24, 8)" in classes["KernelOperator"]["inputs"]


def test_module_that_is_no_function_is_refused(tmp_path: Path) -> None:
    random = TWO_RESULTS.replace("x.exp()", "torch.nn.functional.dropout(x)")
    with pytest.raises(UserError, match="for operators"):
        export(random, tmp_path, form="operators")
