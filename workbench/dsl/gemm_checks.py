"""Static checks of gemm: tiles, threads, shared memory, tensor cores; with a schedule those of `hopper_checks`."""

from __future__ import annotations

from workbench.dsl import epilogue, hopper_checks
from workbench.dsl.ir import Rejection, Stage, setting
from workbench.dsl.operation import SHARED_BYTES

ACCUMULATORS = 192  # float32 of a thread of mma.sync: with 256 or more each tile measured spilt 2.8 KB a thread or more, and took over 3 times as long as the fastest tile without stages
FEW = 128  # of these, up to which k may be over 64: above, each tile with k 128 spilt, took over twice as long as the fastest, and 19 to over 90 s to compile
WRITTEN = 4096  # multiply-adds of a thread in a step of k on the ordinary pipes: 8192 took from 67 to over 90 s to compile, and none of them was the fastest


def check(stage: Stage) -> list[Rejection]:
    """All rejections of a gemm."""
    if setting(stage, "schedule") is not None:
        return [*epilogue.check(stage), *hopper_checks.check(stage)]
    found = [*epilogue.check(stage), *hopper_checks.unscheduled(stage), *_layout(stage)]
    tile = setting(stage, "tile")
    if tile is not None:
        values = tile if isinstance(tile, tuple) else (tile,)
        if len(values) != 3 or any(not isinstance(v, int) or v < 8 or v > 256 for v in values):
            found.append(Rejection(field="tile", value=str(values), reason="three extents m, n, k", legal="m, n: 16 to 256; k: 8 to 64"))
        else:
            m, n, k = values
            thread = setting(stage, "thread_tile", (1, 1))
            tm, tn = thread if isinstance(thread, tuple) else (1, 1)
            threads = m * n // (tm * tn) if m % tm == 0 and n % tn == 0 else 0
            if setting(stage, "mma") is None and not (32 <= threads <= 1024 and threads % 32 == 0):
                found.append(Rejection(field="thread_tile", value=f"{tm}, {tn}", reason=f"tile {m}x{n} over {tm}x{tn} outputs per thread is {threads} threads", legal="a divisor pair that leaves 32 to 1024 threads in whole warps"))
            elif setting(stage, "mma") is None and (m * k % threads or n * k % threads):
                found.append(Rejection(field="tile", value=str(values), reason=f"{threads} threads cannot load {m * k} and {n * k} elements in equal shares", legal="extents whose products with k are multiples of the number of threads"))
            else:
                found += _registers(stage, (m, n, k), (tm, tn))
            stages = setting(stage, "stages", 1)
            shared = shared_bytes(stage, (m, n, k))
            limit = SHARED_BYTES.get(str(setting(stage, "arch")), SHARED_BYTES["sm_80"])
            if shared > limit:
                found.append(Rejection(field="tile", value=str(values), reason=f"{f'{stages} stages need' if stages != 1 else 'needs'} {shared} bytes of shared memory", legal=f"at most {limit} bytes"))
    mma = setting(stage, "mma")
    if mma is not None and mma not in ("f16", "bf16", "tf32"):
        found.append(Rejection(field="mma", value=str(mma), reason="tensor cores multiply these", legal="f16, bf16, tf32"))
    stages = setting(stage, "stages")
    if stages is not None and (stages not in (2, 3, 4, 5) or mma is None):
        found.append(Rejection(field="stages", value=str(stages), reason="tiles of k that are in shared memory at once" if mma else "only tensor-core kernels are pipelined; set mma too", legal="2, 3, 4, 5"))
    if stages is not None and isinstance(tile, tuple) and len(tile) == 3 and (tile[1] % 32 or tile[2] not in (16, 32, 64)):
        found.append(Rejection(field="tile", value=str(tile), reason="with stages, a warp reads 32 columns and whole swizzled rows", legal="n a multiple of 32; k 16, 32 or 64"))
    if mma is not None and isinstance(tile, tuple) and len(tile) == 3 and (tile[0] % 32 or tile[1] % 16 or tile[2] % 16):
        found.append(Rejection(field="tile", value=str(tile), reason="four warps of mma.sync m16n8k16 tile it", legal="m a multiple of 32, n and k of 16"))
    return found


def shared_bytes(stage: Stage, tile: tuple[int, int, int]) -> int:
    """Shared memory of a CTA without a schedule: both tiles, their rows padded where they are not swizzled."""
    (m, n, k), mma, stages = tile, setting(stage, "mma"), setting(stage, "stages")
    size = 2 if mma in ("f16", "bf16") else 4
    if stages is not None:
        return (m + n) * k * size * (stages if isinstance(stages, int) else 1)
    pad = 16 // size if mma is not None else 1
    a, b = (m - 1) * (k + pad) + k, (n - 1) * (k + pad) + k if mma is not None else (k - 1) * (n + pad) + n
    return -(-a * size // 16) * 16 + b * size


def _registers(stage: Stage, tile: tuple[int, int, int], thread: tuple[int, int]) -> list[Rejection]:
    """Tiles that a thread's registers do not hold, or whose loops, written out, take minutes to compile; by what was measured on an H200."""
    (m, n, k), outputs = tile, thread[0] * thread[1]
    size = f"{m}, {n}, {k}"
    if setting(stage, "mma") is None:
        if outputs > ACCUMULATORS:
            return [Rejection(field="thread_tile", value=", ".join(map(str, thread)), reason=f"each thread would hold {outputs} accumulators, more than its registers take", legal=f"at most {ACCUMULATORS} outputs")]
        if k * outputs <= WRITTEN:
            return []
        return [Rejection(field="tile", value=size, reason=f"a step of k is {k * outputs} multiply-adds of a thread, all written out, which takes minutes to compile", legal=f"k at most {WRITTEN // outputs} with {outputs} outputs per thread")]
    if m * n > 128 * ACCUMULATORS:
        return [Rejection(field="tile", value=size, reason=f"each thread would hold {m * n // 128} accumulators, more than its registers take", legal=f"m * n at most {128 * ACCUMULATORS}")]
    if m * n > 128 * FEW and k > 64:
        return [Rejection(field="tile", value=size, reason=f"beside {m * n // 128} accumulators a thread's registers do not take {(m + n) * k // 128} elements of a step of k", legal=f"k at most 64, or m * n at most {128 * FEW}")]
    return []


def _layout(stage: Stage) -> list[Rejection]:
    """Which way a and b lie: row, or column, which may be said col."""
    call = next((call for call in stage.settings if call.name == "layout"), None)
    if call is None:
        return []
    wrong = [f"{name}={value}" for name, value in call.named if name not in ("a", "b", "d") or value not in ("row", "column", "col")] + [str(value) for value in call.positional]
    return [Rejection(field="layout", value=said, reason="which operand lies by rows, which by columns", legal="a=row or a=column, and b likewise") for said in wrong]
