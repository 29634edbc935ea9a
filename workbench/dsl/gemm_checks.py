"""Static checks of gemm: tiles, threads, shared memory, tensor cores; with a schedule those of `hopper_checks`."""

from __future__ import annotations

from workbench.dsl import epilogue, hopper_checks
from workbench.dsl.ir import Rejection, Stage, setting
from workbench.dsl.operation import SHARED_BYTES


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
            stages = setting(stage, "stages", 1)
            shared = (m + n) * k * (2 if setting(stage, "mma") in ("f16", "bf16") else 4) * (stages if isinstance(stages, int) else 1)
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


def _layout(stage: Stage) -> list[Rejection]:
    """Which way a and b lie: row, or column, which may be said col."""
    call = next((call for call in stage.settings if call.name == "layout"), None)
    if call is None:
        return []
    wrong = [f"{name}={value}" for name, value in call.named if name not in ("a", "b", "d") or value not in ("row", "column", "col")] + [str(value) for value in call.positional]
    return [Rejection(field="layout", value=said, reason="which operand lies by rows, which by columns", legal="a=row or a=column, and b likewise") for said in wrong]
