"""Machine code read from cubins: opcodes, branches and scoreboards as nvdisasm lists them."""

from __future__ import annotations

import re
import runpy
import struct
from pathlib import Path

import pytest
import torch

from workbench.codegen import compile_program
from workbench.emulator import emulated
from workbench.errors import Unavailable
from workbench.language import Binding
from workbench.records import CodeDepth
from workbench.structure.kernels.sass_graphs import sass_graph
from workbench.toolchain.binary import describe_module, nvdisasm
from workbench.toolchain.machine_code import BRANCH, LOAD_GLOBAL, decode, read_code

NOTHING = 7  # no scoreboard


def word(opcode: int, *, sets: int = NOTHING, waits: int = 0, offset: int = 0, arch: str = "sm_90a") -> bytes:
    """One instruction; a branch's offset is in bytes from its end."""
    low, high = opcode, sets << 46 | waits << 52
    if opcode == BRANCH:
        units = offset // 4 & (1 << 56) - 1
        if arch == "sm_90a":
            low, units = low | (units & 0xFF) << 16, units >> 8
        units &= (1 << 48) - 1
        low |= (units & (1 << 30) - 1) << 34
        high |= units >> 30
    return struct.pack("<QQ", low, high)


def load(sets: int) -> bytes:
    return word(LOAD_GLOBAL, sets=sets)


def use(*boards: int) -> bytes:
    return word(0x221, waits=sum(1 << board for board in boards))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_branches_go_to_their_targets(arch: str) -> None:
    text = word(0x221) * 3 + word(BRANCH, offset=-48, arch=arch) + word(BRANCH, offset=16, arch=arch) + word(0x221) * 2
    assert [one.target for one in decode(text, arch)] == [-1, -1, -1, 1, 6, -1, -1]


def test_loads_that_are_waited_for_one_by_one_make_as_many_trips() -> None:
    (alone,) = read_code((load(0) + use(0)) * 4, "sm_90a")
    assert alone == CodeDepth(instructions=8, loads=4, trips=4, local=0)
    (together,) = read_code(b"".join(map(load, range(4))) + b"".join(map(use, range(4))), "sm_90a")
    assert together.trips == 1


def test_a_loop_that_loads_for_its_next_turn_makes_one_trip_a_turn() -> None:
    body = use(0) + load(0) + word(0x221)
    loop = body + word(BRANCH, offset=-len(body) - 16)
    outside, inside = read_code(load(0) + loop + word(0x383) + word(0x983) + word(0x387), "sm_90a")
    assert (inside.instructions, inside.loads, inside.trips) == (4, 1, 1)
    assert (outside.loads, outside.trips, outside.local) == (1, 1, 2)


def test_other_architectures_have_no_facts() -> None:
    assert read_code(word(0x221), "sm_120") == ()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_cubin_reads_as_nvdisasm_lists_it(arch: str, tmp_path: Path) -> None:
    try:
        nvdisasm()
    except Unavailable:
        pytest.skip("nvdisasm is not installed")
    path = tmp_path / "candidate.py"
    binding = Binding(init_source="def __init__(self):\n    super().__init__()\n", forward_arguments=("x",))
    path.write_text(compile_program(f"reduce(x, op=sum, axis=last) .arch({arch}) .threads_per_row(32)", binding))
    with emulated(arch=arch, sample=1, source_file=str(path)) as emulation, torch.no_grad():
        runpy.run_path(str(path))["ModelNew"]()(torch.zeros(64, 4096))
    (module,) = emulation.modules
    (build,) = describe_module(module.ptx, module.cubin, arch, want_sass=True)
    listed = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9]+)", build.sass, flags=re.M)
    assert sum(one.instructions for one in build.code) == len(listed)
    graph = sass_graph(build.sass)
    kinds = graph.node_columns["kind"].tolist()
    assert 0 < graph.size <= len(listed) and {"LDG", "STG", "EXIT", "SHFL"} <= {kind.split(".")[0] for kind in kinds}
    used = {
        one for (one, _), kind in zip(graph.edges.tolist(), graph.edge_columns["kind"], strict=True) if kind == "use"
    }
    unused = [kinds[node] for node in range(graph.size) if kinds[node].startswith(("LDG", "SHFL")) and node not in used]
    assert not unused  # what is loaded or shuffled is read by a later instruction
    assert "flow" in graph.edge_columns["kind"]
    assert sum(one.loads for one in build.code) == listed.count("LDG") > 0
    assert len(build.code) > 1 and build.code[1].loads > build.code[1].trips > 0  # its loop loads ahead
