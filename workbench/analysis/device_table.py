"""The table of GPUs: dense peak rates and limits from the data sheets."""

from __future__ import annotations

from dataclasses import dataclass

TERA = 1e12
GIGA = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Dense peak rates in FLOP/s (no sparsity; int8 in operations/s), bandwidth in bytes/s, sizes in bytes."""

    name: str
    arch: str
    sms: int
    clock_hz: float  # boost
    bandwidth: float
    copy_bandwidth: float | None = None  # measured: device-to-device copy, bytes read plus written
    l2_bandwidth: float | None = None  # measured: bytes read by all SMs
    shared_bandwidth: float | None = None  # measured, likewise
    memory_bytes: int
    l2_bytes: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    registers_per_sm: int = 65_536
    threads_per_sm: int = 2048
    blocks_per_sm: int = 32
    fp64: float
    fp32: float
    tf32: float
    fp16: float  # and bf16, on tensor cores
    fp8: float
    int8: float
    half_vector: float  # fp16 and bf16 off the tensor cores
    measured: tuple[tuple[str, float], ...] = ()  # dtype -> FLOP/s of the best matrix product on random normal data
    measured_on: str = ""  # date and software of the measurement
    source: str = "data sheet"  # of the rates; "computed" from clocks, bus width and SMs (device_attributes.py)

    def peak(self, dtype: str, *, tensor_cores: bool) -> float:
        """FLOP/s by the data sheet for a torch dtype name ("tfloat32" for the TF32 policy); without `tensor_cores`, the
        rate of the vector pipes.
        """
        if not tensor_cores:
            return {"float64": self.fp64, "float16": self.half_vector, "bfloat16": self.half_vector}.get(
                dtype, self.fp32
            )
        known = {
            "float64": self.fp64,
            "float32": self.fp32,
            "tfloat32": self.tf32,
            "float16": self.fp16,
            "bfloat16": self.fp16,
            "int8": self.int8,
        }
        return known.get(dtype, self.fp8)

    def highest_peak(self, dtype: str, *, tensor_cores: bool) -> float:
        """The highest FLOP/s that a correct kernel could reach: float32 products may be three TF32 products on tensor
        cores.
        """
        peak = self.peak(dtype, tensor_cores=tensor_cores)
        return max(peak, self.tf32 / 3) if tensor_cores and dtype == "float32" else peak

    def attainable_rate(self, dtype: str, *, tensor_cores: bool) -> float | None:
        """Measured FLOP/s of a matrix product in this dtype, at most the data sheet's rate; None where it was not
        measured, or without `tensor_cores`.
        """
        found = dict(self.measured).get(dtype) if tensor_cores else None
        return None if found is None else min(found, self.peak(dtype, tensor_cores=True))

    @property
    def l2_partitions(self) -> int:
        """Partitions of L2, each beside its SMs: two on data-center GPUs since the A100 (its white paper)."""
        return 2 if self.arch in ("sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103", "sm_103a") else 1

    @property
    def rates(self) -> str:
        """The source of the rates that a bound on this device uses."""
        return f"{self.source}; attainable: measured {self.measured_on[:10]}" if self.measured_on else self.source


# Sources: the NVIDIA A100 80GB SXM, H100 (SXM, PCIe, NVL), H200 SXM, GH200, L4, L40S and A10 data sheets, those of HGX
# B200 and B300 (int8, fp64 and the clock of the B300, and the H20 as a whole, are from secondary sources: inferred),
# and the tables of the Ampere GA102, Ada and Blackwell architecture papers for the GeForce RTX 3090, 4090 and 5090;
# fp16 off the tensor cores from the architecture papers (A100 4x fp32, Hopper 2x, Ada 1x; Blackwell is taken as
# Hopper: inferred). Shared memory, registers and block limits: CUDA programming guide, table of compute capabilities.
# Tensor rates are dense, with fp32 accumulation on GeForce. fp64 is the tensor rate where there is one, because it is
# the higher one.
DEVICES = (
    Device(
        name="A100",
        arch="sm_80",
        sms=108,
        clock_hz=1.41e9,
        bandwidth=2.039 * TERA,
        memory_bytes=80 * GIGA,
        l2_bytes=40 << 20,
        shared_bytes_per_sm=167_936,
        shared_bytes_per_block=166_912,
        fp64=19.5 * TERA,
        fp32=19.5 * TERA,
        tf32=156 * TERA,
        fp16=312 * TERA,
        fp8=312 * TERA,
        int8=624 * TERA,
        half_vector=78 * TERA,
    ),
    Device(
        name="H100",
        arch="sm_90a",
        sms=132,
        clock_hz=1.98e9,
        bandwidth=3.35 * TERA,
        memory_bytes=80 * GIGA,
        l2_bytes=50 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=67 * TERA,
        fp32=67 * TERA,
        tf32=494.7 * TERA,
        fp16=989.4 * TERA,
        fp8=1978.9 * TERA,
        int8=1978.9 * TERA,
        half_vector=133.8 * TERA,
    ),
    Device(
        name="H200",
        arch="sm_90a",
        sms=132,
        clock_hz=1.98e9,
        bandwidth=4.8 * TERA,
        memory_bytes=141 * GIGA,
        l2_bytes=60 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=67 * TERA,
        fp32=67 * TERA,
        tf32=494.7 * TERA,
        fp16=989.4 * TERA,
        fp8=1978.9 * TERA,
        int8=1978.9 * TERA,
        half_vector=133.8 * TERA,
    ),
    Device(
        name="B200",
        arch="sm_100a",
        sms=148,
        clock_hz=1.965e9,
        bandwidth=8.0 * TERA,
        memory_bytes=180 * GIGA,
        l2_bytes=126 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=40 * TERA,
        fp32=80 * TERA,
        tf32=1125 * TERA,
        fp16=2250 * TERA,
        fp8=4500 * TERA,
        int8=4500 * TERA,
        half_vector=160 * TERA,
    ),
    Device(
        name="RTX4090",
        arch="sm_89",
        sms=128,
        clock_hz=2.52e9,
        bandwidth=1.008 * TERA,
        memory_bytes=24 * GIGA,
        l2_bytes=72 << 20,
        shared_bytes_per_sm=102_400,
        shared_bytes_per_block=101_376,
        threads_per_sm=1536,
        blocks_per_sm=24,
        fp64=1.29 * TERA,
        fp32=82.6 * TERA,
        tf32=82.6 * TERA,
        fp16=165.2 * TERA,
        fp8=330.3 * TERA,
        int8=660.6 * TERA,
        half_vector=82.6 * TERA,
    ),
    Device(
        name="H100-PCIe",
        arch="sm_90a",
        sms=114,
        clock_hz=1.755e9,
        bandwidth=2.039 * TERA,
        memory_bytes=80 * GIGA,
        l2_bytes=50 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=51.2 * TERA,
        fp32=51.2 * TERA,
        tf32=378 * TERA,
        fp16=756 * TERA,
        fp8=1513 * TERA,
        int8=1513 * TERA,
        half_vector=102.4 * TERA,
    ),
    Device(
        name="H100-NVL",
        arch="sm_90a",
        sms=132,
        clock_hz=1.785e9,
        bandwidth=3.9 * TERA,
        memory_bytes=94 * GIGA,
        l2_bytes=50 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=60 * TERA,
        fp32=60 * TERA,
        tf32=417.5 * TERA,
        fp16=835.5 * TERA,
        fp8=1670.5 * TERA,
        int8=1670.5 * TERA,
        half_vector=120 * TERA,
    ),
    Device(
        name="H20",
        arch="sm_90a",
        sms=78,
        clock_hz=1.98e9,
        bandwidth=4.0 * TERA,
        memory_bytes=96 * GIGA,
        l2_bytes=60 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=1 * TERA,
        fp32=44 * TERA,
        tf32=74 * TERA,
        fp16=148 * TERA,
        fp8=296 * TERA,
        int8=296 * TERA,
        half_vector=79 * TERA,
    ),
    Device(
        name="GH200",
        arch="sm_90a",
        sms=132,
        clock_hz=1.98e9,
        bandwidth=4.0 * TERA,
        memory_bytes=96 * GIGA,
        l2_bytes=60 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=67 * TERA,
        fp32=67 * TERA,
        tf32=494.7 * TERA,
        fp16=989.4 * TERA,
        fp8=1978.9 * TERA,
        int8=1978.9 * TERA,
        half_vector=133.8 * TERA,
    ),
    Device(
        name="B300",
        arch="sm_103a",
        sms=148,
        clock_hz=1.92e9,
        bandwidth=8.0 * TERA,
        memory_bytes=288 * GIGA,
        l2_bytes=126 << 20,
        shared_bytes_per_sm=233_472,
        shared_bytes_per_block=232_448,
        fp64=1.25 * TERA,
        fp32=75 * TERA,
        tf32=1125 * TERA,
        fp16=2250 * TERA,
        fp8=4500 * TERA,
        int8=150 * TERA,
        half_vector=150 * TERA,
    ),
    Device(
        name="L4",
        arch="sm_89",
        sms=58,
        clock_hz=2.04e9,
        bandwidth=0.3 * TERA,
        memory_bytes=24 * GIGA,
        l2_bytes=48 << 20,
        shared_bytes_per_sm=102_400,
        shared_bytes_per_block=101_376,
        threads_per_sm=1536,
        blocks_per_sm=24,
        fp64=0.473 * TERA,
        fp32=30.3 * TERA,
        tf32=60 * TERA,
        fp16=121 * TERA,
        fp8=242.5 * TERA,
        int8=242.5 * TERA,
        half_vector=30.3 * TERA,
    ),
    Device(
        name="L40S",
        arch="sm_89",
        sms=142,
        clock_hz=2.52e9,
        bandwidth=0.864 * TERA,
        memory_bytes=48 * GIGA,
        l2_bytes=96 << 20,
        shared_bytes_per_sm=102_400,
        shared_bytes_per_block=101_376,
        threads_per_sm=1536,
        blocks_per_sm=24,
        fp64=1.43 * TERA,
        fp32=91.6 * TERA,
        tf32=183 * TERA,
        fp16=362 * TERA,
        fp8=733 * TERA,
        int8=733 * TERA,
        half_vector=91.6 * TERA,
    ),
    Device(
        name="A10",
        arch="sm_86",
        sms=72,
        clock_hz=1.695e9,
        bandwidth=0.6 * TERA,
        memory_bytes=24 * GIGA,
        l2_bytes=6 << 20,
        shared_bytes_per_sm=102_400,
        shared_bytes_per_block=101_376,
        threads_per_sm=1536,
        blocks_per_sm=16,
        fp64=0.976 * TERA,
        fp32=31.2 * TERA,
        tf32=62.5 * TERA,
        fp16=125 * TERA,
        fp8=125 * TERA,
        int8=250 * TERA,
        half_vector=31.2 * TERA,
    ),
    Device(
        name="RTX3090",
        arch="sm_86",
        sms=82,
        clock_hz=1.695e9,
        bandwidth=0.936 * TERA,
        memory_bytes=24 * GIGA,
        l2_bytes=6 << 20,
        shared_bytes_per_sm=102_400,
        shared_bytes_per_block=101_376,
        threads_per_sm=1536,
        blocks_per_sm=16,
        fp64=0.556 * TERA,
        fp32=35.6 * TERA,
        tf32=35.6 * TERA,
        fp16=71 * TERA,
        fp8=71 * TERA,
        int8=284 * TERA,
        half_vector=35.6 * TERA,
    ),
    Device(
        name="RTX5090",
        arch="sm_120a",
        sms=170,
        clock_hz=2.407e9,
        bandwidth=1.792 * TERA,
        memory_bytes=32 * GIGA,
        l2_bytes=96 << 20,
        shared_bytes_per_sm=102_400,
        shared_bytes_per_block=101_376,
        threads_per_sm=1536,
        blocks_per_sm=24,
        fp64=1.64 * TERA,
        fp32=104.8 * TERA,
        tf32=104.8 * TERA,
        fp16=209.5 * TERA,
        fp8=419 * TERA,
        int8=838 * TERA,
        half_vector=104.8 * TERA,
    ),
)
