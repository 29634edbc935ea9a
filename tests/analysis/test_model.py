"""The modelled time: each resource can be the limit, and more of anything never costs less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis import devices, model
from workbench.records import KernelBuild, Launch, LineCounts, Work

H200 = devices.find("H200")
SMALL = Work(case="shrunk", flops=1 << 16, least_bytes=1 << 19, dtype="float32", tensor_cores=False)
FULL = Work(case="full", flops=1 << 30, least_bytes=1 << 33, dtype="float32", tensor_cores=False)


def launch(
    *, threads: int = 256, ctas: int = 256, classes: tuple[tuple[str, int], ...] = (), shared: int = 0, **counts: int
) -> Launch:
    return Launch(
        kernel="k",
        grid=(ctas, 1, 1),
        block=(threads, 1, 1),
        dynamic_shared_bytes=shared,
        total=LineCounts(line=0, **counts),
        classes=classes,
    )


def elementwise(width: int) -> Launch:
    """2^16 floats read and written, `width` elements per thread."""
    threads = (1 << 16) // width
    return launch(
        ctas=threads // 256,
        instructions=threads * 16,
        flops=1 << 16,
        global_read_bytes=1 << 18,
        global_write_bytes=1 << 18,
        global_requests=threads // 16,
        global_sectors=1 << 14,
    )


def seconds(made: Launch, registers: int = 32, device: devices.Device = H200) -> tuple[float, str]:
    return model.modelled_time(
        [made], [KernelBuild(kernel="k", arch="sm_90a", registers=registers)], device, SMALL, FULL
    )


def test_scalar_accesses_wait_for_latency_and_wide_ones_for_dram() -> None:
    scalar, wide = seconds(elementwise(1)), seconds(elementwise(4))
    assert scalar[1] == "latency" and wide[1] == "DRAM"
    assert 1.3 < scalar[0] / wide[0] < 2.0  # measured on an H200: 1.56


def test_low_occupancy_slows_what_waits_for_latency() -> None:
    made = elementwise(1)
    crowded = launch(
        shared=100_000,
        ctas=256,
        **{
            name: getattr(made.total, name)
            for name in (
                "instructions",
                "flops",
                "global_read_bytes",
                "global_write_bytes",
                "global_requests",
                "global_sectors",
            )
        },
    )
    assert seconds(crowded)[0] > 2 * seconds(made)[0]


@pytest.mark.parametrize(
    ("counts", "classes", "name"),
    [
        ({"instructions": 10**9}, (), "issue"),
        ({"flops": 10**11}, (), "fp32"),
        ({"flops": 10**12}, ((model.TENSOR, 7),), "tensor cores"),
        ({"shared_wavefronts": 10**7}, (), "shared memory"),
        ({"global_requests": 10**8}, (), "L1"),
        ({"global_sectors": 10**7, "global_requests": 10**5}, (), "L2"),
        ({}, (), "DRAM"),
    ],
)
def test_every_resource_can_be_the_limit(
    counts: dict[str, int], classes: tuple[tuple[str, int], ...], name: str
) -> None:
    assert seconds(launch(classes=classes, **counts))[1] == name


FIELDS = ("instructions", "flops", "global_sectors", "shared_wavefronts")


@given(
    st.fixed_dictionaries({name: st.integers(0, 10**8) for name in FIELDS}),
    st.sampled_from(FIELDS),
    st.integers(1, 10**8),
)
def test_more_work_never_takes_less_time(counts: dict[str, int], name: str, more: int) -> None:
    made = launch(**counts)
    larger = replace(made, total=replace(made.total, **{name: counts[name] + more}))
    assert seconds(larger)[0] >= seconds(made)[0]


def test_the_time_is_never_under_the_least_traffic_and_grows_with_launches() -> None:
    one = seconds(launch())[0]
    assert one >= FULL.least_bytes / H200.bandwidth
    many, _ = model.modelled_time([launch()] * 3, [], H200, SMALL, FULL)
    assert many == pytest.approx(one + 2 * model.LAUNCH_S)


def test_tiles_and_tensor_cores_beat_the_naive_product_at_full_size() -> None:
    n = 128
    flops, small = (
        2 * n**3,
        Work(case="shrunk", flops=2 * n**3, least_bytes=12 * n * n, dtype="tfloat32", tensor_cores=True),
    )
    full = Work(case="full", flops=2 * 4096**3, least_bytes=12 * 4096**2, dtype="tfloat32", tensor_cores=True)
    warps = n * n // 32
    naive = launch(
        instructions=n**3 * 6,
        flops=flops,
        global_requests=warps * n * 2,
        global_sectors=warps * n * 5,
        global_read_bytes=n**3 * 8,
        global_write_bytes=4 * n * n,
    )
    tiled = launch(
        instructions=n**3 * 4,
        flops=flops,
        global_requests=4096,
        global_sectors=n**3 // 4 * 2 // 32,
        global_read_bytes=n**3 // 4,
        global_write_bytes=4 * n * n,
        shared_wavefronts=n**3 // 16,
    )
    tensor = replace(
        tiled,
        total=replace(tiled.total, instructions=n**3 // 8, shared_wavefronts=n**3 // 128),
        classes=((model.TENSOR, 99),),
    )
    times = [model.modelled_time([made], [], H200, small, full)[0] for made in (naive, tiled, tensor)]
    assert times[0] > times[1] > times[2] > full.flops / H200.tf32
