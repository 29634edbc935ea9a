"""`export --as custom-op` on the emulator, which takes CPU tensors for a GPU's: results, gradients, refusals.

Not shown here: CUDA graphs and inductor's own code, which need a GPU (tests/exports/test_custom_op_on_gpu.py).
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from running_exports import LINEAR, export, gradients, load_text
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import workbench
from workbench.emulator import emulated
from workbench.errors import UserError

TWO = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y), x * y

def get_inputs():
    return [torch.randn(8, 12), torch.randn(8, 12)]
"""
ARGMAX = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(x, dim=-1)

def get_inputs():
    return [torch.randn(8, 12)]
"""
BATCH_NORM = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(12)

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn(8, 12)]
"""
DROPOUT = TWO.replace("torch.relu(x + y), x * y", "torch.dropout(x, 0.5, True) + y")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, Path]:
    return load_text(export(LINEAR, tmp_path_factory.mktemp("linear")))


@pytest.fixture
def linear(loaded: tuple[ModuleType, Path]) -> Iterator[ModuleType]:
    module, path = loaded
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        yield module


@pytest.fixture
def linear_outside(loaded: tuple[ModuleType, Path], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Only the kernel is emulated: torch does not compile what runs under the emulator's mode of torch."""
    module, path = loaded
    plain = module.KernelModule.forward

    def forward(self: Any, *inputs: Any) -> Any:
        with emulated(arch="sm_80", device="H200", source_file=str(path)):
            return plain(self, *inputs)

    monkeypatch.setattr(module.KernelModule, "forward", forward)
    return module


def make_pair(module: ModuleType) -> tuple[Any, Any]:
    """The operator's module and the reference, with the same parameters."""
    torch.manual_seed(0)
    kernel = module.ModelNew(8, 24)
    drawn = torch.rand(())
    torch.manual_seed(0)
    reference = module.Model(8, 24)
    assert torch.equal(drawn, torch.rand(()))  # the same random numbers follow
    for one, other in zip(kernel.parameters(), reference.parameters(), strict=True):
        assert torch.equal(one, other)
    return kernel, reference


def test_results_and_gradients_are_the_references(linear: ModuleType) -> None:
    kernel, reference = make_pair(linear)
    assert list(kernel.state_dict()) == ["linear.weight", "linear.bias"]
    x = torch.randn(16, 8)
    torch.testing.assert_close(kernel(x), reference(x))
    found = gradients(kernel, x)
    assert len(found) == 3
    torch.testing.assert_close(found, gradients(reference, x))


def test_torch_checks_the_operator(linear: ModuleType) -> None:
    kernel, _ = make_pair(linear)
    for x in (torch.randn(16, 8), torch.randn(17, 9)[1:, 1:].requires_grad_()):
        torch.library.opcheck(kernel.operator, (x, list(kernel.parameters()), kernel.handle))


def test_second_derivatives(linear: ModuleType) -> None:
    kernel, reference = make_pair(linear)
    found = []
    for model in (kernel, reference):
        x = torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
        (first,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        found.append(torch.autograd.grad((first**2).sum(), x)[0])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.few(1)
@pytest.mark.parametrize("dynamic", [False, True])
def test_under_torch_compile(linear_outside: ModuleType, dynamic: bool) -> None:
    torch._dynamo.reset()
    kernel, reference = make_pair(linear_outside)
    model = torch.nn.Sequential(torch.nn.Tanh(), kernel, torch.nn.Softmax(-1))
    plain = torch.nn.Sequential(torch.nn.Tanh(), reference, torch.nn.Softmax(-1))
    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=counted)
    for rows in (16, 5, 7):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), plain(x))
        torch.testing.assert_close(gradients(compiled, x), gradients(plain, x))
    assert not dynamic or counted.frame_count <= 2  # with and without gradients of x


@pytest.fixture
def operator_calls(linear_outside: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of operands of each call of the operator so far."""
    found: list[int] = []
    plain = linear_outside.ModelNew.operator

    def count(*operands: Any) -> Any:
        found.append(len(operands))
        return plain(*operands)

    monkeypatch.setattr(linear_outside.ModelNew, "operator", staticmethod(count))
    return found


def test_the_kernel_is_called_directly_where_torch_need_not_see_it(
    linear_outside: ModuleType, operator_calls: list[int]
) -> None:
    kernel, reference = make_pair(linear_outside)
    x = torch.randn(16, 8)
    with torch.no_grad():
        torch.testing.assert_close(kernel(x), reference(x))
    with torch.inference_mode():
        torch.testing.assert_close(kernel(x), reference(x))
    kernel.requires_grad_(False)
    torch.testing.assert_close(kernel(x), reference(x).detach())
    assert not operator_calls


def test_the_operator_is_called_where_torch_has_to_see_it(
    linear_outside: ModuleType, operator_calls: list[int]
) -> None:
    kernel, reference = make_pair(linear_outside)
    x = torch.randn(16, 8)
    torch.testing.assert_close(gradients(kernel, x), gradients(reference, x))
    assert len(operator_calls) == 1
    kernel.requires_grad_(False)
    torch.testing.assert_close(gradients(kernel, x)[0], gradients(reference, x)[0])
    assert len(operator_calls) == 2
    with torch.no_grad():
        traced = make_fx(kernel)(x)
        assert "cutegen" in traced.code and len(operator_calls) == 3
        torch.testing.assert_close(traced(x + 1), reference(x + 1))
        (found,) = torch.func.functionalize(lambda x: (kernel(x),))(x)
        torch.testing.assert_close(found, reference(x))
    assert len(operator_calls) == 4


def test_results_of_a_direct_call_have_memory_of_their_own(
    linear_outside: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, _ = make_pair(linear_outside)
    x = torch.randn(24, 8)
    for result in (x, x.t(), kernel.linear.weight, kernel.linear.bias[1:]):
        monkeypatch.setattr(linear_outside.KernelModule, "forward", lambda self, x, result=result: result)
        with torch.no_grad():
            found = kernel(x)
        assert torch.equal(found, result) and found.is_contiguous()
        assert found.untyped_storage().data_ptr() != result.untyped_storage().data_ptr()


def test_views_inference_mode_and_empty_tensors(linear: ModuleType) -> None:
    kernel, reference = make_pair(linear)
    x = torch.randn(40, 9)
    for view in (x[3:20, 1:], x.t()[:8].t(), x[:0, :8]):
        torch.testing.assert_close(kernel(view), reference(view))
    with torch.inference_mode():
        torch.testing.assert_close(kernel(x[:, :8]), reference(x[:, :8]))


def test_other_parameters_than_its_own(linear: ModuleType) -> None:
    kernel, reference = make_pair(linear)
    state = {name: torch.randn_like(value) for name, value in kernel.state_dict().items()}
    x = torch.randn(16, 8)
    found, wanted = (torch.func.functional_call(model, state, (x,)) for model in (kernel, reference))
    torch.testing.assert_close(found, wanted)
    values = [value + 0 for value in state.values()]
    torch.testing.assert_close(kernel.operator(x, values, kernel.handle)[0], wanted)
    with torch.no_grad():
        kernel.linear.weight.zero_()
        kernel.linear.bias.zero_()
    assert not kernel(x).any()  # parameters that change in place are read anew


def test_copies_are_modules_of_their_own(linear: ModuleType) -> None:
    kernel, reference = make_pair(linear)
    x = torch.randn(16, 8)
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        assert twin.handle != kernel.handle
        with torch.no_grad():
            twin.linear.bias.zero_()
        assert not torch.equal(twin(x), kernel(x))
        torch.testing.assert_close(gradients(kernel, x), gradients(reference, x))


def test_threads(linear: ModuleType) -> None:
    pairs = [make_pair(linear) for _ in range(2)]
    found: list[bool] = []

    def work(pair: tuple[Any, Any], seed: int) -> None:
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(seed))
        for _ in range(3):
            torch.testing.assert_close(gradients(pair[0], x), gradients(pair[1], x))
        found.append(True)

    threads = [threading.Thread(target=work, args=(pair, seed)) for seed, pair in enumerate(pairs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True, True]


def test_several_results(tmp_path: Path) -> None:
    module, path = load_text(export(TWO, tmp_path))
    x, y = torch.randn(8, 12), torch.randn(8, 12).requires_grad_()
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        found, wanted = module.ModelNew()(x, y), module.Model()(x, y)
        torch.testing.assert_close(found, wanted)
        (first,) = torch.autograd.grad(found[1].sum(), y)  # the other result has no gradient
        assert torch.equal(first, x)


def test_integers_have_no_gradients(tmp_path: Path) -> None:
    module, path = load_text(export(ARGMAX, tmp_path))
    x = torch.randn(8, 12, requires_grad=True)
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        result = module.ModelNew()(x)
    assert torch.equal(result, x.argmax(-1)) and not result.requires_grad


@pytest.mark.parametrize(
    ("source", "why"),
    [(BATCH_NORM, "forward changes norm.num_batches_tracked in place"), (DROPOUT, "draws random numbers")],
)
def test_refusals(source: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=why):
        export(source, tmp_path)


@pytest.mark.parametrize("inside", [False, True], ids=["imported before", "imported inside"])
def test_tensors_on_cuda_of_the_emulator(inside: bool, tmp_path: Path) -> None:
    text = export(LINEAR, tmp_path)
    plain = text.replace("cutegen::", f"cutegen_{inside}::")  # an operator has its name once in a process
    given = None if inside else load_text(plain)[0]
    with workbench.emulated(device="A100") as emulation:
        module = given or load_text(plain)[0]
        model, x = module.ModelNew(8, 24).cuda(), torch.randn(16, 8, device="cuda", requires_grad=True)
        y = model(x)
        assert y.device.type == "cuda" and emulation.launches
        wanted = torch.nn.functional.gelu(model.linear(x))
        torch.testing.assert_close(y, wanted)
        own, other = (torch.autograd.grad(one.sum(), x)[0] for one in (y, wanted))
        torch.testing.assert_close(own, other)
    assert module.ModelNew(8, 24).linear.weight.device.type == "cpu"


@pytest.mark.parametrize("form", ["custom-op", "kernelbench", "version"])
def test_tensors_on_the_cpu_are_refused_in_one_line(form: str, tmp_path: Path) -> None:
    module, _ = load_text(export(LINEAR, tmp_path, form=form).replace("cutegen::", "cpu::"))
    x = torch.randn(16, 8)
    with workbench.emulated(device="A100"), torch.no_grad():
        model = module.ModelNew(8, 24)
        for _ in range(2):  # nothing of the refused call is kept
            with pytest.raises(ValueError, match=r'takes tensors on "cuda".*to "cuda"$') as refused:
                model(x)
            assert "\n" not in str(refused.value)
            assert form == "version" or "one of shape (1, 16, 8) is on 'cpu'" in str(refused.value)
        y = model.cuda()(x.cuda())
        torch.testing.assert_close(y, torch.nn.functional.gelu(model.linear(x.cuda())))
        if form == "kernelbench":  # torch checks the operands of an operator itself
            with pytest.raises(ValueError, match=r"one of shape \(1, 16, 8\) is on .cpu."):
                model(x)
