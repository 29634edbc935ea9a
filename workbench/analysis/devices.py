"""GPUs by name: peak rates and limits, each from the maker's data sheet unless a comment says measured."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.errors import UserError

TERA = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Dense peak rates in FLOP/s (no sparsity), bandwidth in bytes/s, sizes in bytes."""

    name: str
    arch: str
    sms: int
    clock_hz: float  # boost
    bandwidth: float
    copy_bandwidth: float | None  # measured: device-to-device copy, bytes read plus written
    l2_bytes: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    registers_per_sm: int = 65_536
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    fp64: float
    fp32: float
    tf32: float
    fp16: float
    fp8: float
    rates: str

    def peak(self, dtype: str, *, tensor_cores: bool) -> float:
        """FLOP/s for a torch dtype name ("tfloat32" for the TF32 policy); plain fp32 for anything not on tensor cores."""
        if not tensor_cores:
            return self.fp64 if dtype == "float64" else self.fp32
        return {"float64": self.fp64, "float32": self.fp32, "tfloat32": self.tf32, "float16": self.fp16, "bfloat16": self.fp16}.get(dtype, self.fp8)


_SHEET = "data sheet"
# Sources: NVIDIA A100 80GB SXM, H100 SXM, H200 SXM, B200 (HGX) and GeForce RTX 4090 data sheets; shared memory, registers and
# block limits from the CUDA programming guide's table of compute capabilities. Tensor rates are dense.
_DEVICES = (
    Device(name="A100", arch="sm_80", sms=108, clock_hz=1.41e9, bandwidth=2.039 * TERA, copy_bandwidth=None, l2_bytes=40 << 20, shared_bytes_per_sm=167_936, shared_bytes_per_block=166_912,
           fp64=19.5 * TERA, fp32=19.5 * TERA, tf32=156 * TERA, fp16=312 * TERA, fp8=312 * TERA, rates=_SHEET),
    Device(name="H100", arch="sm_90a", sms=132, clock_hz=1.98e9, bandwidth=3.35 * TERA, copy_bandwidth=None, l2_bytes=50 << 20, shared_bytes_per_sm=233_472, shared_bytes_per_block=232_448,
           fp64=67 * TERA, fp32=67 * TERA, tf32=494.7 * TERA, fp16=989.4 * TERA, fp8=1978.9 * TERA, rates=_SHEET),
    # copy_bandwidth measured 2026-11-20 on one H200, driver 580.159, torch 2.11.0+cu130
    Device(name="H200", arch="sm_90a", sms=132, clock_hz=1.98e9, bandwidth=4.8 * TERA, copy_bandwidth=4.23 * TERA, l2_bytes=60 << 20, shared_bytes_per_sm=233_472, shared_bytes_per_block=232_448,
           fp64=67 * TERA, fp32=67 * TERA, tf32=494.7 * TERA, fp16=989.4 * TERA, fp8=1978.9 * TERA, rates=_SHEET),
    Device(name="B200", arch="sm_100a", sms=148, clock_hz=1.965e9, bandwidth=8.0 * TERA, copy_bandwidth=None, l2_bytes=126 << 20, shared_bytes_per_sm=233_472, shared_bytes_per_block=232_448,
           fp64=40 * TERA, fp32=80 * TERA, tf32=1125 * TERA, fp16=2250 * TERA, fp8=4500 * TERA, rates=_SHEET),
    Device(name="RTX4090", arch="sm_89", sms=128, clock_hz=2.52e9, bandwidth=1.008 * TERA, copy_bandwidth=None, l2_bytes=72 << 20, shared_bytes_per_sm=102_400, shared_bytes_per_block=101_376,
           threads_per_sm=1536, blocks_per_sm=24, fp64=1.29 * TERA, fp32=82.6 * TERA, tf32=82.6 * TERA, fp16=165.2 * TERA, fp8=330.3 * TERA, rates=_SHEET),
)  # fmt: skip


def names() -> tuple[str, ...]:
    """All device names."""
    return tuple(device.name for device in _DEVICES)


def find(name: str) -> Device:
    """The device called `name` (spaces and case do not matter); raises `UserError` with the names there are."""
    wanted = name.replace(" ", "").lower()
    for device in _DEVICES:
        if device.name.lower() == wanted or device.name.lower() in wanted:
            return device
    raise UserError(f"no device is called {name!r}; there are: {', '.join(names())}")
