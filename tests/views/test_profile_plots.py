"""Every plot of a profile: well-formed SVG, plotly that is JSON, HTML that closes what it opens, words that say where
the numbers are from."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_static_forms import Balance

from workbench.analysis import devices
from workbench.analysis.time_model import fitted_model
from workbench.errors import UserError
from workbench.profilers import counters
from workbench.profilers.ncu import PROBLEM_FLOPS
from workbench.records import (
    Candidate,
    CtaTimeline,
    Energy,
    KernelBuild,
    KernelMetrics,
    Launch,
    LineCounts,
    LineProfile,
    Profile,
    Proposal,
    Span,
    Version,
    Work,
)
from workbench.views.figures.axes import round_steps
from workbench.views.plots import profile
from workbench.views.plots.level_roofline import Point, draw_levels
from workbench.views.text.profile_report import profile_report

KERNEL = KernelMetrics(
    kernel="kernel_cutlass_softmax_kernel_tensorptrf32gmemo",
    grid=(8, 1, 1),
    block=(128, 1, 1),
    duration_s=5e-4,
    flops=1e9,
    dram_read_bytes=2e8,
    dram_write_bytes=2e8,
    l2_bytes=8e8,
    l2_hit_rate=0.5,
    shared_bytes=1e8,
    shared_wavefronts=8e5,
    shared_bank_conflicts=10.0,
    achieved_occupancy=0.5,
    theoretical_occupancy=0.625,
    limiter="registers",
    limits=(("registers", 5.0), ("threads", 8.0)),
    registers=90,
    pipes=(("fma", 0.31), ("alu", 0.2)),
    stalls=(("long_scoreboard", 12.0), ("wait", 3.0)),
)
LINES = (
    LineProfile(
        line=3,
        text="v = x[row, <column>]",
        instructions=(("lsu", 4), ("alu", 2)),
        executed=100.0,
        stalls=(("long_scoreboard", 80.0), ("wait", 5.0)),
    ),
    LineProfile(line=9, text="total += v", instructions=(("fma", 7),), executed=50.0, stalls=(("wait", 15.0),)),
)
SPANS = tuple(
    Span(
        name=f"kernel_cutlass_k{n % 2}_tensorptr",
        start_s=n * 1e-4,
        duration_s=6e-5,
        stream=7 + n % 2,
        grid=(4, 1, 1),
        block=(32, 1, 1),
    )
    for n in range(6)
)
ENERGY = Energy(
    joules_per_call=0.3,
    low_joules=0.29,
    high_joules=0.32,
    uncorrected_joules=0.4,
    average_w=500.0,
    idle_w=100.0,
    duty=0.95,
    calls=100,
    window_s=4.8,
    seconds_per_call=0.04,
    samples=((0.0, 0.0), (1.0, 100.0), (2.0, 600.0)),
    marks=(("idle", 0.1), ("pause", 0.9), ("window 1", 1.0)),
)


def full() -> Profile:
    from workbench.profilers.timeline import make_timeline

    return Profile(
        launches=(),
        builds=(),
        occupancy=(),
        limits=(),
        findings=(),
        summary="fast & <good>",
        provenance="measured",
        by="ncu+timeline+energy",
        device="H200",
        case="full",
        kernels=(KERNEL,),
        lines=LINES,
        timeline=make_timeline(SPANS, 3),
        energy=ENERGY,
        notes=("no <b>",),
        protections=("Landlock",),
    )


@pytest.mark.parametrize("name", profile.PLOTS)
def test_each_plot_is_drawn_described_and_labelled(name: str) -> None:
    shown = profile.plot(full(), name)
    root = ET.fromstring(shown.svg)
    assert (
        root.find("{http://www.w3.org/2000/svg}title") is not None
        and root.find("{http://www.w3.org/2000/svg}desc") is not None
    )
    Balance(shown.html)
    assert (
        "measured" in shown.text and "modelled" not in shown.text and "NaN" not in shown.svg and "nan" not in shown.svg
    )
    assert shown.plotly is not None and json.loads(json.dumps(shown.plotly, allow_nan=False))["data"]
    width = float(root.attrib["viewBox"].split()[2])
    for node in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert (
            float(node.attrib["x"]) >= 0
            and float(node.attrib["x"]) + float(node.attrib["width"]) <= width
            and float(node.attrib["width"]) >= 0
        )


def test_the_roofline_has_a_point_for_each_level() -> None:
    shown = profile.plot(full(), "roofline")
    rows = {
        line.split("  ")[1].strip() if "  " in line else "": line
        for line in shown.text.splitlines()
        if line.startswith("softmax_kernel")
    }
    assert len(rows) == 3 and "2.5" in rows["DRAM"] and "1.25" in rows["L2"] and "10" in rows["shared memory"]
    assert "19%" in rows["DRAM"]  # 2 TFLOP/s at 2.5 FLOP/B, under 10.6 TFLOP/s that a copy's 4.23 TB/s allow there


fitted_model()  # loading it takes longer than an example may
PACED = CtaTimeline(ctas=4, cycles=1000.0, issue=100.0, touched=1, wgmma=True)
BUSY = Launch(
    kernel="k",
    grid=(1320, 1, 1),
    block=(128, 1, 1),
    total=LineCounts(line=0, flops=10**14),
    tensor_flops=(("bfloat16", 10**14),),
    paced=PACED,
)


def modelled(launch: Launch, dtype: str) -> Profile:
    work = Work(case="full", flops=launch.total.flops, least_bytes=1 << 30, dtype=dtype, tensor_cores=True)
    kernel = counters._metrics(
        launch, KernelBuild(kernel="k", arch="sm_90a", registers=32), devices.find("H200"), work, 1.0
    )
    return Profile(
        launches=(),
        builds=(),
        occupancy=(),
        limits=(),
        findings=(),
        summary="",
        provenance="modelled",
        by="sampled",
        device="H200",
        case="full",
        kernels=(kernel,),
    )


@given(
    st.integers(10**6, 10**15),
    st.integers(0, 10**9),
    st.integers(0, 10**11),
    st.integers(0, 10**7),
    st.booleans(),
    st.sampled_from(["float16", "bfloat16", "tfloat32", "float32"]),
)
@example(10**15, 0, 10**9, 10**3, True, "bfloat16")
def test_no_modelled_time_is_beyond_the_roofs_that_it_is_drawn_under(
    flops: int, sectors: int, wavefronts: int, missed: int, tensor: bool, dtype: str
) -> None:
    """Modelled times and roofs are of one model, or a product in bf16 would reach 133 % of the rate that torch was seen
    to reach."""
    total = LineCounts(line=0, flops=flops, global_sectors=sectors, shared_wavefronts=wavefronts)
    launch = dataclasses.replace(
        BUSY,
        total=total,
        tensor_flops=((dtype, flops),) if tensor else (),
        paced=dataclasses.replace(PACED, l1_missed=missed, l1_sectors=missed),
    )
    shown = profile.roofline(modelled(launch, dtype))
    assert shown is not None
    shares = [
        int(line.rsplit("  ", 1)[1].removesuffix("%")) for line in shown.text.splitlines() if line.startswith("k  ")
    ]
    assert shares and max(shares) <= 100, shown.text


def test_what_limits_a_modelled_launch_is_its_roof() -> None:
    shown = profile.roofline(modelled(BUSY, "bfloat16"))
    assert (
        shown is not None and "100%" in shown.text and "989.4 TFLOP/s (data sheet)" in shown.svg
    )  # ten CTAs on each SM, which do nothing else
    measured = profile.plot(full(), "roofline")
    assert "742 TFLOP/s (measured)" in measured.svg and "989" not in measured.svg


def test_a_roofline_says_whose_flops_its_rates_are_of() -> None:
    counted, measured = modelled(BUSY, "bfloat16"), full()
    assumed = dataclasses.replace(measured, notes=(*measured.notes, PROBLEM_FLOPS))
    for found, whose in ((counted, "kernel's"), (measured, "kernel's"), (assumed, "problem's")):
        shown = profile.plot(found, "roofline")
        assert f"rate, {whose} FLOPs" in shown.text and f"{whose} FLOP/s" in html.unescape(shown.svg)


@pytest.mark.parametrize("intensity", [0.003, 0.6, 40.0, 5e4])
def test_no_roof_strikes_the_name_of_the_highest_peak(intensity: float) -> None:
    roofs, peaks = [("DRAM", 4.4e12, "modelled")], [("bf16 tensor cores", 989e12, "data sheet")]
    shown = draw_levels("title", [Point("k", "DRAM", intensity, 1e12)], roofs, peaks)
    low, high = shown.plotly["layout"]["xaxis"]["range"]
    ridge = (math.log10(989e12 / 4.4e12) - low) / (high - low)
    drawn = ET.fromstring(shown.svg)
    name = next(one for one in drawn.iter() if (one.text or "").startswith("bf16 tensor cores") and one.get("x"))
    right = float(name.get("x", 0))
    assert name.get("text-anchor") == "end"
    assert right - 6 * len(name.text or "") > ridge * (right - 60) + 60  # pixels; the axis begins about at 60


def test_the_heat_is_where_the_samples_are() -> None:
    shown = profile.plot(full(), "source")
    assert (
        "85%" in shown.text
        and "long scoreboard · 4 lsu, 2 alu" in shown.text
        and "stall samples (measured)" in shown.text
    )


def test_the_table_has_pipes_and_stalls_beside_each_line() -> None:
    shown = profile.line_table(full())
    assert shown is not None
    first = next(line for line in shown.text.splitlines() if line.startswith("3 "))
    assert (
        "v = x[row, <column>]" in first
        and "4 lsu, 2 alu" in first
        and "long scoreboard 80, wait 5" in first
        and "(measured)" in shown.text
    )
    Balance(shown.html)


def test_modelled_and_counted_are_named_so() -> None:
    modelled = dataclasses.replace(KERNEL, provenance="counted", duration_s=None, modelled_s=1e-3, stalls=())
    lines = tuple(
        dataclasses.replace(line, stalls=(("waiting", 40.0),), stall_unit="modelled cycles") for line in LINES
    )
    found = dataclasses.replace(
        full(), kernels=(modelled,), lines=lines, timeline=None, energy=None, by="counters", case="shrunk"
    )
    assert profile.available_plots(found) == ("roofline", "pipes", "occupancy", "source")
    for name in ("roofline", "pipes", "source"):
        assert "modelled" in profile.plot(found, name).text and "measured by ncu" not in profile.plot(found, name).text
    with pytest.raises(UserError, match="nothing for the plot 'energy'; it has: roofline, pipes"):
        profile.plot(found, "energy")
    with pytest.raises(UserError, match="no plot is called 'heat'"):
        profile.plot(found, "heat")


def test_a_whole_profile_says_what_is_missing_and_how_it_was_confined() -> None:
    version = Version(
        number=2,
        parent=None,
        proposal=Proposal(candidate=Candidate(source="x"), title="t", reason="", by="b"),
        source_hash="",
        path="",
    )
    shown = profile_report(version, full())
    Balance(shown.html)
    assert (
        "note: no <b>" in shown.text
        and "no &lt;b&gt;" in shown.html
        and "protections while it was profiled: Landlock" in shown.text
        and shown.html.count("<svg") == 7
    )
    assert "http://" not in shown.html.replace("http://www.w3.org/2000/svg", "")
    empty = dataclasses.replace(full(), kernels=(), lines=(), timeline=None, energy=None)
    assert "<svg" not in profile_report(version, empty).html and "fast & <good>" in profile_report(version, empty).text


@given(st.floats(1e-9, 1e9), st.integers(2, 8))
def test_ticks_are_round_and_inside(limit: float, count: int) -> None:
    found = round_steps(0.0, limit, count)
    assert found[0] == 0 and found[-1] <= limit * (1 + 1e-9) and 1 <= len(found) <= count + 1
    if len(found) > 1:
        assert round(found[1] / 10 ** math.floor(math.log10(found[1]) + 1e-9), 6) in (1, 2, 5, 10)
