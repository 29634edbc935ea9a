"""What a module takes and returns: containers of tensors, arguments by name, modules that return nothing."""

from __future__ import annotations

import copy
import functools
import inspect
from pathlib import Path

import pytest
import torch

from workbench import Session, problems
from workbench.codegen.exports.custom_op import refuse
from workbench.errors import ProblemError, UserError
from workbench.executors.emulator import EmulatorExecutor
from workbench.problems import inspection, loading
from workbench.problems.inputs.adapted import adapt
from workbench.problems.inputs.arguments import read_call
from workbench.proposers.coverage import find_coverage
from workbench.records import Candidate, Failure, Job, Opened

FOLDER = Path(__file__).parent / "arguments"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
# name -> inputs, outputs
EXPECTED = {
    "adam_step": ("state['p'] state['m'] state['v'] grad", "state['p'] state['m'] state['v']"),
    "args_and_kwargs": ("x y mask", "output0"),
    "batch_dict": ("batch['hidden'] batch['residual'] batch['mask']", "hidden weights"),
    "cache_write_nothing": ("keys", "cache"),
    "foreach_sgd": ("params[0] params[1] params[2] grads[0] grads[1] grads[2]", "params[0] params[1] params[2]"),
    "in_place_add": ("x y", "x"),
    "keyword_only": ("x scale mask", "output0"),
    "list_of_tensors": ("maps[0] maps[1] maps[2] scale", "output0"),
    "named_tuple": ("gates[0] gates[1] gates[2] gates[3] state.h state.c", "h c"),
    "number_of_tensors": ("xs[0] xs[1] xs[2] xs[3]", "output0"),
    "out_argument": ("a b out", "out"),
    "own_dataclass": ("q cache.keys cache.values", "output0"),
    "returned_input": ("hidden residual", "output0 output1"),
    "same_twice": ("a b", "output0"),
    "star_args": ("parts[0] parts[1] options['scale']", "output0"),
    "views_returned": ("x", "flat head y"),
}
UNPLANNED = ("cache_write_nothing",)
PLANNED = [name for name in NAMES if name not in UNPLANNED]
TIES = {
    "list_of_tensors": {"maps_0_0=maps_1_0=maps_2_0", "maps_0_1=maps_1_1=maps_2_1=scale_0"},
    "own_dataclass": {
        "q_0=cache_keys_0=cache_values_0",
        "q_1=cache_keys_1=cache_values_1",
        "cache_keys_2=cache_values_2",
        "q_3=cache_keys_3=cache_values_3",
    },
    "batch_dict": {
        "batch_hidden_0=batch_residual_0",
        "batch_hidden_1=batch_residual_1=hidden",
    },
}

HANDWRITTEN = """import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def kernel(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 64 + thread
    if i < count:
        out[i] = {value}


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    kernel(x, y, out, count).launch(grid=[(count + 63) // 64, 1, 1], block=[64, 1, 1])


def run(x, y, out):
    views = [from_dlpack(t.view(-1)).mark_layout_dynamic() for t in (x, y, out)]
    launch(*views, cutlass.Int32(out.numel()))


class ModelNew(torch.nn.Module):
{model}
"""


@functools.cache
def opened(name: str) -> Opened:
    return inspection.open_problem(problems.load(str(FOLDER / f"{name}.py")))


def judge(name: str, value: str, model: str) -> Failure | None:
    """The failure of a candidate with a kernel of one value per element."""
    body = "\n".join(f"    {line}" for line in model.splitlines())
    source = HANDWRITTEN.format(value=value, model=body)
    found = opened(name)
    job = Job(problem=found.problem, facts=found.facts, candidate=Candidate(source=source), full_sample=False)
    return EmulatorExecutor().run(job).failure


@pytest.mark.few(8)
@pytest.mark.parametrize("name", NAMES)
def test_inputs_and_results_have_the_names_by_which_forward_knows_them(name: str) -> None:
    full = opened(name).facts.cases[-1]
    inputs, outputs = EXPECTED[name]
    assert [spec.name for spec in full.inputs] == inputs.split()
    assert [spec.name for spec in full.outputs] == outputs.split()


@pytest.mark.few(8)
@pytest.mark.parametrize("name", NAMES)
def test_every_size_of_an_input_varies(name: str) -> None:
    cases = opened(name).facts.cases
    # forward divides by a number made of the first; the next are parts of a sum; then a linear layer's literals
    fixed = {"q[3]", "cache.keys[3]", "cache.values[3]", "parts[0][1]", "parts[1][1]", "options['scale'][0]"}
    fixed |= {"hidden[1]", "residual[1]"}
    for n, spec in enumerate(cases[-1].inputs):
        for axis, extent in enumerate(spec.shape):
            if extent > 1 and f"{spec.name}[{axis}]" not in fixed:
                assert len({case.inputs[n].shape[axis] for case in cases}) > 1, (spec.name, axis)


@pytest.mark.parametrize("name", TIES)
def test_sizes_inside_of_arguments_are_named_and_tied(name: str) -> None:
    assert {"=".join(sorted(group.split("="))) for group in TIES[name]} <= {
        "=".join(sorted(group)) for group in opened(name).problem.tie
    }


@pytest.mark.few(8)
@pytest.mark.parametrize("name", NAMES)
def test_the_planner_writes_it_or_says_what_would_be_written(name: str) -> None:
    found = find_coverage(opened(name).problem, opened(name).facts, arch="sm_80", device="H200")
    assert bool(found.program) == (name in PLANNED)
    if not found.program:
        assert "writes to its own cache" in found.reason and found.part


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PLANNED)
def test_the_first_kernel_is_right_at_every_case(name: str, tmp_path: Path) -> None:
    with Session.create(str(FOLDER / f"{name}.py"), root=tmp_path, executor="emulator") as session:
        version = session.generate()
        assert version is not None
        assert version.trials[-1].verdict.correct, version.trials[-1].verdict


ADD = "def forward(self, x, y, alpha=0.5):\n    {}"
LISTED = "def forward(self, maps, scale):\n    out = torch.empty_like(maps[0])\n    {}\n    return out"
CACHE = """def __init__(self, heads=8, length=1024, dim=64):
    super().__init__()
    self.register_buffer("cache", torch.zeros(heads, length, dim))

def forward(self, keys):
    part = torch.empty_like(keys)
    run(keys, keys, part)
    self.cache[:, : keys.shape[1]] = part"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "value", "model", "said"),
    [
        ("in_place_add", "x[i] + 0.5 * y[i]", ADD.format("run(x, y, x)"), ""),
        ("in_place_add", "x[i] + y[i]", ADD.format("run(x, y, x)"), "elements are wrong"),
        ("in_place_add", "x[i] + 0.5 * y[i]", ADD.format("run(x, y, y)"), "changed its input y"),
        ("in_place_add", "x[i] + 0.5 * y[i]", ADD.format("run(x, y, torch.empty_like(x))"), "elements are wrong"),
        ("cache_write_nothing", "x[i] * 0.125", CACHE, ""),
        ("cache_write_nothing", "x[i] * 0.25", CACHE, "elements are wrong"),
        (
            "list_of_tensors",
            "(x[i] + y[i])",
            LISTED.format("run(maps[0], maps[1], out); run(out, maps[2], out); out.mul_(scale)"),
            "",
        ),
        (
            "list_of_tensors",
            "(x[i] + y[i])",
            LISTED.format("run(maps[0], maps[1], out); run(out, maps[1], out); out.mul_(scale)"),
            "elements are wrong",
        ),
        (
            "own_dataclass",
            "x[i]",
            "def forward(self, q, cache):\n    assert type(cache).__name__ == 'KVCache' and cache.length > 0\n"
            "    return torch.softmax(q @ cache.keys.mT / 8.0, dim=-1) @ cache.values",
            "",
        ),
        (
            "keyword_only",
            "x[i]",
            "def forward(self, x, *, scale, bias=None, mask=None, alpha=1.5):\n"
            "    assert bias is None\n    return (x * scale * alpha).masked_fill(mask, 0.0)",
            "",
        ),
        (
            "keyword_only",
            "x[i]",
            "def forward(self, x, *, scale, bias=None, mask=None, alpha=1.5):\n    return x * scale * alpha",
            "elements are wrong",
        ),
    ],
)
def test_a_candidate_is_called_as_the_reference_is(name: str, value: str, model: str, said: str) -> None:
    failure = judge(name, value, model)
    assert said in failure.message if failure and said else not failure and not said, failure


def test_a_module_without_a_result_that_changes_nothing_is_refused() -> None:
    text = (FOLDER / "in_place_add.py").read_text().replace("x.add_(y, alpha=alpha)", "x.add(y)")
    with pytest.raises(ProblemError, match="returns nothing, and changes none of its inputs"):
        inspection.inspect(problems.load(text))


def test_the_arguments_of_a_call_are_those_that_were_given() -> None:
    problem = problems.load(str(FOLDER / "own_dataclass.py"))
    module = loading.load_module(problem)
    made = module.get_inputs()
    inputs, call = read_call(made, inspect.signature(module.Model().forward).parameters)
    (q, cache), kwargs = call.restore(inputs)
    assert q is made[0] and not kwargs
    assert type(cache) is module.KVCache and cache is not made[1]
    assert cache.keys is made[1].keys and cache.length == 1024
    assert call.names == ("q", "cache.keys", "cache.values", "cache.length")


class Nested(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return self.weight * parts[0] + parts[1]


def test_a_copy_of_an_adapted_model_has_its_own_parameters() -> None:
    inputs, call = read_call([[torch.ones(3), torch.ones(3)]], inspect.signature(Nested().forward).parameters)
    model = adapt(Nested(), call, returns_nothing=False)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.weight.mul_(5)
    assert model(*inputs).tolist() == [2.0] * 3
    assert other(*inputs).tolist() == [6.0] * 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_dataclass", "forward takes cache.keys, a tensor inside of another object"),
        ("keyword_only", "an operator its operands by position"),
        ("in_place_add", "forward returns nothing and changes its inputs or buffers"),
    ],
)
def test_what_an_operator_of_torch_cannot_take_is_refused(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        refuse(opened(name).problem, opened(name).facts)
