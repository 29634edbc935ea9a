"""Element type names -> the types of CuTe DSL and torch, and their sizes. Pure data: nothing is imported."""

from __future__ import annotations

CUTE = {
    "f16": "cutlass.Float16",
    "bf16": "cutlass.BFloat16",
    "f32": "cutlass.Float32",
    "f64": "cutlass.Float64",
    "tf32": "cutlass.TFloat32",
    "e4m3": "cutlass.Float8E4M3FN",
    "e5m2": "cutlass.Float8E5M2",
    "i8": "cutlass.Int8",
    "u8": "cutlass.Uint8",
    "i32": "cutlass.Int32",
    "i64": "cutlass.Int64",
    "bool": "cutlass.Boolean",
}
TORCH = {
    "f16": "torch.float16",
    "bf16": "torch.bfloat16",
    "f32": "torch.float32",
    "f64": "torch.float64",
    "tf32": "torch.float32",
    "e4m3": "torch.float8_e4m3fn",
    "e5m2": "torch.float8_e5m2",
    "i8": "torch.int8",
    "u8": "torch.uint8",
    "i32": "torch.int32",
    "i64": "torch.int64",
    "bool": "torch.bool",
}
BITS = {"f64": 64, "i64": 64, "f32": 32, "tf32": 32, "i32": 32, "f16": 16, "bf16": 16} | dict.fromkeys(
    ("e4m3", "e5m2", "i8", "u8", "bool"), 8
)
