"""attention(q, k, v) -> softmax(scale * q @ k^T) @ v: settings, arguments and checks.

Flash attention on wgmma, on mma.sync, or on the ordinary pipes; or three kernels for large head dimensions. Input: a
stage; output: its Rejections.
"""

from __future__ import annotations

from workbench.kernels.attention.config import Mask
from workbench.language.ir import Call, Rejection, Stage, setting
from workbench.language.operation import (
    ARCH,
    Argument,
    Operation,
    Setting,
    choice_argument,
    flag,
    is_number,
    reject_settings,
)
from workbench.language.operations.gemm import checks as gemm_checks

SCHEDULES = ("flash", "stages")
MASKING = ("hide", "fill", "empty")  # arguments that say what a mask does


def product(stage: Stage) -> Stage:
    """The gemm that both products of schedule(stages) are."""
    calls = tuple(
        Call(name="schedule", positional=("cooperative",)) if call.name == "schedule" else call
        for call in stage.settings
    )
    if not any(call.name == "mma" for call in calls):
        calls = tuple(call for call in calls if call.name != "schedule")  # float32 on the ordinary pipes
        if not any(call.name == "tile" for call in calls):
            calls += (Call(name="tile", positional=(128, 128, 8)), Call(name="thread_tile", positional=(8, 8)))
    return Stage(operation=Call(name="gemm", positional=("a", "b")), settings=calls)


def mask_of(stage: Stage) -> Mask | None:
    """What the mask of an attention does to the scores; None without one."""
    named = dict(stage.operation.named)
    if "mask" not in named:
        return None
    return Mask(
        hides=str(named["hide"]) if "hide" in named else None,
        fill=float(str(named.get("fill", "-inf"))),
        empty=str(named.get("empty", "nan")),
    )


def check(stage: Stage) -> list[Rejection]:
    """Rejections of an attention."""
    found: list[Rejection] = []
    count = len(stage.operation.positional)
    if count != 3:
        legal = "attention(q, k, v)"
        found.append(Rejection(field="attention", value=str(count), reason="takes three operands", legal=legal))
    found += check_mask(stage)
    if setting(stage, "schedule") == "stages":
        return found + check_stages(stage)
    return found + check_flash(stage)


def check_mask(stage: Stage) -> list[Rejection]:
    """Rejections of a mask's arguments without a mask, and of a mask where no kernel reads it."""
    found, named = [], dict(stage.operation.named)
    if mask_of(stage) is None:
        reason, legal = "it says what a mask does, and there is none", "leave it out, or attention(q, k, v, mask=m)"
        return [
            Rejection(field=name, value=str(named[name]), reason=reason, legal=legal)
            for name in MASKING
            if name in named
        ]
    if "fill" in named and "hide" not in named:
        reason, legal = "a mask that is added hides no score", "with hide=zero or hide=nonzero"
        found.append(Rejection(field="fill", value=str(named["fill"]), reason=reason, legal=legal))
    if setting(stage, "schedule") == "stages":
        reason, legal = "its softmax reads no mask", "leave it out, or flash"
        found.append(Rejection(field="schedule", value="stages", reason=reason, legal=legal))
    return found


def check_flash(stage: Stage) -> list[Rejection]:
    """Rejections of what one kernel computes."""
    found: list[Rejection] = []
    mma, schedule, stages = (setting(stage, name) for name in ("mma", "schedule", "stages"))
    if schedule == "flash" and (setting(stage, "arch", "sm_80") != "sm_90a" or mma not in ("f16", "bf16")):
        found.append(
            Rejection(
                field="schedule",
                value="flash",
                reason="TMA feeds wgmma, which only Hopper has, and takes V of 16-bit elements only where it lies",
                legal="with arch(sm_90a) and mma(f16) or mma(bf16); leave it out for mma.sync",
            )
        )
    found += reject_settings(stage, ("thread_tile",), "belongs to the products of schedule(stages) without mma")
    if stages is not None and (schedule != "flash" or stages not in (2, 3)):
        found.append(
            Rejection(
                field="stages",
                value=str(stages),
                reason="steps of K and of V in shared memory, with schedule(flash)",
                legal="2, 3 (3 only for head dimensions up to 64)",
            )
        )
    return found + check_tile(stage)


def check_tile(stage: Stage) -> list[Rejection]:
    """Rejections of the queries of a CTA and the keys of a step."""
    tile = setting(stage, "tile")
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    if setting(stage, "schedule") == "flash":
        queries, keys = (64, 128, 192), (64, 128)
    elif setting(stage, "mma") is not None:
        queries, keys = (32, 64, 128), (16, 32, 64)
    else:
        queries, keys = (32, 64), (32, 64)
    if tile is None or (isinstance(tile, tuple) and len(tile) == 2 and tile[0] in queries and tile[1] in keys):
        return []
    legal = f"queries {', '.join(map(str, queries))}; keys {', '.join(map(str, keys))}"
    return [Rejection(field="tile", value=str(tile), reason="queries of a CTA, and keys of one step", legal=legal)]


def check_stages(stage: Stage) -> list[Rejection]:
    """Rejections of attention in three kernels: those of its products."""
    if setting(stage, "mma") is not None and setting(stage, "arch", "sm_80") != "sm_90a":
        return [
            Rejection(
                field="schedule",
                value="stages",
                reason="its products on tensor cores are Hopper's",
                legal="with arch(sm_90a), or without mma",
            )
        ]
    return gemm_checks.check(product(stage))


SETTINGS = (
    ARCH,
    Setting(
        name="mma",
        values=("f16", "bf16", "tf32"),
        reason="what the tensor cores multiply; without it float32 on the ordinary pipes",
    ),
    Setting(
        name="schedule",
        values=SCHEDULES,
        reason="flash: TMA and wgmma, one warpgroup loads; stages: q @ k^T, softmax and the product with v as kernels "
        "of their own",
        meaning="{values}: TMA feeds wgmma, one warpgroup loads (flash), or q @ k^T, softmax and the product with v "
        "are kernels of their own (stages)",
    ),
    Setting(
        name="tile",
        values=((128, 128), (128, 64), (64, 64), (128, 256, 32), (128, 256, 64)),
        closed=False,
        meaning="queries of a CTA and keys of one step, ({values}); with schedule(stages) the tiles of its products",
    ),
    Setting(name="thread_tile", values=((8, 8),), closed=False),
    Setting(
        name="stages",
        values=(2, 3),
        closed=False,
        meaning="{values} steps of K and of V in shared memory at once; with schedule(stages) tiles of k of its "
        "products",
    ),
    Setting(name="cluster", values=((2, 1), (1, 2)), closed=False),
)
ARGUMENTS = (
    flag("causal", "whether query i sees keys 0 to i only"),
    Argument(
        name="scale",
        legal="a number; left out: 1 / sqrt(dim)",
        reason="what the scores are multiplied by",
        holds=is_number,
    ),
    choice_argument(
        "hide", ("zero", "nonzero"), "which elements of a mask hide a score; left out: the mask is added to the scores"
    ),
    Argument(
        name="fill", legal="a number; left out: -1e999, which is -inf", reason="what a hidden score is", holds=is_number
    ),
    choice_argument("empty", ("nan", "zero"), "the result of a query whose scores are all -inf; left out: nan"),
)
ABOUT = (
    "attention(q, k, v, causal=0|1, scale=1/sqrt(dim)): softmax(scale * q @ k^T) @ v for q (batch, heads, queries, "
    "dim), k, v (batch, heads, keys, dim); mask=m: a float tensor that broadcasts to (batch, heads, queries, "
    "keys) is added to the scaled scores, or with hide=zero|nonzero the scores at its zeros (False), or at its other "
    "elements, are -inf, or fill=number"
)
OPERATIONS = (
    Operation(
        name="attention",
        about=ABOUT,
        settings=SETTINGS,
        check=check,
        arguments=ARGUMENTS,
        roles=("q", "k", "v"),
        implied=lambda stage: ("mask",) if "mask" in dict(stage.operation.named) else (),
    ),
)
