"""What a program of the language costs, in words: per setting, per CTA, on a device, and at a size."""

from __future__ import annotations

import difflib
import importlib.util
import math
import re
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.analysis import devices
from workbench.analysis.occupancy import occupancy
from workbench.codegen import compile_program
from workbench.errors import ProgramError, UserError
from workbench.language import OPERATIONS, Binding, Program, Stage, check, format_program, parse
from workbench.language.explain import Cost, cost_of, explain, notes
from workbench.language.operation import Operation, operands
from workbench.views.text.mime_bundle import Shown

if TYPE_CHECKING:
    import torch

MOST_VALUES = 8  # of a setting that are listed
INIT = "def __init__(self):\n    super().__init__()\n"


def explained(text: str, *, device: str = "H200", size: tuple[int, ...] | None = None, compiled: bool = False) -> Shown:
    """The program settled, setting by setting.

    `size` is m, n, k of a product (and batches); `compiled` asks the compiler for registers and spills.
    """
    program = parse(text)
    rejections = check(program)
    if rejections:
        raise ProgramError("the program is rejected: " + " | ".join(map(str, rejections)), rejections)
    lines = [format_program(program), *(f"  {note}" for note in notes(program))]
    for stage in program.stages:
        lines += ["", *_stage(stage, device, size)]
    if compiled:
        lines += ["", *_registers(program)]
    return Shown("\n".join(lines))


def answer(text: str, arguments: Namespace, *, device: str = "") -> Shown:
    """What `explain` says of a program, of an operation by its name, or of the language.

    `arguments` has device, size and compile.
    """
    if not text.strip():
        return listed()
    if text.strip() in OPERATIONS:
        return described(OPERATIONS[text.strip()])
    if text.strip().isidentifier():
        near = difflib.get_close_matches(text.strip().lower(), OPERATIONS, n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"muCUTLASS has no operation {text.strip()}{guess}; there are: {', '.join(OPERATIONS)}")
    return explained(text, device=arguments.device or device or "H200", size=arguments.size, compiled=arguments.compile)


def listed() -> Shown:
    """All operations, what each computes."""
    width = max(map(len, OPERATIONS))
    return Shown(
        "\n".join(
            [
                "operations of muCUTLASS; explain NAME lists an operation's settings, "
                'explain "PROGRAM" says what a program costs',
                "",
                *(f"  {name.ljust(width)}  {item.about}" for name, item in OPERATIONS.items()),
            ]
        )
    )


def described(operation: Operation) -> Shown:
    """An operation: named arguments and settings with their legal values, and epilogues."""
    rows = [(f"{item.name}=", item.legal) for item in operation.arguments]
    for item in operation.settings:
        said = [", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in item.values]
        more = " | ..." if len(said) > MOST_VALUES or not item.closed else ""
        values = " | ".join(said[:MOST_VALUES]) + more if any(said) else ""
        rows.append((f".{item.name}({'n' if values else ''})", "; ".join(filter(None, (values, item.words("n"))))))
    rows += [(">>", ", ".join(operation.epilogues))] if operation.epilogues else []
    width = max(len(what) for what, _ in rows)
    return Shown("\n".join([operation.about, *(f"  {what.ljust(width)}  {meaning}" for what, meaning in rows)]))


def formatted(text: str) -> str:
    """The canonical text of a program; what it says is not checked."""
    return format_program(parse(text))


def _stage(stage: Stage, device_name: str, size: tuple[int, ...] | None) -> list[str]:
    found = explain(stage)
    width = max((len(line.what) for line in found[1:]), default=0)
    return [
        found[0].what,
        *(f"  {line.what.ljust(width)}  {line.meaning}" for line in found[1:]),
        *_cost(cost_of(stage), device_name, size),
    ]


def _cost(cost: Cost, device_name: str, size: tuple[int, ...] | None) -> list[str]:
    if cost.threads is None:
        return []
    device = devices.find(device_name)
    lines = [
        f"  a CTA: {cost.threads} threads, {cost.warps} warps"
        + (f", {cost.shared_bytes} bytes of shared memory" if cost.shared_bytes else "")
        + " (counted)"
    ]
    if cost.registers is not None:
        lines.append(
            f"  a thread: {cost.accumulators} accumulators (counted), about {cost.registers} registers (inferred)"
        )
    found = occupancy(device, threads=cost.threads, registers=cost.registers, shared_bytes=cost.shared_bytes or 0)
    if not found.blocks:
        return [*lines, f"  on {device.name}: does not fit ({found.limiter})"]
    lines.append(
        f"  on {device.name}: {found.blocks} CTA{'s' if found.blocks > 1 else ''} per SM, "
        f"{found.fraction:.0%} of its threads, limited by {found.limiter} (modelled)"
    )
    if size is not None and cost.tile is not None:
        lines.append(_waves(cost, found.blocks * device.sms, size))
    return lines


def _waves(cost: Cost, slots: int, size: tuple[int, ...]) -> str:
    if len(size) < 3:
        raise UserError("a size is m, n, k of a product, or m, n, k, batches: --size 4096,4096,4096")
    m, n, _, *batches = size
    tile = cost.tile or (1, 1)
    tiles = math.ceil(m / tile[0]) * math.ceil(n / tile[1]) * math.prod(batches) * cost.splits
    how = "persistent CTAs walk over them" if cost.persistent else "one CTA each"
    used = tiles / (math.ceil(tiles / slots) * slots)
    return (
        f"  at {' x '.join(map(str, size))}: {tiles} tiles, {tiles / slots:.2f} waves of {slots} CTAs at once, "
        f"{used:.0%} of the slots used; {how} (counted)"
    )


def _registers(program: Program) -> list[str]:
    """Registers and spills of every kernel, by compiling it on small tensors; nothing runs."""
    from workbench.emulator import emulated
    from workbench.toolchain.binary import describe_module

    roles = {
        name: (role, stage)
        for stage in program.stages
        for role, name in operands(OPERATIONS[stage.operation.name], stage).items()
    }
    names = [name for name in roles if name not in {stage.result for stage in program.stages}]
    arch = next(
        (str(call.positional[0]) for stage in program.stages for call in stage.settings if call.name == "arch"), "sm_80"
    )
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.py"
        path.write_text(
            compile_program(format_program(program), Binding(init_source=INIT, forward_arguments=tuple(names)))
        )
        spec = importlib.util.spec_from_file_location("explained_candidate", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

        def only_compile(
            function: object, key: object, arguments: tuple[object, ...], constants: tuple[object, ...] = ()
        ) -> None:
            import cutlass.cute as cute

            made = cute.compile(function, *arguments, module.cuda.CUstream(0), *constants)
            for build in describe_module(made.__ptx__, made.__cubin__, arch):
                name = re.sub(r"^kernel_cutlass_(\w+?_kernel).*", r"\1", build.kernel)
                said.append(
                    f"  {name}: {build.registers} registers a thread, {build.spill_bytes or 0} bytes spilled, {arch} "
                    "(counted by the compiler)"
                )

        module.call = only_compile  # type: ignore[attr-defined]
        with emulated(arch=arch, source_file=str(path)):
            for rank in (2, 3, 4, 5):
                try:
                    module.ModelNew()(*(_sample(*roles[name], rank) for name in names))
                    break
                except (
                    ValueError,
                    TypeError,
                    IndexError,
                ) as error:  # the kernel wants more axes, unless this was the last try
                    if rank == 5 or said:
                        raise UserError(
                            f"registers cannot be told, since no small operands were found that fit: {error}"
                        ) from None
    return said


def _sample(role: str, stage: Stage, rank: int) -> torch.Tensor:
    """A small tensor of zeros for an operand; the full ones have `rank` axes."""
    import torch

    kind = next((str(call.positional[0]) for call in stage.settings if call.name == "mma"), "")
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}.get(
        kind, torch.float32
    )
    name, plain = stage.operation.name, role.rstrip("0123456789")
    shape = (4,) * (rank - 2) + (256, 256)
    if role in ("target", "index", "offsets", "batches"):
        layers = dict(stage.operation.named).get("layers", 0)
        return torch.zeros(
            {"offsets": (4,), "batches": (), "target": (256,)}.get(role, shape[-2:-1] if layers else shape),
            dtype=torch.int64,
        )
    if name in ("conv", "convtranspose"):
        groups = dict(stage.operation.named).get("groups", 1)
        taps = 1 if any(call.name == "product" for call in stage.settings) else 3
        inner = 1 if groups == "channels" else 64 // int(str(groups))
        shape = (1, 64, *(16,) * (rank - 1)) if role == "x" else (64, inner, *(taps,) * (rank - 1))
    elif name == "groupnorm":
        shape = (4, 256 * int(str(dict(stage.operation.named)["groups"])), 16)
    elif name == "attention":
        shape = (1, 4, 128, 64)
    elif name == "ggemm" and role == "b":
        shape = (4, 256, 256)
    vectors = ("bias", "weight", "vector", "running_mean", "running_var")
    return torch.zeros(
        (64 if "conv" in name else shape[1] if name == "groupnorm" else 256,) if plain in vectors else shape,
        dtype=dtype,
    )
