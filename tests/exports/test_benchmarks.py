"""`export --as flashinfer-bench` and `--as sol-execbench`: the JSON has the schemas' fields, and its code runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from real_packages import install
from running_exports import LINEAR, load_text

from workbench.emulator import emulated
from workbench.errors import UserError
from workbench.session import Session

CLASSES = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x, target):
        return nn.functional.cross_entropy(x, target)

def get_inputs():
    return [torch.randn(8, 12), torch.randint(0, 12, (8,))]
"""


def export(source: str, form: str, folder: Path) -> dict[str, Any]:
    """The three documents by their names."""
    (folder / "problem.py").write_text(source)
    with Session.create(str(folder / "problem.py"), root=folder / "sessions") as session:
        version = session.generate(test=False)
        assert version is not None
        session.export(version.number, folder / "out", form=form)
    files = [path for path in (folder / "out").rglob("*") if path.is_file()]
    kind = (lambda path: path.stem) if form == "sol-execbench" else (lambda path: path.parent.name.removesuffix("s"))
    return {kind(path): json.loads(path.read_text()) for path in files}


def check_documents(found: dict[str, Any]) -> None:
    """The rules that the two benchmarks' own classes check."""
    definition, solution = found["definition"], found["solution"]
    assert solution["definition"] == definition["name"] and solution["author"] and solution["name"]
    file, function = solution["spec"]["entry_point"].split("::")
    assert [item["path"] for item in solution["sources"]] == [file] and function == "run"
    assert all(axis["type"] == "const" and axis["value"] >= 0 for axis in definition["axes"].values())
    for spec in (*definition["inputs"].values(), *definition["outputs"].values()):
        assert set(spec["shape"]) <= set(definition["axes"])


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["flashinfer-bench", "sol-execbench"])
def test_reference_and_solution_agree(form: str, tmp_path: Path) -> None:
    found = export(LINEAR, form, tmp_path)
    check_documents(found)
    definition, spec = found["definition"], found["solution"]["spec"]
    assert list(definition["inputs"]) == ["x", "linear_weight", "linear_bias"]
    assert spec["destination_passing_style"] is False
    reference, _ = load_text(definition["reference"])
    if form == "sol-execbench":
        assert spec["languages"] == ["cute_dsl"] and spec["target_hardware"] == ["LOCAL"]
        assert definition["custom_inputs_entrypoint"] == "make_inputs"
        assert set(found["workload"]["inputs"]) == set(definition["inputs"])
        operands = reference.make_inputs({}, torch.device("cpu"))
    else:
        assert spec["language"] == "python" and found["workload"]["workload"]["inputs"]["x"] == {"type": "random"}
        sizes = {name: axis["value"] for name, axis in definition["axes"].items()}
        operands = {
            name: torch.randn([sizes[axis] for axis in item["shape"]]) for name, item in definition["inputs"].items()
        }
    assert list(operands) == list(definition["inputs"])
    solution, path = load_text(found["solution"]["sources"][0]["content"])
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        result = solution.run(*operands.values())
    torch.testing.assert_close(result, reference.run(*operands.values()))
    assert list(result.shape) == [
        definition["axes"][axis]["value"] for axis in definition["outputs"]["output"]["shape"]
    ]


ONLY_NN = LINEAR.replace("F.gelu", "nn.functional.relu")


@pytest.mark.parametrize("form", ["flashinfer-bench", "sol-execbench"])
@pytest.mark.parametrize(
    "imports", ["import torch\nfrom torch import nn\n", "import torch as t\nfrom torch import nn\n"]
)
def test_a_reference_has_the_imports_of_run(form: str, imports: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in ONLY_NN.splitlines() if not line.startswith(("import ", "from ")))
    source = imports + (text.replace("torch.", "t.") if " as t" in imports else text)
    definition = export(source, form, tmp_path)["definition"]
    reference, _ = load_text(definition["reference"])
    sizes = {name: axis["value"] for name, axis in definition["axes"].items()}
    operands = [torch.randn([sizes[axis] for axis in item["shape"]]) for item in definition["inputs"].values()]
    x, weight, bias = operands
    torch.testing.assert_close(reference.run(*operands), torch.relu(torch.nn.functional.linear(x, weight, bias)))


@pytest.mark.parametrize("source", [LINEAR, CLASSES], ids=["linear", "classes"])
def test_sol_execbench_reads_its_export(source: str, tmp_path: Path) -> None:
    """With the real package (github.com/NVIDIA/SOL-ExecBench, src on the path), which is on no package index."""
    data = pytest.importorskip("sol_execbench.core.data", reason="SOL-ExecBench is on no package index")
    from sol_execbench.core.bench.io import gen_inputs

    found = export(source, "sol-execbench", tmp_path)
    definition = data.Definition.model_validate(found["definition"])
    solution, workload = (
        data.Solution.model_validate(found["solution"]),
        data.Workload.model_validate(found["workload"]),
    )
    reference, _ = load_text(definition.reference)
    operands = gen_inputs(definition, workload, "cpu", {}, custom_inputs_fn=reference.make_inputs)
    made, path = load_text(solution.sources[0].content)
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        result = made.run(*operands)
    torch.testing.assert_close(result, reference.run(*operands))


LITERALS = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 32)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(8, 16)]
"""


@pytest.mark.parametrize("form", ["flashinfer-bench", "sol-execbench"])
def test_sizes_that_the_module_has_as_literals(form: str, tmp_path: Path) -> None:
    found = export(LITERALS, form, tmp_path)
    operands = (torch.randn(8, 16), torch.randn(32, 16), torch.randn(32))
    solution, path = load_text(found["solution"]["sources"][0]["content"])
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        result = solution.run(*operands)
    torch.testing.assert_close(result, load_text(found["definition"]["reference"])[0].run(*operands))


def test_inputs_that_are_classes(tmp_path: Path) -> None:
    found = export(CLASSES, "sol-execbench", tmp_path)
    check_documents(found)
    made = load_text(found["definition"]["reference"])[0].make_inputs({}, torch.device("cpu"))
    assert int(made["target"].max()) < 12
    with pytest.raises(UserError, match="it draws any integers for target"):
        export(CLASSES, "flashinfer-bench", tmp_path)


SCRIPT = """
import sys
from flashinfer_bench.bench.utils import gen_inputs
from flashinfer_bench.compile.builders.python_builder import PythonBuilder
from flashinfer_bench.data import TraceSet
import torch
sys.path.insert(0, {here!r})
from running_exports import without_workbench
from workbench.emulator import emulated

found = TraceSet.from_path(sys.argv[1])
(definition,) = found.definitions.values()
((solution,),) = found.solutions.values()
((trace,),) = found.workloads.values()
assert trace.is_workload_trace() and trace.definition == solution.definition == definition.name
with without_workbench():
    built = PythonBuilder().build(definition, solution)
inputs = gen_inputs(definition, trace.workload, "cpu")
reference = {{}}
exec(definition.reference, reference)
with emulated(arch="sm_80", device="H200", source_file=sys.argv[1]):
    result = built(*inputs)
torch.testing.assert_close(result, reference["run"](*inputs))
print("ran", solution.name)
"""
PACKAGES = ("flashinfer-bench==0.1.2", "safetensors", "docstring-parser")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_flashinfer_bench_itself_reads_and_builds_it(tmp_path: Path) -> None:
    environment = install(tmp_path / "package", *PACKAGES)
    export(LINEAR, "flashinfer-bench", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(here=str(Path(__file__).parent)), str(tmp_path / "out")],
        env=environment | {"HOME": str(tmp_path), "FIB_CACHE_PATH": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("ran problem_")
