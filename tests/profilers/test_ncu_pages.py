"""ncu's pages read back: counters that an H200 gave, in several units.

Stalls joined to source lines through real SASS.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import METRICS, NAMES, RECORDED, raw_page, recorded, source_page

from workbench.emulator import emulated
from workbench.profilers import ncu, ncu_metrics, ncu_pages, sass
from workbench.records import Candidate, Facts, Job, KernelBuild, KernelMetrics, Problem, Work

SOURCE = """import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def twice(x: cute.Tensor, y: cute.Tensor) -> None:
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * 128 + thread
    value = x[at]
    y[at] = cute.math.exp(value) + value


@cute.jit
def run(x: cute.Tensor, y: cute.Tensor) -> None:
    twice(x, y).launch(grid=[2, 1, 1], block=[128, 1, 1])
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> KernelBuild:
    import importlib.util

    import cutlass.cute as cute
    import torch
    from cutlass.cute.runtime import from_dlpack

    from workbench.toolchain import describe_module

    path = tmp_path_factory.mktemp("twice") / sass.CANDIDATE
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("twice_candidate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with emulated(arch="sm_90a", device="H200") as emulation:
        x = torch.ones(256)
        cute.compile(module.run, from_dlpack(x), from_dlpack(x.clone()))(from_dlpack(x), from_dlpack(torch.empty(256)))
    (made,) = describe_module(emulation.modules[0].ptx, emulation.modules[0].cubin, "sm_90a", want_sass=True)
    return made


def test_recorded_counters_come_back_to_the_digit() -> None:
    launches = recorded()
    found = ncu_pages.kernels(raw_page(launches))
    assert len(found) == len(launches) == 19 and RECORDED.exists()
    for made, given in zip(found, launches, strict=True):
        assert made.kernel == given["kernel"] and made.block == (256, 1, 1) and made.grid == (65536, 1, 1)
        assert (
            made.duration_s == pytest.approx(given["ns"] * 1e-9)
            and made.dram_read_bytes == given["dram_read_bytes"]
            and made.dram_write_bytes == given["dram_write_bytes"]
        )
        assert made.l2_bytes == 32 * (given["l2_read_sectors"] + given["l2_write_sectors"]) and made.l1_bytes == 32 * (
            given["global_load_sectors"] + given["global_store_sectors"]
        )
        assert (
            made.shared_wavefronts == given["shared_load_wavefronts"] + given["shared_store_wavefronts"]
            and made.warp_instructions == given["warp_instructions"]
        )
        if given["tensor_instructions"]:
            assert made.flops is None  # tensor cores ran, and this recording does not say what they did
        else:
            assert made.flops == given["fadd"] + given["fmul"] + 2 * given["ffma"]


def test_units_and_separators_do_not_matter() -> None:
    launch = recorded()[3]
    base = ncu_pages.kernels(raw_page([launch]))[0]
    other = ncu_pages.kernels(
        raw_page(
            [launch], units={"duration": ("us", 1e-3), "dram_read": ("Mbyte", 1e-6), "dram_write": ("Gbyte", 1e-9)}
        )
    )[0]
    assert (
        other.duration_s == pytest.approx(base.duration_s)
        and other.dram_read_bytes == pytest.approx(base.dram_read_bytes)
        and other.dram_write_bytes == pytest.approx(base.dram_write_bytes)
    )
    old = ncu_pages.kernels(raw_page([launch], units={"duration": ("msecond", 1e-6)}))[0]
    assert old.duration_s == pytest.approx(base.duration_s)


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        ("%", 0.01),
        ("ns", 1e-9),
        ("usecond", 1e-6),
        ("Kbyte", 1e3),
        ("Gbyte/s", 1e9),
        ("byte/second", 1.0),
        ("Ghz", 1e9),
        ("hz", 1.0),
        ("cycle/nsecond", 1e9),
        ("inst", 1.0),
        ("register/thread", 1.0),
        ("", 1.0),
        ("byte/block", 1.0),
        ("Kbyte/block", 1e3),
    ],
)
def test_scales(unit: str, factor: float) -> None:
    assert ncu_pages.scale(unit) == pytest.approx(factor)


def test_shares_pipes_stalls_and_limits() -> None:
    (made,) = ncu_pages.kernels(raw_page(recorded()[:1]))
    assert (
        made.achieved_occupancy == pytest.approx(0.9317)
        and made.theoretical_occupancy == 1.0
        and made.l2_hit_rate == pytest.approx(0.5012)
    )
    assert (
        made.pipes[0] == ("alu", pytest.approx(0.2241))
        and dict(made.pipes)["tensor"] == 0.0
        and "xu" not in dict(made.pipes)
    )
    assert [name for name, _ in made.stalls] == ["long_scoreboard", "lg_throttle", "wait"]
    assert (
        made.limiter == "threads"
        and dict(made.limits) == {"CTAs": 32, "registers": 16, "shared memory": 24, "threads": 8}
        and made.registers == 30
    )
    assert made.dynamic_shared_bytes == 1024 and made.sm_clock_hz == pytest.approx(1.754386e9)
    said = ncu.summary((made,))
    assert (
        "warps wait most for long_scoreboard (90% of the waiting)" in said
        and "93% occupancy, limited by threads" in said
    )


def test_a_launch_without_any_counter_is_all_unknown() -> None:
    text = (
        '"ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum"\n"","","","","ns"\n'
        '"0","k","(1, 1, 1)","(2, 1, 1)","n/a"\n'
    )
    (made,) = ncu_pages.kernels(text)
    assert (
        made.duration_s is None
        and made.flops is None
        and made.l2_bytes is None
        and made.stalls == ()
        and made.limiter == ""
    )
    assert ncu_pages.kernels("==ERROR== ERR_NVGPUCTRPERM\n") == ()


def test_stalls_land_on_the_lines_that_the_compiler_names(build: KernelBuild) -> None:
    listing = sass.listings((build,))[build.kernel]
    lines = sass.source_lines((build,), SOURCE)
    known = {item.line: dict(item.instructions) for item in lines}
    load, store = (
        next(n for n, item in enumerate(listing) if item.opcode == "LDG"),
        next(n for n, item in enumerate(listing) if item.opcode == "STG"),
    )
    special = next(n for n, item in enumerate(listing) if item.opcode == "MUFU")
    assert listing[load].line == 11 and listing[store].line == 12 and known[11]["lsu"] == 1 and known[12]["xu"] >= 1
    page = source_page(
        build.kernel,
        listing,
        {special: {"stall_long_sb": 1200, "stall_wait": 30, "stall_selected": 500}, load: {"stall_lg": 7}},
    )
    made, placed = ncu_pages.samples_by_line(page, {build.kernel: listing}, lines)
    by_number = {item.line: item for item in made}
    assert (
        placed == 1.0
        and dict(by_number[listing[special].line].stalls) == {"long_scoreboard": 1200.0, "wait": 30.0}
        and dict(by_number[11].stalls) == {"lg_throttle": 7.0}
    )
    assert by_number[12].stall_unit == "samples" and by_number[11].executed == 1024.0 * sum(
        item.line == 11 for item in listing
    )


def test_a_source_page_without_a_name_or_with_another_kernel(build: KernelBuild) -> None:
    listing = sass.listings((build,))[build.kernel]
    lines = sass.source_lines((build,), SOURCE)
    numbered = source_page("", listing, {3: {"stall_wait": 4}}, numbered=True)
    assert ncu_pages.samples_by_line(numbered, {build.kernel: listing}, lines)[1] == 1.0  # found by its opcodes
    some = listing[:1] + listing[3:9]  # a page that leaves instructions out is joined by their addresses
    made, placed = ncu_pages.samples_by_line(
        source_page(build.kernel, some, {3: {"stall_wait": 4}}), {build.kernel: listing}, lines
    )
    assert placed == 1.0 and [item.line for item in made if item.stalls] == [some[3].line]
    other = [item._replace(opcode="NOP", text="NOP") for item in listing]
    assert (
        ncu_pages.samples_by_line(source_page("other", other, {3: {"stall_wait": 4}}), {build.kernel: listing}, lines)[
            1
        ]
        == 0.0
    )
    assert ncu_pages.samples_by_line("", {build.kernel: listing}, lines) == (lines, 0.0)


def test_every_metric_is_asked_for_once() -> None:
    asked = ncu.command(("speed", "source"))
    metrics = asked[asked.index("--metrics") + 1].split(",")
    assert (
        len(set(metrics)) == len(metrics)
        and set(METRICS.values()) <= set(metrics)
        and set(NAMES.values()) <= set(METRICS)
    )
    assert [asked[n + 1] for n, word in enumerate(asked) if word == "--section"] == ["SpeedOfLight", "SourceCounters"]


def test_an_unknown_section_is_named() -> None:
    from workbench.errors import UserError

    with pytest.raises(UserError, match=r"no section is called 'heat'.*stalls"):
        ncu.select_sections(("heat",))
    assert ncu.select_sections(()) == tuple(ncu_metrics.SECTIONS) and ncu.select_sections(("speed",)) == ("speed",)


def test_where_there_is_no_gpu_each_says_so_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.executors.gpu import presence
    from workbench.profilers.energy import EnergyProfiler
    from workbench.profilers.timeline import TimelineProfiler

    monkeypatch.setattr(presence, "list_gpus", lambda: "no NVIDIA driver was found")
    for profiler in (ncu.NcuProfiler(), TimelineProfiler(), EnergyProfiler()):
        assert str(profiler.why_not()).startswith("no NVIDIA driver was found; profile on a machine")


@pytest.mark.parametrize(("busy", "on_tensor_cores"), [(0.46, True), (0.0001, False)])
def test_flops_that_ncu_does_not_count_are_the_problems_where_the_tensor_pipe_was_busy(
    busy: float, on_tensor_cores: bool
) -> None:
    work = Work(case="full", flops=1000, least_bytes=10, dtype="bfloat16", tensor_cores=True)
    facts = Facts(
        problem_hash="", kind="", init_source="", forward_arguments=(), graph=(), parameters=(), cases=(), work=(work,)
    )
    job = Job(problem=Problem(name="p", source=""), facts=facts, candidate=Candidate(source=""))
    (found,), notes = ncu.add_flops((KernelMetrics(kernel="k", pipes=(("tensor", busy),)),), job)
    assert found.flops == 1000 and len(notes) == 1
    assert found.tensor_flops == ((("bfloat16", 1000.0),) if on_tensor_cores else ())
