"""What the settings of a program cost: threads, shared memory, registers, tiles. Nothing is compiled.

Threads, shared memory and accumulators are counted from the settings, as the emitters lay them out. A register total is
inferred, since the compiler decides what a thread keeps beside its accumulators.
"""

from __future__ import annotations

from workbench.kernels.gemm.sm90.config import GemmSm90Config, stage_bytes
from workbench.language.ir import Call, Program, Stage, number, setting
from workbench.language.operation import Operation
from workbench.language.operations import epilogue
from workbench.language.operations.conv.configs import as_gemm, halo_config, patch_config, sm80_config, sm90_config
from workbench.language.operations.gemm.sm90 import config_of
from workbench.language.operations.graphs import aggregate
from workbench.language.operations.graphs.attention import sddmm_config, softmax_config
from workbench.language.parser import format_call
from workbench.language.registry import OPERATIONS
from workbench.records import record

OTHER_REGISTERS = 40  # inferred: addresses, loop state and fragments of a tensor-core kernel, beside its accumulators
REGISTERS_OF_SM = 65_536


@record
class Cost:
    """What one CTA of a stage takes; None where the settings do not say.

    Registers are 32-bit and per thread, sizes in bytes.
    """

    threads: int | None = None
    shared_bytes: int | None = None
    stage_bytes: int | None = None  # of one tile of k of both operands
    stages: int = 1
    accumulators: int | None = None
    registers: int | None = None  # inferred
    tile: tuple[int, int] | None = None  # rows and columns of the result that a CTA computes
    splits: int = 1
    cluster: int = 1
    persistent: bool = False

    @property
    def warps(self) -> int | None:
        """Of a CTA."""
        return None if self.threads is None else -(-self.threads // 32)


@record
class Line:
    """One setting or epilogue in words."""

    what: str
    meaning: str


def cost_of(stage: Stage) -> Cost:
    """What one CTA of a checked stage takes."""
    if stage.operation.name == "gemm":
        return _sm90_cost(config_of(stage)) if setting(stage, "schedule") is not None else _gemm(stage)
    if stage.operation.name in ("conv", "convtranspose") and (
        setting(stage, "product") is not None or setting(stage, "mma") is not None
    ):
        return _convolution(stage)
    if stage.operation.name == "aggregate":
        config = aggregate.config_of(stage)
        return Cost(threads=config.threads, shared_bytes=config.shared_bytes, tile=(config.rows, config.columns))
    if stage.operation.name in ("sddmm", "segment_softmax"):
        found = sddmm_config(stage) if stage.operation.name == "sddmm" else softmax_config(stage)
        return Cost(threads=found.threads)
    threads = setting(stage, "threads_per_row", setting(stage, "threads"))
    if isinstance(threads, int):
        return Cost(
            threads=max(threads, 128) if setting(stage, "threads_per_row") is not None and threads <= 32 else threads
        )
    return Cost()


def _sm90_cost(config: GemmSm90Config) -> Cost:
    per_thread = (
        min(255, REGISTERS_OF_SM // config.threads // 8 * 8)
        if config.mma_warpgroups > 1 and not config.in_cluster
        else min(255, config.accumulators + OTHER_REGISTERS)
    )
    return Cost(
        threads=config.threads,
        shared_bytes=config.shared_bytes,
        stage_bytes=stage_bytes(config.kind, config.tile),
        stages=config.stages,
        accumulators=config.accumulators,
        registers=per_thread,
        tile=(config.tile[1], config.tile[0]) if config.swap else config.tile[:2],
        splits=config.split_k,
        cluster=config.split_k if config.in_cluster else config.cluster[0] * config.cluster[1],
        persistent=not config.in_cluster,
    )


def _gemm(stage: Stage) -> Cost:
    tile, mma = setting(stage, "tile"), setting(stage, "mma")
    if mma is None and not isinstance(tile, tuple):
        return Cost(threads=256, shared_bytes=0, accumulators=1, registers=OTHER_REGISTERS, tile=(8, 32))
    m, n, k = (int(str(value)) for value in tile) if isinstance(tile, tuple) else (64, 64, 32)
    stages = number(stage, "stages", 1)
    if mma is None:
        thread = setting(stage, "thread_tile", (1, 1))
        pm, pn = (int(str(value)) for value in thread) if isinstance(thread, tuple) else (1, 1)
        one = 4 * (
            m * (k + 1) + k * (n + 1)
        )  # a row of each has one more element, so that a warp falls into different banks
        return Cost(
            threads=m * n // (pm * pn),
            shared_bytes=one,
            stage_bytes=one,
            accumulators=pm * pn,
            registers=min(255, pm * pn + pm + pn + OTHER_REGISTERS // 2),
            tile=(m, n),
        )
    width = 2 if mma in ("f16", "bf16") else 4
    one = (
        width * (m + n) * k if stages > 1 else (m + n) * (k * width + 16)
    )  # without stages rows are padded by 16 bytes
    return Cost(
        threads=128,
        shared_bytes=one * stages,
        stage_bytes=one,
        stages=stages,
        accumulators=m * n // 128,
        registers=min(255, m * n // 128 + OTHER_REGISTERS),
        tile=(m, n),
    )


def _convolution(stage: Stage) -> Cost:
    if setting(stage, "product") is not None:
        return cost_of(as_gemm(stage))
    if setting(stage, "schedule") == "patch":
        patch = patch_config(stage)
        return Cost(
            threads=patch.threads,
            stages=patch.stages,
            accumulators=patch.accumulators,
            registers=min(255, patch.accumulators + OTHER_REGISTERS),
        )
    if setting(stage, "schedule") == "halo":
        halo = halo_config(stage)
        return Cost(
            threads=halo.threads,
            stages=halo.stages,
            accumulators=halo.rows * halo.tile_n // 128,
            registers=REGISTERS_OF_SM // halo.threads // 8 * 8,
            persistent=True,
        )
    if setting(stage, "schedule") is None:
        sm80 = sm80_config(stage)
        accumulators = sm80.tile_m * sm80.tile_n // 128
        return Cost(
            threads=sm80.threads,
            shared_bytes=sm80.shared_bytes,
            stage_bytes=sm80.stage_bytes,
            stages=sm80.stages,
            accumulators=accumulators,
            registers=min(255, accumulators + OTHER_REGISTERS),
        )
    sm90 = sm90_config(stage)
    accumulators = sm90.rows * sm90.tile_n // 128
    registers = REGISTERS_OF_SM // sm90.threads // 8 * 8 if sm90.warpgroups > 1 else accumulators + OTHER_REGISTERS
    return Cost(
        threads=sm90.threads,
        shared_bytes=sm90.shared_bytes,
        stage_bytes=sm90.stage_bytes,
        stages=sm90.stages,
        accumulators=accumulators,
        registers=min(255, registers),
        cluster=sm90.cluster,
        persistent=True,
    )


def explain(stage: Stage) -> tuple[Line, ...]:
    """Each setting and epilogue of a checked stage, in words."""
    operation = OPERATIONS[stage.operation.name]
    lines = [Line(what=operation.about, meaning="")]
    lines += [Line(what="." + format_call(call), meaning=_meaning(operation, call, stage)) for call in stage.settings]
    return (*lines, *(Line(what=">> " + format_call(call), meaning=_epilogue(call)) for call in stage.epilogues))


def _meaning(operation: Operation, call: Call, stage: Stage) -> str:
    values, cost, known = ", ".join(map(str, call.positional)), cost_of(stage), operation.setting(call.name)
    said = known.words(values) if known is not None else ""  # a checked stage has no others
    if call.name == "tile" and cost.tile is not None:
        deep = (
            f"; {call.positional[2]} of k at a time, {cost.stage_bytes} bytes of shared memory"
            if len(call.positional) == 3
            else ""
        )
        return (
            f"a CTA computes {cost.tile[0]} rows and {cost.tile[1]} columns of the result{deep}; "
            f"{cost.accumulators} sums in each thread's registers"
        )
    if call.name == "stages" and cost.stage_bytes is not None:
        return f"{said}, {cost.stages} x {cost.stage_bytes} bytes"
    if call.name == "splitk":
        return f"k in {call.positional[0]} parts, which " + (
            "a cluster's CTAs add up in their shared memories"
            if len(call.positional) > 1
            else "a second kernel adds, out of float32 sums in memory"
        )
    if call.name == "store" and len(call.positional) == 2:
        return (
            f"the result is stored by TMA; each warpgroup keeps {call.positional[1]} pieces of it in shared "
            "memory on their way"
        )
    if call.name == "streamk":
        return (
            "tiles of the last wave are cut along k into equal shares; sums of pieces go through "
            f"{config_of(stage).workspace_bytes} bytes of memory for each CTA that runs at once, and flags, and "
            "whoever has a tile's end adds them"
        )
    return (
        f"{said}; {cost.stage_bytes} bytes of shared memory, {cost.accumulators} sums in each thread's registers"
        if call.name == "tile" and cost.stage_bytes is not None
        else said
    )


def _epilogue(call: Call) -> str:
    if call.name in epilogue.REDUCTIONS:
        return (
            f"the {call.name[3:]} of each {'row' if call.name.startswith('row') else 'column'} is the result; "
            "parts of each tile are put together by a second kernel, always in the same order"
        )
    if call.name == "cast":
        return f"the result is {call.positional[0]}"
    return {
        "bias": "a vector is added, along n unless it says m",
        "residual": "a (m, n) tensor is added, read while the tile is multiplied",
        "map": "each sum, value(), becomes that expression, in float32, before it is stored",
    }.get(call.name, "to each sum, in float32, before it is stored")


def notes(program: Program) -> tuple[str, ...]:
    """What holds for the program as a whole."""
    if len(program.stages) == 1:
        return ()
    return (
        f"{len(program.stages)} kernels in order; "
        f"{', '.join(str(stage.result) for stage in program.stages[:-1])} "
        f"{'goes' if len(program.stages) == 2 else 'go'} through memory between them",
    )
