"""One small kernel for each instruction wrapper of `cutlass.cute.arch`, `cute.math` and `cute.nvgpu`: what the
conformance list is collected from.

A probe is a plain function of an `Env` (operands of every type loaded from memory, so that nothing folds away; a place
to keep results) that is traced inside one kernel. `LEFT_OUT` says why a public name has none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.utils
from cutlass import (
    BFloat16,
    Boolean,
    Float16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
)
from cutlass._mlir import ir
from cutlass.cute import arch
from cutlass.cute import math as cm
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.cute.typing import Float8E4M3FN, Float8E5M2, TFloat32

TYPES: dict[str, Any] = {
    "i8": Int8,
    "u8": Uint8,
    "i16": Int16,
    "u16": Uint16,
    "i32": Int32,
    "u32": Uint32,
    "i64": Int64,
    "u64": Uint64,
    "f16": Float16,
    "bf16": BFloat16,
    "f32": Float32,
    "f64": Float64,
}
SIGNED, UNSIGNED, FLOATS = ("i32", "i64"), ("u32", "u64"), ("f16", "bf16", "f32", "f64")
Probe = Callable[["Env"], Any]


class Env:
    """What a probe may use: `env("f32", 0)` is an operand, `env.pointer("f32")` global memory, `env.smem("f32")` shared
    memory, `env.bar` an mbarrier.
    """

    def __init__(self, tensors: dict[str, Any], lane: Any) -> None:
        self.tensors, self.lane = tensors, lane
        self._shared: Any = None

    def __call__(self, kind: str, n: int = 0) -> Any:
        return self.tensors[kind][self.lane + 32 * n]

    def pointer(self, kind: str) -> Any:
        """A thread's own address in global memory."""
        return self.tensors[kind].iterator + self.lane

    def shared(self) -> Any:
        """16 KB of shared memory, as 64-bit words."""
        if self._shared is None:
            self._shared = arch.alloc_smem(Int64, 2048, 1024)
        return self._shared

    def smem(self, kind: str) -> Any:
        """A thread's own address in shared memory."""
        return cute.recast_ptr(self.shared(), dtype=TYPES[kind]) + self.lane

    def wide_smem(self) -> Any:
        """A thread's own 16 bytes in shared memory."""
        return cute.make_ptr(
            Int32,
            (cute.recast_ptr(self.shared(), dtype=Int32) + self.lane * 4).toint(),
            cute.AddressSpace.smem,
            assumed_align=16,
        )

    @property
    def bar(self) -> Any:
        """An mbarrier."""
        return self.shared() + 1024

    def keep(self, value: Any) -> None:
        """Store a result, so that what made it is not removed."""
        if isinstance(value, (tuple, list)):
            for item in value:
                self.keep(item)
        elif isinstance(value, Boolean):
            self.keep(value.to(Int32))
        elif isinstance(value, cutlass.Numeric):
            for name, kind in TYPES.items():
                if type(value) is kind:
                    self.tensors[name][self.lane + 96] = value
                    return
            self.keep(value.to(Float32 if isinstance(value, cutlass.Float) else Int32))
        elif isinstance(value, cute.TensorSSA):
            for n in range(cute.size(value.shape)):
                self.keep(value[n])
        elif isinstance(value, ir.Value) and not isinstance(value.type, ir.VectorType):
            self.keep(
                cutlass.as_numeric(value) if hasattr(cutlass, "as_numeric") else arch.nvvm_wrappers.as_numeric(value)
            )


def each(kinds: tuple[str, ...], function: Callable[[Env, str], Any]) -> dict[str, Probe]:
    """The same probe for several types."""
    return {kind: (lambda e, kind=kind: function(e, kind)) for kind in kinds}


def one(function: Probe) -> dict[str, Probe]:
    """A probe with no variants."""
    return {"": function}


def _void(*calls: Callable[[], Any]) -> None:
    for call in calls:
        call()


WORDS = SIGNED + UNSIGNED
SEMANTICS = {
    "": {},
    "relaxed.gpu": {"sem": "relaxed", "scope": "gpu"},
    "acq_rel.gpu": {"sem": "acq_rel", "scope": "gpu"},
    "acq_rel.sys": {"sem": "acq_rel", "scope": "sys"},
    "release.cta": {"sem": "release", "scope": "cta"},
}


def _atomics(function: Callable[..., Any], kinds: tuple[str, ...]) -> dict[str, Probe]:
    def probe(place: str, kind: str, options: dict[str, Any]) -> Probe:
        return lambda e: function(e.pointer(kind) if place == "global" else e.smem(kind), e(kind), **options)

    return {
        f"{place} {kind} {name}": probe(place, kind, options)
        for kind in kinds
        for place in ("global", "shared")
        for name, options in SEMANTICS.items()
    }


def _special(*names: str) -> dict[str, dict[str, Probe]]:
    return {name: one(lambda e, name=name: getattr(arch, name)()) for name in names}


def _carry(first: Callable[..., Any], then: Callable[..., Any], count: int) -> Callable[[Env, str], Any]:
    return lambda e, k: (first(*[e(k, n % 3) for n in range(count)]), then(*[e(k, (n + 1) % 3) for n in range(count)]))


def _pair(e: Env, kind: str, n: int = 0) -> Any:
    return e(kind, n), e(kind, n + 1)


def _mbarrier(call: Callable[[Env], Any]) -> dict[str, Probe]:
    def probe(e: Env) -> Any:
        arch.mbarrier_init(e.bar, 1)
        return call(e)

    return one(probe)


def _elect(e: Env) -> None:
    with arch.elect_one():
        arch.store(e.pointer("i32"), e("i32"))


ARCH: dict[str, dict[str, Probe]] = {
    "elect_one": one(_elect),
    "make_warp_uniform": one(lambda e: arch.make_warp_uniform(e("i32"))),
    "mbarrier_init": _mbarrier(lambda e: None),
    "mbarrier_init_fence": one(lambda e: arch.mbarrier_init_fence()),
    "mbarrier_arrive_and_expect_tx": {
        "own": lambda e: arch.mbarrier_arrive_and_expect_tx(e.bar, 128),
        "peer": lambda e: arch.mbarrier_arrive_and_expect_tx(e.bar, 128, e("i32")),
    },
    "mbarrier_expect_tx": {
        "own": lambda e: arch.mbarrier_expect_tx(e.bar, 128),
        "peer": lambda e: arch.mbarrier_expect_tx(e.bar, 128, e("i32")),
    },
    "mbarrier_wait": _mbarrier(lambda e: arch.mbarrier_wait(e.bar, e("i32"))),
    "mbarrier_try_wait": _mbarrier(lambda e: arch.mbarrier_try_wait(e.bar, e("i32"))),
    "mbarrier_conditional_try_wait": one(lambda e: arch.mbarrier_conditional_try_wait(e("i32") > 0, e.bar, 0)),
    "mbarrier_test_wait": one(lambda e: arch.mbarrier_test_wait(e.bar, 0)),
    "mbarrier_arrive": {
        "own": lambda e: arch.mbarrier_arrive(e.bar),
        "peer": lambda e: arch.mbarrier_arrive(e.bar, e("i32")),
        "count": lambda e: arch.mbarrier_arrive(e.bar, arrive_count=2),
    },
    "cp_async_mbarrier_arrive_noinc": one(lambda e: arch.cp_async_mbarrier_arrive_noinc(e.bar)),
    **_special(
        "lane_idx",
        "warp_idx",
        "physical_warp_id",
        "thread_idx",
        "block_dim",
        "block_idx",
        "grid_dim",
        "cluster_idx",
        "cluster_dim",
        "cluster_size",
        "block_in_cluster_idx",
        "block_in_cluster_dim",
        "block_idx_in_cluster",
        "dynamic_smem_size",
        "smid",
        "nsmid",
        "total_smem_size",
        "aggr_smem_size",
        "gridid",
        "nwarpid",
        "warpsize",
        "globaltimer",
        "globaltimer_lo",
        "clock",
        "clock64",
        "activemask",
        "lanemask_lt",
        "lanemask_le",
        "lanemask_eq",
        "lanemask_ge",
        "lanemask_gt",
        "get_dyn_smem_size",
    ),
    **{
        name: each(("i32", "f32", "i64", "f16"), lambda e, k, name=name: getattr(arch, name)(e(k), 1))
        for name in ("shuffle_sync", "shuffle_sync_up", "shuffle_sync_down", "shuffle_sync_bfly")
    },
    "barrier": {
        "all": lambda e: arch.barrier(),
        "named": lambda e: arch.barrier(barrier_id=1, number_of_threads=32),
        "register": lambda e: arch.barrier(barrier_id=e("i32"), number_of_threads=32),
    },
    "barrier_arrive": {
        "aligned": lambda e: arch.barrier_arrive(barrier_id=1, number_of_threads=64),
        "unaligned": lambda e: arch.barrier_arrive(barrier_id=1, number_of_threads=64, aligned=False),
    },
    "sync_threads": one(lambda e: arch.sync_threads()),
    "sync_warp": one(lambda e: arch.sync_warp()),
    **{
        name: one(lambda e, name=name: getattr(arch, name)())
        for name in (
            "fence_acq_rel_cta",
            "fence_acq_rel_cluster",
            "fence_acq_rel_gpu",
            "fence_acq_rel_sys",
            "cp_async_commit_group",
            "cp_async_bulk_commit_group",
            "cluster_wait",
            "cluster_arrive",
            "cluster_arrive_relaxed",
            "griddepcontrol_wait",
            "griddepcontrol_launch_dependents",
            "fence_view_async_shared",
        )
    },
    "cp_async_wait_group": one(lambda e: arch.cp_async_wait_group(1)),
    "cp_async_bulk_wait_group": {
        "read": lambda e: arch.cp_async_bulk_wait_group(1, read=True),
        "all": lambda e: arch.cp_async_bulk_wait_group(0),
    },
    **{
        name: one(lambda e, name=name: getattr(arch, name)(e("i32") > 0))
        for name in ("vote_ballot_sync", "vote_any_sync", "vote_all_sync", "vote_uni_sync")
    },
    "warp_redux_sync": {
        **{
            f"i32 {k}": (lambda e, k=k: arch.warp_redux_sync(e("i32"), k))
            for k in ("max", "min", "add", "xor", "or", "and")
        },
        **{f"u32 {k}": (lambda e, k=k: arch.warp_redux_sync(e("u32"), k)) for k in ("umax", "umin", "add")},
        **{f"f32 {k}": (lambda e, k=k: arch.warp_redux_sync(e("f32"), k)) for k in ("fmax", "fmin")},
    },
    "atomic_max_float32": one(lambda e: arch.atomic_max_float32(e.pointer("f32"), e("f32"))),
    "atomic_fmax": _atomics(arch.atomic_fmax, ("f32",)),
    "atomic_fmin": _atomics(arch.atomic_fmin, ("f32",)),
    "atomic_add": _atomics(arch.atomic_add, ("i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64")),
    **{
        name: _atomics(getattr(arch, name), WORDS)
        for name in ("atomic_and", "atomic_or", "atomic_xor", "atomic_max", "atomic_min", "atomic_exch")
    },
    "atomic_cas": _atomics(lambda p, v, **o: arch.atomic_cas(p, cmp=v, val=v + 1, **o), WORDS),
    "red": {
        f"{place} {dtype} {op}": (
            lambda e, place=place, kind=kind, dtype=dtype, op=op: arch.red(
                e.pointer(kind) if place == "global" else e.smem(kind),
                e(kind),
                op=op,
                dtype=dtype,
                sem="relaxed",
                scope="gpu",
            )
        )
        for kind, dtype, ops in (
            ("i32", "s32", ("add", "min", "max")),
            ("u32", "u32", ("add", "min", "max")),
            ("u32", "b32", ("and", "or", "xor")),
            ("u64", "u64", ("add", "min", "max")),
            ("i64", "s64", ("min", "max")),
            ("u64", "b64", ("and", "or", "xor")),
            ("f32", "f32", ("add",)),
            ("f64", "f64", ("add",)),
            ("f16", "f16", ("add", "min", "max")),
            ("bf16", "bf16", ("add", "min", "max")),
        )
        for op in ops
        for place in ("global", "shared")
    },
    "store": {
        f"{place} {kind} {name}": (
            lambda e, place=place, kind=kind, options=options: arch.store(
                e.pointer(kind) if place == "global" else e.smem(kind),
                e(kind),
                **options,
                **({"ss": "cta"} if place == "shared" else {}),
            )
        )
        for kind in TYPES
        for place in ("global", "shared")
        for name, options in {
            "": {},
            "release": {"sem": "release", "scope": "gpu"},
            "relaxed": {"sem": "relaxed", "scope": "sys"},
        }.items()
    }
    | {
        f"global i32 {cop}": (lambda e, cop=cop: arch.store(e.pointer("i32"), e("i32"), cop=cop))
        for cop in ("wb", "cg", "cs", "wt")
    }
    | {
        f"global i32 {hint}": (
            lambda e, hint=hint: arch.store(e.pointer("i32"), e("i32"), level1_eviction_priority=hint)
        )
        for hint in ("evict_first", "evict_last", "evict_no_allocate")
    },
    "load": {
        f"{place} {kind} {name}": (
            lambda e, place=place, kind=kind, options=options: arch.load(
                e.pointer(kind) if place == "global" else e.smem(kind),
                TYPES[kind],
                **options,
                **({"ss": "cta"} if place == "shared" else {}),
            )
        )
        for kind in TYPES
        for place in ("global", "shared")
        for name, options in {
            "": {},
            "acquire": {"sem": "acquire", "scope": "gpu"},
            "relaxed": {"sem": "relaxed", "scope": "sys"},
        }.items()
    }
    | {
        f"global i32 {cop}": (lambda e, cop=cop: arch.load(e.pointer("i32"), Int32, cop=cop))
        for cop in ("ca", "cg", "cs", "lu", "cv")
    }
    | {
        f"global i32 {hint}": (lambda e, hint=hint: arch.load(e.pointer("i32"), Int32, level1_eviction_priority=hint))
        for hint in ("evict_first", "evict_last", "evict_no_allocate", "evict_unchanged")
    }
    | {
        f"global i32 {size}": (lambda e, size=size: arch.load(e.pointer("i32"), Int32, level_prefetch_size=size))
        for size in ("size_64b", "size_128b", "size_256b")
    },
    "prefetch": {
        level: (lambda e, level=level: arch.prefetch(e.pointer("i32"), cache_level=level)) for level in ("L1", "L2")
    },
    "popc": each(WORDS, lambda e, k: arch.popc(e(k))),
    "fence_proxy": {
        f"{kind} {space}": (lambda e, kind=kind, space=space: arch.fence_proxy(kind, space=space))
        for kind in ("alias", "async", "async.global", "async.shared")
        for space in (None, "cta", "cluster")
    },
    **{
        name: one(lambda e, name=name: getattr(arch, name)(40))
        for name in (
            "warpgroup_reg_alloc",
            "warpgroup_reg_dealloc",
            "setmaxregister_increase",
            "setmaxregister_decrease",
        )
    },
    "fma_f16": {
        "": lambda e: arch.fma_f16(e("f16"), e("f16", 1), e("f16", 2)),
        "relu": lambda e: arch.fma_f16(e("f16"), e("f16", 1), e("f16", 2), relu=True),
        "sat": lambda e: arch.fma_f16(e("f16"), e("f16", 1), e("f16", 2), sat=True),
    },
    "fma_bf16": {
        "": lambda e: arch.fma_bf16(e("bf16"), e("bf16", 1), e("bf16", 2)),
        "relu": lambda e: arch.fma_bf16(e("bf16"), e("bf16", 1), e("bf16", 2), relu=True),
    },
    **{
        f"fma_packed_{kind}x2": one(
            lambda e, kind=kind: getattr(arch, f"fma_packed_{kind}x2")(
                _pair(e, kind), _pair(e, kind), _pair(e, kind, 1)
            )
        )
        for kind in ("f16", "bf16", "f32")
    },
    **{
        f"{op}_packed_{kind}x2": one(
            lambda e, op=op, kind=kind: getattr(arch, f"{op}_packed_{kind}x2")(_pair(e, kind), _pair(e, kind, 1))
        )
        for op in ("add", "sub", "mul")
        for kind in ("f16", "bf16", "f32")
        if (op, kind) not in (("mul", "f16"), ("mul", "bf16"))
    },
    **{
        name: {
            f"{flags}": (lambda e, name=name, options=options: getattr(arch, name)(e("f32"), e("f32", 1), **options))
            for flags, options in {"": {}, "nan": {"nan": True}, "ftz": {"ftz": True}, "abs": {"abs": True}}.items()
        }
        for name in ("fmax", "fmin")
    },
    "rcp_approx": one(lambda e: arch.rcp_approx(e("f32"))),
    "exp2": one(lambda e: arch.exp2(e("f32"))),
    "exp": one(lambda e: arch.exp(e("f32"))),
    **{
        f"exp2_packed_{kind}x2": one(lambda e, kind=kind: getattr(arch, f"exp2_packed_{kind}x2")(_pair(e, kind)))
        for kind in ("f16", "bf16")
    },
    "cvt_f32_tf32": one(lambda e: arch.cvt_f32_tf32(e("f32"))),
    "match_sync": {
        f"{mode} {kind}": (lambda e, mode=mode, kind=kind: arch.match_sync(0xFFFFFFFF, e(kind), mode))
        for mode in ("any", "all")
        for kind in ("i32", "i64")
    },
    **{name: each(WORDS, lambda e, k, name=name: getattr(arch, name)(e(k))) for name in ("clz", "bfind", "brev")},
    "bfe": each(WORDS, lambda e, k: arch.bfe(e(k), e("u32"), e("u32", 1))),
    "bfi": each(WORDS, lambda e, k: arch.bfi(e(k), e(k, 1), e("u32"), e("u32", 1))),
    "mul_hi": each(WORDS, lambda e, k: arch.mul_hi(e(k), e(k, 1))),
    "mul_wide": each(("i16", "u16", "i32", "u32"), lambda e, k: arch.mul_wide(e(k), e(k, 1))),
    "mul24": {
        f"{k} {hi}": (lambda e, k=k, hi=hi: arch.mul24(e(k), e(k, 1), hi))
        for k in ("i32", "u32")
        for hi in (False, True)
    },
    "mad24": {
        f"{k} {hi}": (lambda e, k=k, hi=hi: arch.mad24(e(k), e(k, 1), e(k, 2), hi))
        for k in ("i32", "u32")
        for hi in (False, True)
    },
    "add_cc": each(WORDS, _carry(arch.add_cc, arch.addc, 2)),
    "addc": each(WORDS, _carry(arch.add_cc, arch.addc, 2)),
    "sub_cc": each(WORDS, _carry(arch.sub_cc, arch.subc, 2)),
    "subc": each(WORDS, _carry(arch.sub_cc, arch.subc, 2)),
    "mad_cc": each(WORDS, _carry(arch.mad_cc, arch.madc, 3)),
    "madc": each(WORDS, _carry(arch.mad_cc, arch.madc, 3)),
    "add_sat_int": one(lambda e: arch.add_sat_int(e("i32"), e("i32", 1))),
    "sub_sat_int": one(lambda e: arch.sub_sat_int(e("i32"), e("i32", 1))),
    "lop3": one(lambda e: arch.lop3(e("u32"), e("u32", 1), e("u32", 2), 0x96)),
    "prmt": one(lambda e: arch.prmt(e("i32"), e("i32", 1), e("i32", 2))),
    "shf": {
        kind: (lambda e, kind=kind: arch.shf(e("u32"), e("u32", 1), e("u32", 2), kind))
        for kind in ("l", "r", "clamp_left", "clamp_right")
    },
    "alloc_smem": one(lambda e: arch.store(e.smem("i32"), e("i32"))),
    "get_dyn_smem": one(lambda e: arch.store(arch.get_dyn_smem(Int32), e("i32"))),
    "store_async_dsmem": {
        "1": lambda e: arch.store_async_dsmem(e.smem("i32"), e("i32"), e.bar, 0),
        "2": lambda e: arch.store_async_dsmem(e.wide_smem(), _pair(e, "i32"), e.bar, 0),
        "4": lambda e: arch.store_async_dsmem(e.wide_smem(), (*_pair(e, "i32"), *_pair(e, "i32", 1)), e.bar, 0),
    },
    "map_dsmem_ptr": one(lambda e: arch.map_dsmem_ptr(e.smem("i32"), e("i32")).toint()),
    "warp_reduction": one(lambda e: arch.warp_reduction(e("f32"), operator.add)),
    "warp_reduction_max": one(lambda e: arch.warp_reduction_max(e("f32"))),
    "warp_reduction_sum": one(lambda e: arch.warp_reduction_sum(e("f32"))),
}

_BLACKWELL = "an instruction of Blackwell"
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        (
            "WARP_SIZE",
            "WARPS_PER_WARPGROUP",
            "THREADS_PER_WARPGROUP",
            "get_max_tmem_alloc_cols",
            "get_min_tmem_alloc_cols",
        ),
        "a constant or a host function: no instruction",
    ),
    **dict.fromkeys(
        (
            "fence_view_async_tmem_load",
            "fence_view_async_tmem_store",
            "retrieve_tmem_ptr",
            "alloc_tmem",
            "relinquish_tmem_alloc_permit",
            "dealloc_tmem",
            "issue_clc_query",
            "clc_response",
        ),
        _BLACKWELL,
    ),
    **{
        f"{op}_packed_{out}": _BLACKWELL
        for op in ("add", "sub")
        for out in ("f16x2_f32x2_f32x2", "bf16x2_f32x2_f32x2", "f32x2_f16x2_f32x2", "f32x2_bf16x2_f32x2")
    },
    **{f"fma_packed_f32x2_{kind}x2_f32x2_f32x2": _BLACKWELL for kind in ("f16", "bf16")},
    **dict.fromkeys(
        (
            "cvt_i8x4_to_f32x4",
            "cvt_i8x2_to_f32x2",
            "cvt_i8_bf16",
            "cvt_i8x2_to_bf16x2",
            "cvt_i8x4_to_bf16x4",
            "cvt_f32x2_bf16x2",
            "cvt_i8_bf16_intrinsic",
            "cvt_i4_bf16_intrinsic",
        ),
        "takes MLIR vectors; probed through TensorSSA.to",
    ),
    "cvt_f4e2m1_f16_intrinsic": _BLACKWELL,
}


def _unary(name: str) -> Callable[[Env, str], Any]:
    return lambda e, k: getattr(cm, name)(e(k))


def math_probes() -> Iterator[tuple[str, Probe]]:
    """Every function of cute.math, on each float type, with each flag that it takes."""
    import inspect

    two, three = ("add", "sub", "mul", "div", "rem", "max", "min", "pow", "atan2", "copysign"), ("fma", "clamp")
    for name in sorted(cm.__all__ if hasattr(cm, "__all__") else dir(cm)):
        function = getattr(cm, name)
        if (
            name.startswith("_")
            or not inspect.isfunction(function)
            or function.__module__.split(".")[-1] != "math"
            or name in ("absi", "ipowi", "fpowi")
        ):
            continue
        count = 2 if name in two else 3 if name in three else 1
        flags: list[dict[str, Any]] = [{}] + [
            {flag: True}
            for flag in ("fastmath", "approx", "ftz", "full", "propagate_nan")
            if flag in inspect.signature(function).parameters
        ]
        for kind in FLOATS:
            for options in flags:
                yield (
                    f"math.{name} {kind} {' '.join(options)}".strip(),
                    lambda e, f=function, k=kind, c=count, o=options: f(*[e(k, n) for n in range(c)], **o),
                )


def arithmetic_probes() -> Iterator[tuple[str, Probe]]:
    """Python's operators on each type, and every conversion between two types, scalar and in vectors of four."""
    binary = (operator.add, operator.sub, operator.mul, operator.lt, operator.eq, operator.ge)
    for kind in TYPES:
        floating = kind in FLOATS
        for op in (
            *binary,
            *(
                (operator.truediv,)
                if floating
                else (
                    operator.floordiv,
                    operator.mod,
                    operator.and_,
                    operator.or_,
                    operator.xor,
                    operator.lshift,
                    operator.rshift,
                )
            ),
        ):
            yield f"operator.{op.__name__} {kind}", lambda e, k=kind, op=op: op(e(k), e(k, 1))
        for op in (operator.neg,) if floating else (operator.neg, operator.invert):
            yield f"operator.{op.__name__} {kind}", lambda e, k=kind, op=op: op(e(k))
        yield f"operator.fma {kind}", lambda e, k=kind: e(k) * e(k, 1) + e(k, 2)
        yield f"select {kind}", lambda e, k=kind: cutlass.select_(e("i32") > 3, e(k), e(k, 1))
        for other in TYPES:
            if other != kind:
                yield f"convert {kind} {other}", lambda e, k=kind, o=other: e(k).to(TYPES[o])
                yield f"convert x4 {kind} {other}", lambda e, k=kind, o=other: _vector(e, k).to(TYPES[o])
    for kind in ("f32", "f16", "bf16"):
        for small in (Float8E4M3FN, Float8E5M2):
            yield (
                f"convert x4 {kind} {small.__name__} and back",
                lambda e, k=kind, s=small: _vector(e, k).to(s).to(TYPES[k]),
            )


def _vector(e: Env, kind: str) -> Any:
    held = cute.make_rmem_tensor(4, TYPES[kind])
    for n in range(4):
        held[n] = e(kind, n)
    return held.load()


def copy_probes() -> Iterator[tuple[str, Probe]]:
    """Vector loads and stores of every width between registers, shared and global memory; cp.async; local memory;
    printf; fragments of matrices.
    """
    for kind in TYPES:
        for count in (1, 2, 4, 8, 16):
            if 1 <= count * TYPES[kind].width // 8 <= 16:
                for place in ("global", "shared"):
                    yield f"copy {place} {kind} x{count}", lambda e, k=kind, c=count, p=place: _round_trip(e, k, c, p)
    for bits, mode in ((32, "ALWAYS"), (64, "ALWAYS"), (128, "ALWAYS"), (128, "GLOBAL")):
        yield (
            f"cp.async {bits} {mode}",
            lambda e, b=bits, m=mode: _cp_async(e, b, getattr(cpasync.LoadCacheMode, m), None),
        )
        yield (
            f"cp.async {bits} {mode} predicated",
            lambda e, b=bits, m=mode: _cp_async(e, b, getattr(cpasync.LoadCacheMode, m), e("i32") > 0),
        )
    for kind in ("i32", "f32", "f64", "i64"):
        yield f"printf {kind}", lambda e, k=kind: cute.printf("{}", e(k))
    yield "assert", lambda e: cute.testing.assert_(e("i32") > 0, "no")
    for count in (1, 2, 4):
        for trans in (False, True):
            yield (
                f"warp.LdMatrix8x8x16bOp {count} {trans}",
                lambda e, c=count, t=trans: _matrix(e, warp.LdMatrix8x8x16bOp(t, c), Float16, True),
            )
            yield (
                f"warp.StMatrix8x8x16bOp {count} {trans}",
                lambda e, c=count, t=trans: _matrix(e, warp.StMatrix8x8x16bOp(t, c), Float16, False),
            )


def _round_trip(e: Env, kind: str, count: int, place: str) -> None:
    width = TYPES[kind].width // 8 * count
    start = e.tensors[kind].iterator if place == "global" else cute.recast_ptr(e.shared(), dtype=TYPES[kind])
    pointer = cute.make_ptr(TYPES[kind], (start + e.lane * count).toint(), start.memspace, assumed_align=width)
    tensor = cute.make_tensor(pointer, count)
    held = cute.make_rmem_tensor(count, TYPES[kind])
    atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), TYPES[kind], num_bits_per_copy=8 * width)
    cute.copy(atom, tensor, held)
    for n in range(count):
        held[n] = e(kind, n % 3) if TYPES[kind] is Boolean else held[n] + e(kind, n % 3)
    cute.copy(atom, held, tensor)


def _cp_async(e: Env, bits: int, mode: Any, predicate: Any) -> None:
    count = bits // 32
    source = cute.make_tensor(
        cute.make_ptr(
            Float32,
            (e.tensors["f32"].iterator + e.lane * count).toint(),
            cute.AddressSpace.gmem,
            assumed_align=bits // 8,
        ),
        ((count, 1), 1),
    )
    target = cute.make_tensor(
        cute.make_ptr(
            Float32,
            (cute.recast_ptr(e.shared(), dtype=Float32) + e.lane * count).toint(),
            cute.AddressSpace.smem,
            assumed_align=bits // 8,
        ),
        ((count, 1), 1),
    )
    atom = cute.make_copy_atom(cpasync.CopyG2SOp(cache_mode=mode), Float32, num_bits_per_copy=bits)
    if predicate is None:
        cute.copy(atom, source, target)
        return
    held = cute.make_rmem_tensor((1, 1), Boolean)
    held[0] = predicate
    cute.copy(atom, source, target, pred=held)


def _matrix(e: Env, op: Any, dtype: Any, load: bool) -> None:
    atom = cute.make_copy_atom(op, dtype)
    tiled = cute.make_tiled_copy(
        atom,
        atom.layout_dst_tv if load else atom.layout_src_tv,
        (cute.size((atom.layout_dst_tv if load else atom.layout_src_tv).shape),),
    )
    slice_ = tiled.get_slice(e.lane)
    total = cute.size((atom.layout_dst_tv if load else atom.layout_src_tv).shape)
    tensor = cute.make_tensor(cute.recast_ptr(e.shared(), dtype=dtype), cute.make_layout(total))
    held = cute.make_rmem_tensor(8, dtype)
    if load:
        source = slice_.partition_S(tensor)
        held = cute.make_rmem_tensor(slice_.partition_D(tensor).shape, dtype)
        cute.copy(tiled, source, held)
        e.keep(held[0])
    else:
        held = cute.make_rmem_tensor(slice_.partition_S(tensor).shape, dtype)
        for n in range(cute.size(held)):
            held[n] = e("f16", n % 3)
        cute.copy(tiled, held, slice_.partition_D(tensor))


def mma_probes() -> Iterator[tuple[str, Probe]]:
    """Every operation of nvgpu.warp that is not Blackwell's, in each shape and type."""
    for k in (8, 16):
        yield (
            f"warp.MmaF16BF16Op f16 f16 k{k}",
            lambda e, k=k: _mma(e, warp.MmaF16BF16Op(Float16, Float16, (16, 8, k)), Float16, Float16, k),
        )
        for kind in (Float16, BFloat16):
            yield (
                f"warp.MmaF16BF16Op {kind.__name__} f32 k{k}",
                lambda e, k=k, t=kind: _mma(e, warp.MmaF16BF16Op(t, Float32, (16, 8, k)), t, Float32, k),
            )
    for k in (4, 8):
        yield f"warp.MmaTF32Op k{k}", lambda e, k=k: _mma(e, warp.MmaTF32Op((16, 8, k)), TFloat32, Float32, k)
    for a in (Float8E4M3FN, Float8E5M2):
        yield (
            f"warp.MmaFP8Op {a.__name__}",
            lambda e, a=a: _mma(e, warp.MmaFP8Op(a, Float32, (16, 8, 32)), a, Float32, 32),
        )
    for kind in (Float16, Float32, Float64):
        yield (
            f"nvgpu.MmaUniversalOp {kind.__name__}",
            lambda e, t=kind: _mma(e, cute.nvgpu.MmaUniversalOp(t), t, t, 1, (1, 1)),
        )


def _mma(e: Env, op: Any, ab: Any, acc: Any, k: int, mn: tuple[int, int] = (16, 8)) -> None:
    tiled = cute.make_tiled_mma(cute.make_mma_atom(op))
    m, n = mn
    a, b, c = (
        tiled.make_fragment_A(tiled.partition_shape_A((m, k))),
        tiled.make_fragment_B(tiled.partition_shape_B((n, k))),
        tiled.make_fragment_C(tiled.partition_shape_C((m, n))),
    )
    for fragment, kind in ((a, ab), (b, ab), (c, acc)):
        words = (
            cute.recast_tensor(fragment, Uint32)
            if kind.width < 32 and cute.size(fragment) * kind.width % 32 == 0
            else cute.recast_tensor(fragment, {16: Uint16, 32: Uint32, 64: Uint64}[kind.width])
        )
        for at in range(cute.size(words)):
            words[at] = e({16: "u16", 32: "u32", 64: "u64"}[words.element_type.width], at % 3)
    cute.gemm(tiled, c, a, b, c)
    e.keep([c[at] for at in range(cute.size(c))] if acc is not Float16 else [c[0]])


def wgmma_probes() -> Iterator[tuple[str, Probe]]:
    """nvgpu.warpgroup: types, major modes, A from registers, accumulator types, a small, a middle and the largest N."""
    K, MN = cute.nvgpu.OperandMajorMode.K, cute.nvgpu.OperandMajorMode.MN
    for n in (8, 64, 256):
        for kind in (Float16, BFloat16):
            for a_major in (K, MN):
                for b_major in (K, MN):
                    yield (
                        f"warpgroup.MmaF16BF16Op {kind.__name__} n{n} {a_major} {b_major}",
                        lambda e, t=kind, n=n, a=a_major, b=b_major: _wgmma(
                            e, warpgroup.MmaF16BF16Op, (t, Float32), t, n, 16, a, b, False
                        ),
                    )
            yield (
                f"warpgroup.MmaF16BF16Op {kind.__name__} n{n} registers",
                lambda e, t=kind, n=n: _wgmma(e, warpgroup.MmaF16BF16Op, (t, Float32), t, n, 16, K, K, True),
            )
        yield (
            f"warpgroup.MmaF16BF16Op Float16 n{n} f16 accumulator",
            lambda e, n=n: _wgmma(e, warpgroup.MmaF16BF16Op, (Float16, Float16), Float16, n, 16, K, K, False),
        )
        for a in (Float8E4M3FN, Float8E5M2):
            for b in (Float8E4M3FN, Float8E5M2):
                yield (
                    f"warpgroup.MmaF8Op {a.__name__} {b.__name__} n{n}",
                    lambda e, a=a, b=b, n=n: _wgmma(e, warpgroup.MmaF8Op, (a, b, Float32), a, n, 32, K, K, False, b),
                )
        for a in (Int8, Uint8):
            yield (
                f"warpgroup.MmaI8Op {a.__name__} n{n}",
                lambda e, a=a, n=n: _wgmma(e, warpgroup.MmaI8Op, (a, a, Int32), a, n, 32, K, K, False),
            )


def _wgmma(
    e: Env,
    make: Any,
    kinds: tuple[Any, ...],
    dtype: Any,
    n: int,
    k: int,
    a_major: Any,
    b_major: Any,
    registers: bool,
    b_dtype: Any = None,
) -> None:
    source = warpgroup.OperandSource.RMEM if registers else warpgroup.OperandSource.SMEM
    tiled = cute.make_tiled_mma(cute.make_mma_atom(make(*kinds, (64, n, k), source, a_major, b_major)))
    thread = tiled.get_slice(arch.thread_idx()[0])
    K = cute.nvgpu.OperandMajorMode.K
    kind = warpgroup.SmemLayoutAtomKind

    def operand(rows: int, major: Any, element: Any, start: Any) -> Any:
        swizzle = kind.K_INTER if major == K else kind.MN_INTER
        atom = warpgroup.make_smem_layout_atom(swizzle, element)
        layout = cute.tile_to_shape(atom, (rows, k), (0, 1) if major == K else (1, 0))
        return cute.make_tensor(cute.recast_ptr(start, dtype=element), layout)

    s_a, s_b = operand(64, a_major, dtype, e.shared()), operand(n, b_major, b_dtype or dtype, e.shared() + 512)
    if registers:
        a = tiled.make_fragment_A(tiled.partition_shape_A((64, k)))
        words = cute.recast_tensor(a, Uint32)
        for at in range(cute.size(words)):
            words[at] = e("u32", at % 3)
    else:
        a = tiled.make_fragment_A(thread.partition_A(s_a))
    b = tiled.make_fragment_B(thread.partition_B(s_b))
    c = tiled.make_fragment_C(tiled.partition_shape_C((64, n)))
    warpgroup.fence()
    cute.gemm(tiled, c, a, b, c)
    warpgroup.commit_group()
    warpgroup.wait_group(0)
    e.keep(c[0])
    e.keep(c[cute.size(c) - 1])


@cute.kernel
def kernel(probes: cutlass.Constexpr, tensors: list[cute.Tensor]) -> None:
    """Each probe in turn."""
    lane = arch.thread_idx()[0]
    env = Env(dict(zip(TYPES, tensors, strict=True)), lane)
    for probe in cutlass.range_constexpr(len(probes)):
        env.keep(probes[probe](env))


@cute.jit
def launch(probes: cutlass.Constexpr, tensors: list[cute.Tensor]) -> None:
    """One block of a warpgroup."""
    kernel(probes, tensors).launch(grid=(1, 1, 1), block=(128, 1, 1), smem=20_000)


TMA: dict[str, Any] = {
    "CopyBulkTensorTileG2SOp": cpasync.CopyBulkTensorTileG2SOp,
    "CopyBulkTensorTileG2SMulticastOp": cpasync.CopyBulkTensorTileG2SMulticastOp,
    "CopyBulkTensorTileS2GOp": cpasync.CopyBulkTensorTileS2GOp,
    **{
        f"CopyReduceBulkTensorTileS2GOp {kind}": (
            lambda kind=kind: cpasync.CopyReduceBulkTensorTileS2GOp(getattr(cpasync.ReductionOp, kind))
        )
        for kind in ("ADD", "MIN", "MAX", "AND", "OR", "XOR", "INC", "DEC")
    },
}


@cute.kernel
def tma_kernel(
    atom: cute.CopyAtom, tensor: cute.Tensor, dtype: cutlass.Constexpr, name: cutlass.Constexpr, rank: cutlass.Constexpr
) -> None:
    """One copy by the tensor memory accelerator, its descriptor prefetched."""
    cpasync.prefetch_descriptor(atom)
    shared = arch.alloc_smem(dtype, 4096, 1024)
    bar = arch.alloc_smem(Int64, 1)
    tile = (64,) + (1,) * (rank - 1)
    s_tensor = cute.make_tensor(shared, cute.make_layout(tile))
    g_tensor = cute.local_tile(tensor, tile, (0,) * rank)
    s_part, g_part = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(s_tensor, 0, rank), cute.group_modes(g_tensor, 0, rank)
    )
    if cutlass.const_expr("G2S" in name):
        if cutlass.const_expr("Multicast" in name):
            cute.copy(atom, g_part, s_part, tma_bar_ptr=bar, mcast_mask=Int16(1))
        else:
            cute.copy(atom, g_part, s_part, tma_bar_ptr=bar)
    else:
        cute.copy(atom, s_part, g_part)


@cute.jit
def tma_launch(tensor: cute.Tensor, make: cutlass.Constexpr, name: cutlass.Constexpr, rank: cutlass.Constexpr) -> None:
    """The descriptor is made on the host."""
    tile = (64,) + (1,) * (rank - 1)
    options = {"num_multicast": 2} if cutlass.const_expr("Multicast" in name) else {}
    atom, coordinates = cpasync.make_tiled_tma_atom(make(), tensor, cute.make_layout(tile), tile, **options)
    tma_kernel(atom, coordinates, tensor.element_type, name, rank).launch(
        grid=(1, 1, 1), block=(128, 1, 1), cluster=(2, 1, 1), smem=20_000
    )


BULK: dict[str, Any] = {
    "CopyBulkG2SOp": cpasync.CopyBulkG2SOp,
    "CopyBulkS2GOp": cpasync.CopyBulkS2GOp,
    "CopyBulkG2SMulticastOp": cpasync.CopyBulkG2SMulticastOp,
    "CopyBulkS2SOp": cpasync.CopyBulkS2SOp,
}


@cute.kernel
def bulk_kernel(tensor: cute.Tensor, make: cutlass.Constexpr, name: cutlass.Constexpr) -> None:
    """One bulk copy without a descriptor."""
    bar = arch.alloc_smem(Int64, 1)
    shared = cute.make_tensor(arch.alloc_smem(Float32, 1024, 128), cute.make_layout(1024))
    other = cute.make_tensor(arch.alloc_smem(Float32, 1024, 128), cute.make_layout(1024))
    atom = cute.make_copy_atom(make(), Float32)
    part = cute.local_tile(tensor, (1024,), (0,))
    if cutlass.const_expr(name == "CopyBulkG2SOp"):
        cute.copy(atom, part, shared, mbar_ptr=bar)
    elif cutlass.const_expr(name == "CopyBulkG2SMulticastOp"):
        cute.copy(atom, part, shared, mbar_ptr=bar, mcast_mask=Int16(1))
    elif cutlass.const_expr(name == "CopyBulkS2GOp"):
        cute.copy(atom, shared, part)
    else:
        cute.copy(atom, other, shared, mbar_ptr=bar, cta_rank=Int32(0))


@cute.jit
def bulk_launch(tensor: cute.Tensor, make: cutlass.Constexpr, name: cutlass.Constexpr) -> None:
    """One block."""
    bulk_kernel(tensor, make, name).launch(grid=(1, 1, 1), block=(128, 1, 1), smem=20_000)


def tma_sources() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """(name, function to compile, arguments) of every copy of nvgpu.cpasync in one to five dimensions."""
    from cutlass.cute.runtime import make_fake_compact_tensor

    for name, make in TMA.items():
        for rank in range(1, 6):
            for kind in (Float16,) if rank != 2 else (Float16, BFloat16, Float32, Int32, Uint8):
                tensor = make_fake_compact_tensor(kind, (256,) + (16,) * (rank - 1), assumed_align=16)
                yield f"cpasync.{name} {kind.__name__} rank {rank}", tma_launch, (tensor, make, name, rank)
    for name, make in BULK.items():
        yield (
            f"cpasync.{name}",
            bulk_launch,
            (make_fake_compact_tensor(Float32, (4096,), assumed_align=128), make, name),
        )


def all_probes() -> Iterator[tuple[str, Probe]]:
    """Every probe with its name."""
    for name, variants in ARCH.items():
        for variant, probe in variants.items():
            yield f"arch.{name} {variant}".strip(), probe
    for group in (math_probes, arithmetic_probes, copy_probes, mma_probes, wgmma_probes):
        yield from group()
