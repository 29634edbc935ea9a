"""A modelled time from counted work. The model is simple: it ranks versions, and is not exact.

For each launch at the emulated case, with its counters summed over all CTAs and scaled by s (below):

    issue         thread-instructions / 32 * s / (SMs * 4 warp schedulers * clock)
    fp32          FLOPs * s / fp32 peak                          or, on tensor cores, / peak of the dtype
    shared memory wavefronts * s / (SMs * clock)                 one wavefront per SM and cycle
    L1            max(requests, sectors / 4) * s / (SMs * clock) one request or 128 bytes per SM and cycle
    L2            32 B * sectors * s / (1.25 * bandwidth)
    DRAM          least bytes of the target / attainable bandwidth
    latency       min(bytes read * s, 4 least bytes) / (bytes in flight / 790 ns)
                  Little's law; bytes that are read again more often than that hit in a cache

    bytes in flight = SMs * resident warps * 32 * bytes per thread and request * loads in flight per thread
    loads in flight = loads per thread, at most 4; 4 for a kernel that reads over 2.5 times what it writes, because it
                      loops over its loads

T = max of these + 3 us per launch. Compute terms (issue, fp32, tensor cores) are divided by min(1, resident warps per
SM / 16): fewer warps do not hide the latency of the pipes (inferred).

s is the ratio of the reference's FLOPs between the target and the emulated case. This assumes that the kernel does the
same work per FLOP at both. It overstates kernels with much work per CTA outside their loop (a reduction tree at the end
of each row), because rows are short in the emulated case. In a matrix product, the counters are first divided by the
share of work that tiles did outside the emulated matrices (`padding_ratio`). The model still does not show which of two
tile sizes shares its operands better at full size. It sends every requested sector to L2, so it also overstates sectors
that hit in L1. Attainable bandwidth is the measured copy rate where there is one, else 0.88 of the data sheet (the
H200's ratio).

Sources of the constants: 790 ns, 1.25 and 4 loads were fitted to the planner's element-wise and row kernels measured on
one H200 (tests/bench/results/h200_loop_part1.json, 32 kernels); 3 us, 16 warps and 4 least bytes are inferred. The
error (modelled over measured, geometric mean of the factor either way):

    fitted      part1, 32 row, middle-axis and ReLU kernels     1.28, at worst 3.6
    not fitted  part2, 24 kernels                               1.80, at worst 8
                of which tanh-GELU 1.03; naive and 32x32-tiled square products 1.2 to 1.4; 4x4 and 8x8 outputs per
                thread 1.4 to 2.3 too fast; matrix-vector in tiles 3 to 8 too fast (the grid at full size does not fill
                the device, which is not modelled); batched products in tiles wider than the emulated matrices 3 to 8
                too slow (before `padding_ratio`)

So do not trust the order of tile sizes on small emulated matrices (profile --by sampled looks at the full size). The
model was not validated on other devices.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis.devices import Device
from workbench.analysis.occupancy import WARP, Occupancy, occupancy
from workbench.records import Facts, KernelBuild, Launch, LineCounts, Work, record

SCHEDULERS = 4
SECTOR_BYTES = 32
SECTORS_PER_CYCLE = 4
L2_FACTOR = 1.25
LATENCY_S = 790e-9
LOADS_IN_FLIGHT = 4
LOOP_RATIO = 2.5
PASSES = 4
ATTAINABLE = 0.88
LAUNCH_S = 3e-6
LATENCY_WARPS = 16
WIDE = 512  # elements: tiles are at most half of that
TENSOR = "tensor core"
COMPUTE = ("issue", "fp32", "tensor cores")


@record
class Scale:
    """Factors from the emulated case to the target: ratio of work, least bytes per launch at the target, and the dtype
    of products on tensor cores.
    """

    work: float
    target_bytes: float
    tensor_dtype: str


def padding_ratio(facts: Facts, launches: Sequence[Launch], emulated: Work) -> float:
    """How many times the reference's FLOPs a matrix product counted because tiles stick out of the small matrices.

    1 for other kinds, and where the result has fewer than WIDE rows or columns at full size: its tiles stick out there
    too.
    """
    full = next((case for case in facts.cases if case.name == "full"), None)
    if (
        facts.kind != "matmul"
        or full is None
        or not emulated.flops
        or min(full.outputs[0].shape[-2:], default=0) < WIDE
        or len(full.outputs[0].shape) < 2
    ):
        return 1.0
    return max(sum(launch.total.flops for launch in launches) / emulated.flops, 1.0)


def scale_of(emulated: Work, target: Work, launches: int, padded: float = 1.0) -> Scale:
    """The factors that carry counters of one case to another. The launches share the least bytes evenly. `padded` is
    `padding_ratio`'s result.
    """
    ratio = target.flops / emulated.flops if emulated.flops else target.least_bytes / max(emulated.least_bytes, 1)
    return Scale(
        work=ratio / padded,
        target_bytes=target.least_bytes / max(launches, 1),
        tensor_dtype="tfloat32" if target.dtype == "float32" else target.dtype,
    )


def launch_occupancy(launch: Launch, build: KernelBuild | None, device: Device) -> Occupancy:
    """Occupancy of a launch, static shared memory included."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    shared = launch.dynamic_shared_bytes + (build.static_shared_bytes if build else 0)
    return occupancy(device, threads=threads, registers=build.registers if build else None, shared_bytes=shared)


def access_bytes(total: LineCounts) -> float:
    """Mean bytes per thread of one global-memory request."""
    return (total.global_read_bytes + total.global_write_bytes) / max(total.global_requests, 1) / WARP


def _loads_in_flight(launch: Launch) -> float:
    total = launch.total
    if total.global_read_bytes > LOOP_RATIO * total.global_write_bytes:
        return LOADS_IN_FLIGHT
    threads = launch.block[0] * launch.block[1] * launch.block[2] * launch.grid[0] * launch.grid[1] * launch.grid[2]
    loads = total.global_read_bytes / max(access_bytes(total), 1.0) / max(threads, 1)
    return min(max(loads, 1.0), LOADS_IN_FLIGHT)


def resource_seconds(launch: Launch, build: KernelBuild | None, device: Device, scale: Scale) -> dict[str, float]:
    """Seconds per resource of one launch, scaled to the target case."""
    total, s = launch.total, scale.work
    rate = device.sms * device.clock_hz
    on_tensor = dict(launch.classes).get(TENSOR, 0) > 0
    peak = device.peak(scale.tensor_dtype, tensor_cores=True) if on_tensor else device.fp32
    warps = max(launch_occupancy(launch, build, device).warps, 1)
    flight = device.sms * warps * WARP * max(access_bytes(total), 1.0) * _loads_in_flight(launch)
    parts = {
        "issue": total.instructions / WARP * s / (SCHEDULERS * rate),
        "tensor cores" if on_tensor else "fp32": total.flops * s / peak,
        "shared memory": total.shared_wavefronts * s / rate,
        "L1": max(total.global_requests, total.global_sectors / SECTORS_PER_CYCLE) * s / rate,
        "L2": SECTOR_BYTES * total.global_sectors * s / (L2_FACTOR * device.bandwidth),
        "DRAM": scale.target_bytes / (device.copy_bandwidth or ATTAINABLE * device.bandwidth),
        "latency": min(total.global_read_bytes * s, PASSES * scale.target_bytes) * LATENCY_S / flight,
    }
    hidden = min(1.0, warps / LATENCY_WARPS)
    return {name: seconds / hidden if name in COMPUTE else seconds for name, seconds in parts.items()}


def modelled_time(
    launches: Sequence[Launch],
    builds: Sequence[KernelBuild],
    device: Device,
    emulated: Work,
    target: Work,
    padded: float = 1.0,
) -> tuple[float, str]:
    """Modelled seconds at `target` of launches counted at `emulated`, and the resource that limits the longest one."""
    by_name = {build.kernel: build for build in builds}
    scale = scale_of(emulated, target, len(launches), padded)
    seconds, worst = 0.0, ("", 0.0)
    for launch in launches:
        parts = resource_seconds(launch, by_name.get(launch.kernel), device, scale)
        name = max(parts, key=lambda key: parts[key])
        seconds += parts[name] + LAUNCH_S
        if parts[name] > worst[1]:
            worst = (name, parts[name])
    return seconds, worst[0]
