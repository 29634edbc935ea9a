"""Library kernels that no operation of the language has yet: each can be written out as one file, which gives what the
library gives; their examples are in `workbench.examples`."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ruff.__main__ import find_ruff_bin

from workbench.codegen.launch import Launch
from workbench.codegen.specialise.builder import Builder
from workbench.codegen.specialise.file import write_module
from workbench.emulator import emulated
from workbench.examples import gemm_hopper
from workbench.kernels.bandwidth.config import L2Config, SharedConfig
from workbench.kernels.conv.channels_last.config import ChannelsLastConfig
from workbench.kernels.gemm.config import SplitKConfig
from workbench.kernels.histogram.config import HistogramConfig
from workbench.kernels.norm.config import NormConfig
from workbench.kernels.reduce_all.config import ReduceAllConfig
from workbench.kernels.top_k.config import TopKConfig
from workbench.kernels.transpose.config import TransposeConfig

Host = Callable[..., object]
Case = tuple[str, object, tuple[str, ...], tuple[str, ...], Callable[[Host], object], Callable[[], object]]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def integers(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """Small integers on the device, whose sums are exact."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype).cuda()


def images(*shape: int) -> torch.Tensor:
    return integers(*shape).contiguous(memory_format=torch.channels_last)


def normalised() -> tuple[torch.Tensor, torch.Tensor]:
    total = integers(3, 40, dtype=torch.float32) + integers(4, 30, dtype=torch.float32).view(3, 40)
    return torch.nn.functional.layer_norm(total, (40,), ones(40), ones(40), 1e-5), total


def ones(count: int) -> torch.Tensor:
    return torch.ones(count, device="cuda")


def grouped(host: Host) -> torch.Tensor:
    d = torch.empty(24, 16, dtype=torch.float16, device="cuda")
    host([(integers(24, 32), integers(16, 32), d)], 2)
    return d


def top() -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.sort(integers(2, 70), dim=-1, descending=True, stable=True)
    return values[:, :5], indices[:, :5]


GROUPED = gemm_hopper.configure(torch.float16, torch.float16, tile=(64, 64, 64), cluster=(1, 1), swizzle=1)
L2, SHARED = L2Config(threads=128), SharedConfig(threads=128)
CASES: dict[str, Case] = {
    "top_k": ("top_k.host:top_k", TopKConfig(), ("x",), (), lambda host: host(integers(2, 70), 5), top),
    "histogram": (
        *("histogram.host:histogram", HistogramConfig(), ("x",), ()),
        lambda host: host(integers(400, dtype=torch.int32), 3),
        lambda: torch.bincount(integers(400).long().clamp(-1) + 1, minlength=4)[1:].int(),
    ),
    "transpose": (
        *("transpose.host:transpose", TransposeConfig(), ("x",), ()),
        lambda host: host(integers(34, 18)),
        lambda: integers(34, 18).t(),
    ),
    "transpose by TMA": (
        *("transpose.host:transpose", TransposeConfig(by_tma=True), ("x",), ()),
        lambda host: host(integers(32, 72)),
        lambda: integers(32, 72).t(),
    ),
    "reduce_all": (
        *("reduce_all.host:reduce_all", ReduceAllConfig(op="max"), ("x",), ()),
        lambda host: host(integers(3001)),
        lambda: integers(3001).max(),
    ),
    "norm": (
        *("norm.host:norm", NormConfig(is_layer=True, adds_residual=True)),
        ("x", "residual", "weight", "bias"),
        ("residual", "bias"),
        lambda host: host(
            integers(3, 40, dtype=torch.float32),
            integers(4, 30, dtype=torch.float32).view(3, 40),
            ones(40),
            ones(40),
            1e-5,
        ),
        normalised,
    ),
    "split_k": (
        *("gemm.split_k_host:split_k_product", SplitKConfig(element="f16", tile_m=64, tile_n=64), ("a", "b"), ()),
        lambda host: host(integers(20, 300), integers(300, 18), 2),
        lambda: integers(20, 300) @ integers(300, 18),
    ),
    "conv2d": (
        *("conv.channels_last.host:conv2d", ChannelsLastConfig(element="f16", tile_m=64, tile_n=64), ("x", "w"), ()),
        lambda host: host(images(1, 8, 5, 6), images(10, 8, 3, 3), 1, 1, 1),
        lambda: torch.nn.functional.conv2d(images(1, 8, 5, 6).float(), images(10, 8, 3, 3).float(), padding=1).half(),
    ),
    "grouped": (
        *("gemm.sm90.grouped_problems.host:grouped_product", GROUPED, (), ()),
        grouped,
        lambda: integers(24, 32) @ integers(16, 32).t(),
    ),
    "read_l2": (
        *("bandwidth.host:read_l2", L2, (), ()),
        lambda host: host(integers(L2.chunk, dtype=torch.float32), 1, 1),
        lambda: integers(L2.chunk, dtype=torch.float32).view(2, 8, 128, 4).sum((0, 1, 3)),
    ),
    "read_shared": (
        *("bandwidth.host:read_shared", SHARED, (), ()),
        lambda host: host(integers(SHARED.elements, dtype=torch.float32), 1, 1),
        lambda: integers(SHARED.elements, dtype=torch.float32).view(8, 8, 32, 4)[:4].sum((1, 3)).view(-1),
    ),
}


def write(entry: str, config: object, roles: tuple[str, ...], many: tuple[str, ...]) -> tuple[str, str]:
    """(text of the file, name of its host function); operands have the names of the parameters."""
    names = (("names", {name: name for name in roles}),) if roles else ()
    launch = Launch(
        entry=f"workbench.kernels.{entry}",
        static=(("cfg", config), *names),
        operands=tuple(role for role in roles if role not in many),
        many=tuple((name, (name,)) for name in many),
    )
    builder = Builder()
    name = builder.add_launch(launch)
    return write_module(builder, title=entry, imports=["import torch"], constants="", model=""), name


def load(text: str, place: Path, name: str) -> Host:
    """A function of a written file; CuTe DSL reads the source of what it compiles from there."""
    place.write_text(text)
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Host = getattr(module, name)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("case", CASES)
def test_a_kernel_is_written_as_one_file_that_runs(case: str, tmp_path: Path) -> None:
    entry, config, roles, many, run, expected = CASES[case]
    text, name = write(entry, config, roles, many)
    place = tmp_path / "kernel.py"
    host = load(text, place, name)
    assert "workbench" not in text and "Static" not in text and "const_expr(cfg" not in text
    assert subprocess.run([find_ruff_bin(), "check", "--isolated", "-q", place], check=False).returncode == 0
    with emulated(arch="sm_90a", device="H200", cuda=True) as emulation:
        torch.testing.assert_close(run(host), expected())
    assert not [finding for finding in emulation.findings if finding.severity == "error"]
