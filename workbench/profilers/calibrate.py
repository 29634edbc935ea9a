"""Measures the ceilings of this machine's GPU with our own code.

They are: copies, reads and writes of memory, L2, shared memory, matrix products by dtype on random normal data, and the
host time of a launch.

Each one is warmed up, then timed SAMPLES times by events around enough calls for LEAST_S. The result is the median with
its bootstrap 95 % interval. Clocks stay as they are. Matrix products are timed call by call with a rest before each, as
the calls of a verdict are: under lasting load the power limit lowers the clocks, so such a ceiling would be too low.
If two programs (torch's library and our Hopper GEMM) or two sizes compete, the faster median is the ceiling, and the
rate names the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from workbench.analysis.calibration import Calibration, Rate
from workbench.analysis.statistics import median_interval
from workbench.errors import Unavailable, UserError
from workbench.executors.gpu.presence import device_at_hand, why_no_gpu
from workbench.executors.gpu.telemetry import driver_version
from workbench.executors.gpu.turns import take_turn
from workbench.protocols import PLAIN, RunContext

if TYPE_CHECKING:
    import torch

SAMPLES, LEAST_S, WARM_S = 12, 0.03, 0.3
REST_S = 0.05  # pause before each timed product
COPY_BYTES = 2 << 30
L2_FRACTIONS = (0.25, 0.4, 0.6)  # parts of L2 that are read; data may be in L2 twice, once in each half
MATRIX = 8192
HOST_CALLS, HOST_SAMPLES = 500, 12
DTYPES = ("float16", "bfloat16", "tfloat32", "float32", "float8_e4m3fn", "int8", "float64")
OUR_TILES = {
    "float16": ((128, 256, 64), (256, 128, 64)),
    "bfloat16": ((128, 256, 64), (256, 128, 64)),
    "float8_e4m3fn": ((128, 256, 128), (256, 128, 128)),
}

Step = tuple[str, Callable[[], Rate | None]]


def require_gpu() -> None:
    """Raise `Unavailable` if there is no GPU to calibrate."""
    missing = why_no_gpu()
    if missing:
        raise Unavailable(
            f"there is nothing to calibrate here: {missing}; "
            "ceilings of known devices are shipped (cutegen calibrate --show)"
        )
    import torch

    if not torch.cuda.is_available():
        raise Unavailable("there is nothing to calibrate here: this torch is built without CUDA, or finds no device")


def calibrate(
    progress: Callable[[str, int, int], None], *, only: Sequence[str] = (), context: RunContext = PLAIN
) -> Calibration:
    """Measure all ceilings, or those whose names begin with one of `only`, when it is our turn on the GPU.

    A ceiling that the device or torch does not support is left out, and a note names it.
    """
    require_gpu()
    steps = [step for step in _steps() if not only or step[0].startswith(tuple(only))]
    if not steps:
        raise UserError(
            f"nothing to measure is called {', '.join(only)}; there are: {', '.join(name for name, _ in _steps())}"
        )
    with take_turn(context):
        rates, notes = _measure(steps, progress)
    progress("done", len(steps), len(steps))
    return _describe(tuple(rates), tuple(notes))


def _measure(steps: Sequence[Step], progress: Callable[[str, int, int], None]) -> tuple[list[Rate], list[str]]:
    rates, notes = [], []
    for number, (name, measure) in enumerate(steps):
        progress(name, number, len(steps))
        try:
            rate = measure()
        except (RuntimeError, ValueError, NotImplementedError, AttributeError, TypeError) as error:
            notes.append(f"{name}: {next(iter(str(error).splitlines()), type(error).__name__)[:200]}")
            continue
        if rate is not None:
            rates.append(rate)
    return rates, notes


def _describe(rates: tuple[Rate, ...], notes: tuple[str, ...]) -> Calibration:
    import torch

    gpu, here = torch.cuda.get_device_name(0), device_at_hand()
    software = (("torch", torch.__version__), ("nvidia-cutlass-dsl", version("nvidia-cutlass-dsl")))
    return Calibration(
        device=here.name if here is not None else gpu,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        gpu=gpu,
        driver=driver_version(),
        versions=software,
        rates=rates,
        notes=notes,
    )


def _steps() -> list[Step]:
    out: list[Step] = [("copy", _copy), ("read", _read), ("write", _write), ("l2", _l2), ("shared", _shared_memory)]
    out += [(f"matmul {dtype}", lambda dtype=dtype: _matmul(dtype)) for dtype in DTYPES]  # type: ignore[misc]
    return [*out, ("launch torch", _launch_torch), ("launch cute", _launch_cute)]


def time_calls(call: Callable[[], object], *, rested: bool = False) -> list[float]:
    """Time a call SAMPLES times by events, in seconds per call.

    A batch takes at least LEAST_S. With `rested`, each sample is one call after a pause of REST_S.
    """
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def batch(count: int) -> float:
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / count

    call()
    torch.cuda.synchronize()
    once = batch(3)
    if rested:
        return [_time_rested(batch) for _ in range(SAMPLES)]
    count = max(1, int(LEAST_S / max(once, 1e-6)))
    until = time.monotonic() + WARM_S
    while time.monotonic() < until:
        batch(count)
    return [batch(count) for _ in range(SAMPLES)]


def _time_rested(batch: Callable[[int], float]) -> float:
    time.sleep(REST_S)
    return batch(1)


def make_rate(name: str, amount: float, samples: Sequence[float], unit: str, by: str) -> Rate:
    """`amount` per second, from seconds of one call."""
    median, low, high = median_interval([amount / taken for taken in samples])
    return Rate(name=name, value=median, low=low, high=high, unit=unit, by=by)


def find_fastest(found: Sequence[Rate]) -> Rate | None:
    """The rate with the largest value; None if there is none."""
    return max(found, key=lambda rate: rate.value, default=None)


def _copy() -> Rate:
    import torch

    free, _ = torch.cuda.mem_get_info()
    size = min(COPY_BYTES, free // 4)
    source = torch.randint(0, 127, (size,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return make_rate(
        "copy", 2 * size, time_calls(lambda: target.copy_(source)), "B/s", f"torch copy_ of {size >> 20} MiB"
    )


def _read() -> Rate:
    import torch

    source = torch.randn(min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4) // 4, device="cuda")
    return make_rate(
        "read", 4 * source.numel(), time_calls(source.amax), "B/s", f"torch amax of {source.numel() >> 18} MiB"
    )


def _write() -> Rate:
    import torch

    target = torch.empty(min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4) // 4, device="cuda")
    return make_rate(
        "write",
        4 * target.numel(),
        time_calls(lambda: target.fill_(1.5)),
        "B/s",
        f"torch fill_ of {target.numel() >> 18} MiB",
    )


def _l2() -> Rate | None:
    import torch

    from workbench.examples import bandwidth

    properties = torch.cuda.get_device_properties(0)
    ctas, passes, found = 2 * properties.multi_processor_count, 64, []
    for fraction in L2_FRACTIONS:
        chunks = max(1, int(fraction * properties.L2_cache_size) // (bandwidth.L2.chunk * 4))
        x = torch.randn(chunks * bandwidth.L2.chunk, device="cuda")
        taken = time_calls(lambda x=x: bandwidth.read_l2(x, passes, ctas))  # type: ignore[misc]
        found.append(
            make_rate(
                "l2",
                bandwidth.L2.count_bytes(ctas, passes),
                taken,
                "B/s",
                f"a read-only kernel over {x.numel() >> 18} MiB",
            )
        )
    return find_fastest(found)


def _shared_memory() -> Rate:
    import torch

    from workbench.examples import bandwidth

    ctas, passes = 4 * torch.cuda.get_device_properties(0).multi_processor_count, 2000
    x = torch.randn(bandwidth.SHARED.elements, device="cuda")
    return make_rate(
        "shared",
        bandwidth.SHARED.count_bytes(ctas, passes),
        time_calls(lambda: bandwidth.read_shared(x, passes, ctas)),
        "B/s",
        "a kernel that reads 16 bytes a lane, without conflicts",
    )


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    import torch

    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _matmul(dtype: str) -> Rate | None:
    """The faster of torch's library and, if it supports the dtype, our Hopper GEMM. Both get K-major operands."""
    import torch

    size = MATRIX if dtype not in ("float32", "float64") else MATRIX // 2
    torch.manual_seed(0)
    name = f"matmul {dtype}"
    kind = torch.float32 if dtype == "tfloat32" else getattr(torch, dtype)
    a, b = _operand(size, kind), _operand(size, kind)
    work = 2.0 * size**3
    unit = "op/s" if dtype == "int8" else "FLOP/s"
    with _tf32(dtype == "tfloat32"):
        call, said = _library(a, b)
        found = [make_rate(name, work, time_calls(call, rested=True), unit, f"{said}, {size}")]
    if dtype in OUR_TILES and torch.cuda.get_device_capability(0) == (9, 0):
        from workbench.examples import gemm_hopper

        d = torch.empty(size, size, dtype=torch.bfloat16 if dtype.startswith("float8") else kind, device="cuda")
        for tile in OUR_TILES[dtype]:
            samples = time_calls(partial(gemm_hopper.gemm, a, b, d, tile=tile), rested=True)
            found.append(make_rate(name, work, samples, unit, f"gemm_hopper {'x'.join(map(str, tile))}, {size}"))
    return find_fastest(found)


def _operand(size: int, kind: torch.dtype) -> torch.Tensor:
    import torch

    if kind == torch.int8:
        return torch.randint(-128, 128, (size, size), device="cuda", dtype=torch.int8)
    made = torch.randn(size, size, device="cuda", dtype=torch.float64 if kind == torch.float64 else torch.float32)
    return made.to(kind)


def _library(a: torch.Tensor, b: torch.Tensor) -> tuple[Callable[[], object], str]:
    """(torch's product of a (m, k) and b (n, k), the name of its function)."""
    import torch

    if a.dtype == torch.float8_e4m3fn:
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(
            a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        ), "torch._scaled_mm"
    if a.dtype == torch.int8:
        return lambda: torch._int_mm(a, b.t()), "torch._int_mm"
    return lambda: torch.matmul(a, b.t()), "torch.matmul"


def host_seconds(call: Callable[[], object]) -> list[float]:
    """Host seconds of one call while the device lags behind, HOST_SAMPLES times."""
    import torch

    for _ in range(20):
        call()
    samples = []
    for _ in range(HOST_SAMPLES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            call()
        samples.append((time.perf_counter() - start) / HOST_CALLS)
    torch.cuda.synchronize()
    return samples


def _seconds_rate(name: str, samples: Sequence[float], by: str) -> Rate:
    median, low, high = median_interval(samples)
    return Rate(name=name, value=median, low=low, high=high, unit="s", by=by)


def _launch_torch() -> Rate:
    import torch

    x = torch.zeros(1, device="cuda")
    return _seconds_rate("launch torch", host_seconds(lambda: x.add_(1)), "x.add_(1) of one element")


def _launch_cute() -> Rate:
    from workbench.examples import bandwidth

    samples = host_seconds(bandwidth.compile_empty_launch())
    return _seconds_rate("launch cute", samples, "a compiled function with two tensors and three integers")
