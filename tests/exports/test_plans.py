"""Plans of exported files on the emulator, which takes CPU tensors for a GPU's: what a later call may differ in."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from running_exports import export, load_text

from workbench.codegen.exports.plans import add_plans
from workbench.emulator import emulated

SCALE = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(32))

    def forward(self, x, y):
        return torch.relu(x * self.scale) - y

def get_inputs():
    return [torch.randn(8, 32), torch.randn(8, 32)]
"""
STAGES = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 32)

    def forward(self, x):
        return torch.softmax(torch.nn.functional.gelu(self.linear(x)), -1)

def get_inputs():
    return [torch.randn(8, 16)]
"""
SIDE_BY_SIDE = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat([-second, first], dim=-1) * x

def get_inputs():
    return [torch.randn(6, 16).bfloat16()]
"""
CONVOLUTION = """
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x))

def get_inputs():
    return [torch.randn(2, 8, 6, 10)]
"""
RESIZED = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        padded = nn.functional.pad(x.flip(1), (1, 2, 3, 0), mode="reflect")
        return nn.functional.interpolate(padded, scale_factor=2, mode="bilinear").relu()

def get_inputs():
    return [torch.randn(2, 3, 6, 10)]
"""
SEVERAL = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.topk(x, 3)

def get_inputs():
    return [torch.randn(5, 40)]
"""
Call = Callable[..., torch.Tensor]


def load(source: str, folder: Path, **options: Any) -> tuple[ModuleType, Path]:
    return load_text(export(source, folder, form="kernelbench", **options))


def plans_of(module: ModuleType) -> list[object]:
    """What the host functions have for each description of operands: None where it is no plan."""
    return [plan for item in vars(module).values() for plan in getattr(item, "plans", {}).values()]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModuleType, Path]:
    return load(SCALE, tmp_path_factory.mktemp("scale"))


@pytest.fixture
def scale(loaded: tuple[ModuleType, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The file without plans so far, and with a count of calls that have none."""
    module, path = loaded
    for item in vars(module).values():
        getattr(item, "plans", {}).clear()
    with emulated(arch="sm_80", device="H200", source_file=str(path)):
        yield module


def make_model(module: ModuleType) -> tuple[Any, Call]:
    """The model, and its reference."""
    model = module.ModelNew()
    return model, lambda x, y: torch.relu(x * model.scale) - y


def check(model: Any, reference: Call, *operands: torch.Tensor) -> None:
    torch.testing.assert_close(model(*operands), reference(*operands))


def test_a_plan_serves_other_tensors(scale: ModuleType) -> None:
    model, reference = make_model(scale)
    for _ in range(3):
        check(model, reference, torch.randn(8, 32), torch.randn(8, 32))
        with torch.no_grad():
            model.scale.copy_(torch.rand(32))
    other, others = make_model(scale)
    check(other, others, torch.randn(8, 32), torch.randn(8, 32))
    (plan,) = plans_of(scale)
    assert plan is not None


def test_other_shapes_strides_and_starts_have_plans_of_their_own(scale: ModuleType) -> None:
    model, reference = make_model(scale)
    wide = torch.randn(40, 33)
    cases = [wide[:8, :32], wide[:5, :32], wide[3:11, :32], wide[:32, :8].t(), torch.randn(8, 32), torch.randn(0, 32)]
    y = torch.randn(8, 32)
    for _ in range(2):
        for x in cases:
            check(model, reference, x, y[: len(x)])
            check(model, reference, y[: len(x)], x)
    assert len(plans_of(scale)) == 2 * (len(cases) - 1) and None not in plans_of(scale)


def test_operands_that_share_memory(scale: ModuleType) -> None:
    model, reference = make_model(scale)
    whole = torch.randn(17, 32)
    check(model, reference, whole[:8], whole[8:16])
    check(model, reference, torch.randn(8, 32), torch.randn(8, 32))
    check(model, reference, whole[:8], whole[:8])
    check(model, reference, whole[9:], whole[1:9])
    assert len(plans_of(scale)) == 1


def test_one_tensor_as_both_operands_first(scale: ModuleType) -> None:
    model, reference = make_model(scale)
    x = torch.randn(8, 32)
    check(model, reference, x, x)
    check(model, reference, x, torch.randn(8, 32))
    assert len(plans_of(scale)) == 1


def test_results_are_new_tensors(scale: ModuleType) -> None:
    model, reference = make_model(scale)
    x, y = torch.randn(8, 32), torch.randn(8, 32)
    first, second, third = (model(x, y) for _ in range(3))
    assert len({one.data_ptr() for one in (first, second, third)}) == 3
    second.zero_()
    torch.testing.assert_close(third, reference(x, y))


def test_no_tensor_is_kept(scale: ModuleType) -> None:
    model, _ = make_model(scale)
    x, y = torch.randn(8, 32), torch.randn(8, 32)
    seen = [weakref.ref(one) for one in (x, y, model(x, y), model(x, y))]
    del x, y
    gc.collect()
    assert [one() for one in seen] == [None] * 4


def test_gradients_and_inference_mode(scale: ModuleType) -> None:
    model, reference = make_model(scale)
    x, y = torch.randn(8, 32), torch.randn(8, 32)
    for _ in range(2):
        for requires_grad in (False, True):
            model.scale.requires_grad_(requires_grad)
            found = model(x.clone().requires_grad_(requires_grad), y)
            torch.testing.assert_close(found, reference(x, y).detach())
        with torch.inference_mode():
            check(model, reference, x, y)
            check(model, reference, x * 2, y)  # tensors of inference
    assert len(plans_of(scale)) == 3 and None not in plans_of(scale)


def test_copies_that_are_made_in_inference_mode(scale: ModuleType) -> None:
    """There torch does not take `contiguous` apart: its result may be a copy, although it is called a view."""
    model, reference = make_model(scale)
    for _ in range(2):
        with torch.inference_mode():
            for _ in range(2):
                check(model, reference, torch.randn(32, 8).t(), torch.randn(8, 32))
                check(model, reference, torch.randn(8, 32), torch.randn(8, 1).expand(8, 32))
        model.scale.requires_grad_(False)
        check(model, reference, torch.randn(32, 8).t(), torch.randn(8, 32))
    assert plans_of(scale) and None not in plans_of(scale)


def test_threads(scale: ModuleType) -> None:
    pairs = [make_model(scale) for _ in range(3)]
    found: list[bool] = []

    def work(rows: int) -> None:
        for turn in range(4):
            model, reference = pairs[(rows + turn) % 3]
            check(model, reference, torch.randn(rows, 32), torch.randn(rows, 32))
        found.append(True)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (7, 8, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3


def test_plans_are_bounded(scale: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "MOST_PLANS", 3)
    model, reference = make_model(scale)
    for rows in (1, 2, 3, 4, 5, 1):
        check(model, reference, torch.randn(rows, 32), torch.randn(rows, 32))
    assert len(plans_of(scale)) <= 3


def test_an_error_leaves_no_plan(scale: ModuleType) -> None:
    model, reference = make_model(scale)
    for _ in range(2):
        with pytest.raises(ValueError, match="shape"):
            model(torch.randn(8, 32), torch.randn(9, 32))
    check(model, reference, torch.randn(8, 32), torch.randn(8, 32))
    assert len(plans_of(scale)) == 1


def test_under_torch_compile(loaded: tuple[ModuleType, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    module, path = loaded
    plain = module.unrolled_elementwise

    def emulate(function: Any, operands: Any, named: Any) -> torch.Tensor:
        with emulated(arch="sm_80", device="H200", source_file=str(path)):
            return plain(*operands, **named)

    monkeypatch.setattr(module, "call_apart", torch._disable_dynamo(emulate))
    torch._dynamo.reset()
    model, reference = make_model(module)
    compiled = torch.compile(torch.nn.Sequential(torch.nn.Tanh(), Second(model)), backend="eager")
    with torch.no_grad():
        for rows in (8, 8, 5):
            x = torch.randn(rows, 32)
            torch.testing.assert_close(compiled(x), reference(x.tanh(), x.tanh()))


class Second(torch.nn.Module):
    """Calls a model of two operands."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x, x)


SOURCES = {
    "stages": STAGES,
    "concat": SIDE_BY_SIDE,
    "convolution": CONVOLUTION,
    "resized": RESIZED,
    "several results": SEVERAL,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", SOURCES)
def test_kernels(name: str, arch: str, tmp_path: Path) -> None:
    source = SOURCES[name]
    module, path = load(source, tmp_path, arch=arch)
    names: dict[str, Any] = {}
    exec(source, names)
    model, reference = module.ModelNew(), names["Model"]()
    model.load_state_dict(reference.state_dict())
    with emulated(arch=arch, device="H200", source_file=str(path)), torch.no_grad():
        for _ in range(3):
            (x,) = names["get_inputs"]()
            torch.testing.assert_close(model(x), reference(x), rtol=2e-3, atol=2e-3)
    assert plans_of(module) and None not in plans_of(module)


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a version, which has no plans."""
    return export(SCALE, tmp_path_factory.mktemp("version"), form="version")


def change_host(version: str, line: str, before: str = "") -> str:
    """The version with a line of its own in its host function, and lines before it."""
    for place, added in (("    shape = x.shape\n", f"    {line}\n"), ("compiled: dict = {}\n", before)):
        assert version.count(place) == 1
        version = version.replace(place, added + place)
    return version


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("SEEN.append(1)", "SEEN = []\n"),
        ("random.random()", "import random\n"),
        ("x.tolist()", ""),
        ("global LAST; LAST = 1", "LAST = 0\n"),
    ],
)
def test_no_plan_for_host_code_that_depends_on_more(version: str, line: str, before: str) -> None:
    assert "unrolled_elementwise = plan_calls(unrolled_elementwise)" in add_plans(version, "scale")
    changed = change_host(version, line, before)
    assert add_plans(changed, "scale") == changed


def test_no_plan_for_launches_of_another_kind(version: str) -> None:
    changed = version.replace(
        "    launch = compiled.get((function, key))\n", "    launch = compiled.get((key, function))\n"
    )
    assert changed != version and add_plans(changed, "scale") == changed


@pytest.mark.parametrize("line", ["if x.sum() > 0: x = -x", "x = x.add_(0)", "x = x + 0", "x = torch.sort(x).values"])
def test_no_plan_for_a_call_that_computes(version: str, line: str) -> None:
    module, path = load_text(add_plans(change_host(version, line), "scale"))
    names: dict[str, Any] = {"torch": torch}
    exec(f"def changed(x):\n    {line}\n    return x", names)
    with emulated(arch="sm_80", device="H200", source_file=str(path)), torch.no_grad():
        model, reference = make_model(module)
        for x in (torch.rand(8, 32), -torch.rand(8, 32), torch.randn(8, 32)):
            y = torch.randn(8, 32)
            torch.testing.assert_close(model(x.clone(), y), reference(names["changed"](x.clone()), y))
    assert plans_of(module) == [None]
