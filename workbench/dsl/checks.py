"""Static checks of a muCUTLASS program: every rejection names field, value, reason and legal values."""

from __future__ import annotations

import difflib

from workbench.dsl import hopper_checks
from workbench.dsl.ir import Call, Program, Rejection, Stage, setting

UNARY = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs")
BINARY = ("add", "sub", "mul", "div", "max", "min")
SETTINGS = {
    "elementwise": ("arch", "threads", "vector"),
    "softmax": ("arch", "threads_per_row", "vector", "passes", "kept"), "layernorm": ("arch", "threads_per_row", "vector", "kept"), "rmsnorm": ("arch", "threads_per_row", "vector", "kept"),
    "reduce": ("arch", "threads_per_row", "vector", "threads", "split"), "crossentropy": ("arch", "threads_per_row", "vector", "kept"), "matvec": ("arch", "threads_per_row", "vector"),
    "gemm": ("arch", "layout", "tile", "thread_tile", "mma", "stages", "schedule", "cluster", "raster", "store", "splitk"),
}  # fmt: skip
EPILOGUES = ("bias", "scale", *UNARY)
ARCHES = ("sm_80", "sm_90a")
REDUCE_OPS = ("sum", "mean", "max", "min")
SHARED_LIMIT = {"sm_80": 166_912, "sm_90a": 232_448}


def check(program: Program) -> tuple[Rejection, ...]:
    """All rejections of a program, () when it can be compiled."""
    found: list[Rejection] = []
    if len(program.stages) != 1:
        found.append(Rejection(field="stages", value=str(len(program.stages)), reason="only one stage can be compiled so far", legal="1"))
    for stage in program.stages:
        found += _stage(stage)
    return tuple(found)


def _close(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{near[0]} (did you mean that?)" if near else ", ".join(known)


def _stage(stage: Stage) -> list[Rejection]:
    name = stage.operation.name
    if name not in SETTINGS:
        return [Rejection(field="operation", value=name, reason="no such operation", legal=_close(name, tuple(SETTINGS)))]
    found = [Rejection(field=call.name, value="", reason=f"{name} has no such setting", legal=_close(call.name, SETTINGS[name])) for call in stage.settings if call.name not in SETTINGS[name]]
    found += [Rejection(field="epilogue", value=call.name, reason="no such epilogue", legal=_close(call.name, EPILOGUES)) for call in stage.epilogues if call.name not in EPILOGUES]
    if stage.epilogues and name != "gemm":
        found.append(Rejection(field="epilogue", value=stage.epilogues[0].name, reason=f"{name} takes no epilogue", legal="only gemm does; write elementwise(...) around it"))
    found += _values(stage)
    if name == "elementwise":
        found += _expression(stage.operation.positional[0] if stage.operation.positional else None)
    if name == "gemm":
        found += _gemm(stage)
    if name == "reduce":
        operator = dict(stage.operation.named).get("op", "sum")
        if operator not in REDUCE_OPS:
            found.append(Rejection(field="op", value=str(operator), reason="no such reduction", legal=", ".join(REDUCE_OPS)))
    return found


def _values(stage: Stage) -> list[Rejection]:
    found = []
    arch = setting(stage, "arch", "sm_80")
    if arch not in ARCHES:
        found.append(Rejection(field="arch", value=str(arch), reason="no code is written for it", legal=", ".join(ARCHES)))
    for name in ("threads", "threads_per_row"):
        value = setting(stage, name)
        legal = (1, 32, 64, 128, 256, 512, 1024) if name == "threads_per_row" else (32, 64, 128, 256, 512, 1024)
        if value is not None and value not in legal:
            found.append(Rejection(field=name, value=str(value), reason="a CTA is made of whole warps and has at most 1024 threads", legal=", ".join(map(str, legal))))
    vector = setting(stage, "vector")
    if vector is not None and vector not in (1, 2, 4, 8):
        found.append(Rejection(field="vector", value=str(vector), reason="one access moves at most 16 bytes", legal="1, 2, 4, 8"))
    if setting(stage, "kept") is not None and setting(stage, "vector", 1) == 1:
        found.append(Rejection(field="kept", value="", reason="a row is kept in registers as vectors; set vector too", legal="with vector 2, 4 or 8"))
    passes = setting(stage, "passes")
    if passes is not None and passes not in (2, 3):
        found.append(Rejection(field="passes", value=str(passes), reason="softmax reads its row two times (online) or three times", legal="2, 3"))
    return found


def _expression(value: object) -> list[Rejection]:
    if value is None:
        return [Rejection(field="elementwise", value="", reason="needs an expression", legal="for example relu(x)")]
    if not isinstance(value, Call):
        return []
    arity = 1 if value.name in UNARY else 2 if value.name in BINARY else 0
    if not arity:
        return [Rejection(field="function", value=value.name, reason="no such function", legal=_close(value.name, UNARY + BINARY))]
    if len(value.positional) != arity:
        return [Rejection(field=value.name, value=str(len(value.positional)), reason=f"takes {arity} argument{'s' if arity > 1 else ''}", legal=str(arity))]
    return [item for part in value.positional for item in _expression(part)]


def _gemm(stage: Stage) -> list[Rejection]:
    if setting(stage, "schedule") is not None:
        return hopper_checks.check(stage)
    found = hopper_checks.unscheduled(stage)
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
            stages = setting(stage, "stages", 1)
            shared = (m + n) * k * (2 if setting(stage, "mma") in ("f16", "bf16") else 4) * (stages if isinstance(stages, int) else 1)
            limit = SHARED_LIMIT.get(str(setting(stage, "arch", "sm_80")), 166_912)
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
