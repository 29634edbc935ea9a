"""Explains muCUTLASS programs in words: each setting, and the cost per CTA, on a device and at a size."""

from __future__ import annotations

import difflib
import importlib.util
import math
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from workbench.analysis import devices
from workbench.analysis.occupancy import occupancy
from workbench.codegen import compile_program
from workbench.errors import ProgramError, UserError
from workbench.landscapes.keys import with_arch
from workbench.language import OPERATIONS, Binding, Program, Stage, check, format_program, parse
from workbench.language.explain import Cost, cost_of, explain, notes
from workbench.language.operation import Operation, operands
from workbench.language.operations.channel_norms import GROUPED
from workbench.records import kernel_function
from workbench.views.text.mime_bundle import MimeBundle

if TYPE_CHECKING:
    import torch

MOST_VALUES = 8  # values of a setting that are listed
INIT = "def __init__(self):\n    super().__init__()\n"


def explain_program(
    text: str, *, device: str = "H200", size: tuple[int, ...] | None = None, compiled: bool = False
) -> MimeBundle:
    """Explain a program, setting by setting.

    `size` is (m, n, k) of a product, or (m, n, k, batches). `compiled` compiles it for its registers and spills.
    Raises `ProgramError` if the program is rejected.
    """
    program = parse(text)
    rejections = check(program)
    if rejections:
        raise ProgramError("the program is rejected: " + " | ".join(map(str, rejections)), rejections)
    lines = [format_program(program), *(f"  {note}" for note in notes(program))]
    for stage in program.stages:
        lines += ["", *_stage_lines(stage, device, size)]
    if compiled:
        lines += ["", *_register_lines(program)]
    return MimeBundle("\n".join(lines))


def explain_text(text: str, arguments: Namespace, *, device: str = "", arch: str = "") -> MimeBundle:
    """Explain a program, or an operation by its name; without a text list all operations.

    `arguments` has `device`, `size` and `compile`; `device` and `arch` are those of a session, for what names none.
    """
    if not text.strip():
        return list_operations()
    if text.strip() in OPERATIONS:
        return describe_operation(OPERATIONS[text.strip()])
    if text.strip().isidentifier():
        near = difflib.get_close_matches(text.strip().lower(), OPERATIONS, n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"muCUTLASS has no operation {text.strip()}{guess}; there are: {', '.join(OPERATIONS)}")
    device = arguments.device or device or "H200"
    if arch and all(OPERATIONS[stage.operation.name].setting("arch") is not None for stage in parse(text).stages):
        text = with_arch(text, arch)
    return explain_program(text, device=device, size=arguments.size, compiled=arguments.compile)


def list_operations() -> MimeBundle:
    """All operations with a description each."""
    width = max(map(len, OPERATIONS))
    return MimeBundle(
        "\n".join(
            [
                "operations of muCUTLASS; explain NAME lists an operation's settings, "
                'explain "PROGRAM" says what a program costs',
                "",
                *(f"  {name.ljust(width)}  {item.about}" for name, item in OPERATIONS.items()),
            ]
        )
    )


def describe_operation(operation: Operation) -> MimeBundle:
    """An operation with its arguments, its settings, their legal values, and its epilogues."""
    rows = [(f"{item.name}=", item.legal) for item in operation.arguments]
    for item in operation.settings:
        spelt = [", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in item.values]
        more = " | ..." if len(spelt) > MOST_VALUES or not item.closed else ""
        values = " | ".join(spelt[:MOST_VALUES]) + more if any(spelt) else ""
        rows.append((f".{item.name}({'n' if values else ''})", "; ".join(filter(None, (values, item.words("n"))))))
    rows += [(">>", ", ".join(operation.epilogues))] if operation.epilogues else []
    width = max(len(what) for what, _ in rows)
    return MimeBundle("\n".join([operation.about, *(f"  {what.ljust(width)}  {meaning}" for what, meaning in rows)]))


def _stage_lines(stage: Stage, device_name: str, size: tuple[int, ...] | None) -> list[str]:
    found = explain(stage)
    width = max((len(line.what) for line in found[1:]), default=0)
    return [
        found[0].what,
        *(f"  {line.what.ljust(width)}  {line.meaning}" for line in found[1:]),
        *_cost_lines(cost_of(stage), device_name, size),
    ]


def _cost_lines(cost: Cost, device_name: str, size: tuple[int, ...] | None) -> list[str]:
    """Threads, shared memory, registers and occupancy of a CTA; with a size also the waves."""
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
        lines.append(_waves_line(cost, found.blocks * device.sms, size))
    return lines


def _waves_line(cost: Cost, slots: int, size: tuple[int, ...]) -> str:
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


def _register_lines(program: Program) -> list[str]:
    """Registers and spills of every kernel. The program is compiled on small tensors and not run."""
    from workbench.emulator.hook import emulated
    from workbench.toolchain.binary import describe_module

    roles = _input_roles(program)
    arch = next(
        (str(call.positional[0]) for stage in program.stages for call in stage.settings if call.name == "arch"), "sm_80"
    )
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.py"
        binding = Binding(init_source=INIT, forward_arguments=tuple(roles))
        path.write_text(compile_program(format_program(program), binding))
        module = _import_file(path)

        def compile_only(
            function: object, key: object, arguments: tuple[object, ...], constants: tuple[object, ...] = ()
        ) -> None:
            import cutlass.cute as cute

            values = module.each_value(module.cute_value, arguments)
            made = cute.compile(function, *values, module.cuda.CUstream(0), *constants)
            for build in describe_module(made.__ptx__, made.__cubin__, arch):
                lines.append(
                    f"  {kernel_function(build.kernel)}: {build.registers} registers a thread, "
                    f"{build.spill_bytes or 0} bytes spilled, {arch} (counted by the compiler)"
                )

        module.call = compile_only  # type: ignore[attr-defined]
        with emulated(arch=arch, source_file=str(path)):
            _call_with_samples(module.ModelNew, roles, lines)
    return lines


def _input_roles(program: Program) -> dict[str, tuple[str, Stage]]:
    """Name of each input of the program -> its role, and the stage that reads it."""
    roles = {
        name: (role, stage)
        for stage in program.stages
        for role, name in operands(OPERATIONS[stage.operation.name], stage).items()
    }
    results = {stage.result for stage in program.stages}
    return {name: role for name, role in roles.items() if name not in results}


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("explained_candidate", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call_with_samples(
    model: Callable[[], Callable[..., object]], roles: dict[str, tuple[str, Stage]], lines: list[str]
) -> None:
    """Call the model with small tensors of 2 to 5 axes until a rank fits; `lines` are those of compiled kernels."""
    for rank in (2, 3, 4, 5):
        try:
            model()(*(_sample_tensor(role, stage, rank) for role, stage in roles.values()))
            return
        except (ValueError, TypeError, IndexError) as error:  # the kernel may need more axes
            if rank == 5 or lines:
                raise UserError(f"registers are unknown: no small operands were found that fit: {error}") from None


def _sample_tensor(role: str, stage: Stage, rank: int) -> torch.Tensor:
    """A small tensor of zeros for an operand. Operands of full size have `rank` axes."""
    import torch

    kind = next((str(call.positional[0]) for call in stage.settings if call.name == "mma"), "")
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}.get(
        kind, torch.float32
    )
    name, plain = stage.operation.name, role.rstrip("0123456789")
    shape = (4,) * (rank - 2) + (256, 256)
    integers = {"offsets": (4,), "batches": (), "target": (256,), "indptr": (257,), "indices": (256,)}
    if role in (*integers, "index"):
        layers = dict(stage.operation.named).get("layers", 0)
        return torch.zeros(integers.get(role, shape[-2:-1] if layers else shape), dtype=torch.int64)
    if name in ("conv", "convtranspose"):
        groups = dict(stage.operation.named).get("groups", 1)
        taps = 1 if any(call.name == "product" for call in stage.settings) else 3
        inner = 1 if groups == "channels" else 64 // int(str(groups))
        shape = (1, 64, *(16,) * (rank - 1)) if role == "x" else (64, inner, *(taps,) * (rank - 1))
    elif name in GROUPED:
        shape = (4, 256 * int(str(dict(stage.operation.named)["groups"])), 16)
    elif name == "attention":
        shape = (1, 1, 128, 128) if role == "mask" else (1, 4, 128, 64)
    elif name == "segment_softmax":
        shape = (256, 8)
    elif name == "ggemm" and role == "b":
        shape = (4, 256, 256)
    vectors = ("bias", "weight", "vector", "running_mean", "running_var")
    return torch.zeros(
        (64 if "conv" in name else shape[1] if name in GROUPED else 256,) if plain in vectors else shape,
        dtype=dtype,
    )
