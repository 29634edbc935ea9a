"""Checks of a gemm without a schedule: tile, threads, shared memory, tensor cores, layouts; a stage -> Rejections."""

from __future__ import annotations

from workbench.language.ir import Rejection, Stage, setting
from workbench.language.operation import SHARED_BYTES, reject_settings
from workbench.language.operations import epilogue
from workbench.language.operations.gemm import sm90

# float32 accumulators of a thread of mma.sync: with 256 or more each tile measured spilt 2.8 KB a thread or more, and
# took over 3 times as long as the fastest tile without stages
ACCUMULATORS = 192
# of these, up to which k may be over 64: above, each tile with k 128 spilt, took over twice as long as the fastest, and
# 19 to over 90 s to compile
FEW = 128
# multiply-adds of a thread in a step of k on the ordinary pipes: 8192 took from 67 to over 90 s to compile, and none of
# them was the fastest
WRITTEN = 4096
MMA_TYPES = ("f16", "bf16", "tf32")
METRICS = ("inner", "l2", "l1", "linf")
HALVES = ("f16", "bf16")  # of 2 bytes
STAGES = (2, 3, 4, 5)

Tile = tuple[int, int, int]


def check(stage: Stage) -> list[Rejection]:
    """All rejections of a gemm."""
    if dict(stage.operation.named).get("metric", "inner") != "inner":
        found = reject_settings(
            stage, ("schedule", "mma", "stages"), "is for products; distances are summed in float32"
        )
        if found:
            return found
    if setting(stage, "schedule") is not None:
        return [*epilogue.check(stage), *sm90.check_scheduled(stage)]
    found = [*epilogue.check(stage), *sm90.check_unscheduled(stage), *_check_layout(stage)]
    tile, mma = setting(stage, "tile"), setting(stage, "mma")
    if tile is not None:
        found += _check_tile(stage, tile)
    if mma is not None and mma not in MMA_TYPES:
        reason = "tensor cores multiply these"
        found.append(Rejection(field="mma", value=str(mma), reason=reason, legal=", ".join(MMA_TYPES)))
    return found + _check_stages(stage) + _check_mma_tile(tile, mma)


def _check_tile(stage: Stage, tile: object) -> list[Rejection]:
    """Rejections of a tile for its extents, its threads, its registers and its shared memory."""
    values = tile if isinstance(tile, tuple) else (tile,)
    if len(values) != 3 or any(not isinstance(v, int) or v < 8 or v > 256 for v in values):
        legal = "m, n: 16 to 256; k: 8 to 64"
        return [Rejection(field="tile", value=str(values), reason="three extents m, n, k", legal=legal)]
    m, n, k = values
    found = _check_threads(stage, (m, n, k))
    stages = setting(stage, "stages", 1)
    shared = shared_bytes(stage, (m, n, k))
    limit = SHARED_BYTES.get(str(setting(stage, "arch")), SHARED_BYTES["sm_80"])
    if shared > limit:
        needs = f"{stages} stages need" if stages != 1 else "needs"
        reason = f"{needs} {shared} bytes of shared memory"
        found.append(Rejection(field="tile", value=str(values), reason=reason, legal=f"at most {limit} bytes"))
    return found


def _check_threads(stage: Stage, tile: Tile) -> list[Rejection]:
    """Rejections of how many outputs a thread computes."""
    m, n, k = tile
    thread = setting(stage, "thread_tile", (1, 1))
    per_m, per_n = thread if isinstance(thread, tuple) else (1, 1)
    threads = m * n // (per_m * per_n) if m % per_m == 0 and n % per_n == 0 else 0
    if setting(stage, "mma") is None and not (32 <= threads <= 1024 and threads % 32 == 0):
        return [
            Rejection(
                field="thread_tile",
                value=f"{per_m}, {per_n}",
                reason=f"tile {m}x{n} over {per_m}x{per_n} outputs per thread is {threads} threads",
                legal="a divisor pair that leaves 32 to 1024 threads in whole warps",
            )
        ]
    if setting(stage, "mma") is None and (m * k % threads or n * k % threads):
        return [
            Rejection(
                field="tile",
                value=str(tile),
                reason=f"{threads} threads cannot load {m * k} and {n * k} elements in equal shares",
                legal="extents whose products with k are multiples of the number of threads",
            )
        ]
    if setting(stage, "mma") is None:
        return _check_outputs(tile, (per_m, per_n))
    return _check_accumulators(tile)


def _check_outputs(tile: Tile, thread: tuple[int, int]) -> list[Rejection]:
    """Rejections of outputs that registers do not hold, or that take minutes to compile (measured on an H200)."""
    (_, _, k), outputs = tile, thread[0] * thread[1]
    if outputs > ACCUMULATORS:
        return [
            Rejection(
                field="thread_tile",
                value=", ".join(map(str, thread)),
                reason=f"each thread would hold {outputs} accumulators, more than its registers take",
                legal=f"at most {ACCUMULATORS} outputs",
            )
        ]
    if k * outputs <= WRITTEN:
        return []
    adds = f"a step of k is {k * outputs} multiply-adds of a thread, all written out"
    legal = f"k at most {WRITTEN // outputs} with {outputs} outputs per thread"
    return [_reject_tile(tile, f"{adds}, which takes minutes to compile", legal)]


def _check_accumulators(tile: Tile) -> list[Rejection]:
    """Rejections of tiles whose accumulators a thread's registers do not hold."""
    m, n, k = tile
    if m * n > 128 * ACCUMULATORS:
        reason = f"each thread would hold {m * n // 128} accumulators, more than its registers take"
        return [_reject_tile(tile, reason, f"m * n at most {128 * ACCUMULATORS}")]
    if m * n > 128 * FEW and k > 64:
        elements = f"a thread's registers do not take {(m + n) * k // 128} elements of a step of k"
        reason = f"beside {m * n // 128} accumulators {elements}"
        return [_reject_tile(tile, reason, f"k at most 64, or m * n at most {128 * FEW}")]
    return []


def _reject_tile(tile: Tile, reason: str, legal: str) -> Rejection:
    return Rejection(field="tile", value=", ".join(map(str, tile)), reason=reason, legal=legal)


def _check_stages(stage: Stage) -> list[Rejection]:
    """Rejections of stages, and of tiles that they do not go with."""
    stages, mma, tile = setting(stage, "stages"), setting(stage, "mma"), setting(stage, "tile")
    if stages is None:
        return []
    found = []
    if stages not in STAGES or mma is None:
        only = "only tensor-core kernels are pipelined; set mma too"
        reason = "tiles of k that are in shared memory at once" if mma else only
        found.append(Rejection(field="stages", value=str(stages), reason=reason, legal=", ".join(map(str, STAGES))))
    if isinstance(tile, tuple) and len(tile) == 3 and (tile[1] % 32 or tile[2] not in (16, 32, 64)):
        found.append(
            Rejection(
                field="tile",
                value=str(tile),
                reason="with stages, a warp reads 32 columns and whole swizzled rows",
                legal="n a multiple of 32; k 16, 32 or 64",
            )
        )
    elif isinstance(tile, tuple) and len(tile) == 3 and mma in HALVES and tile[2] == 16 and (tile[0] | tile[1]) % 64:
        reason = "with stages, 128 threads copy 16 bytes each, which are 64 rows of 16 elements"
        found.append(_reject_tile(tile, reason, "k 32 or 64, or m and n multiples of 64"))
    return found


def _check_mma_tile(tile: object, mma: object) -> list[Rejection]:
    """Rejections of tiles that the warps' instructions do not divide."""
    if mma is None or not isinstance(tile, tuple) or len(tile) != 3:
        return []
    if not (tile[0] % 32 or tile[1] % 16 or tile[2] % 16):
        return []
    reason, legal = "four warps of mma.sync m16n8k16 tile it", "m a multiple of 32, n and k of 16"
    return [Rejection(field="tile", value=str(tile), reason=reason, legal=legal)]


def shared_bytes(stage: Stage, tile: Tile) -> int:
    """Shared memory of a CTA without a schedule: both tiles, their rows padded where they are not swizzled."""
    (m, n, k), mma, stages = tile, setting(stage, "mma"), setting(stage, "stages")
    size = 2 if mma in HALVES else 4
    if stages is not None:
        return (m + n) * k * size * (stages if isinstance(stages, int) else 1)
    pad = 16 // size if mma is not None else 1
    a, b = (m - 1) * (k + pad) + k, (n - 1) * (k + pad) + k if mma is not None else (k - 1) * (n + pad) + n
    return -(-a * size // 16) * 16 + b * size


def _check_layout(stage: Stage) -> list[Rejection]:
    """Rejections of layouts: each is row, or column, which may be written col."""
    call = next((call for call in stage.settings if call.name == "layout"), None)
    if call is None:
        return []
    wrong = [
        f"{name}={value}"
        for name, value in call.named
        if name not in ("a", "b", "d") or value not in ("row", "column", "col")
    ] + [str(value) for value in call.positional]
    legal = "a=row or a=column, and b likewise"
    return [
        Rejection(field="layout", value=value, reason="which operand lies by rows, which by columns", legal=legal)
        for value in wrong
    ]
