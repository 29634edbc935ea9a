"""Collects the PTX instruction forms that CuTe DSL emits, and says which of them the emulator knows.

    python tests/emulator/conformance/collect.py            compile everything (minutes), write forms.csv and probes.csv
    python tests/emulator/conformance/collect.py --refresh  only look again which forms of forms.csv are supported

forms.csv: form (opcode with all modifiers), arch, how many sources emit it, the first of them, whether every operand
pattern seen decodes, an example (of a pattern that does not decode, where there is one). probes.csv: each probe that an
architecture refuses, and the compiler's words.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GUARD = r"^@!?%[\w$@]+\s+"
ARCHES = ("sm_80", "sm_90a")


@dataclass
class Form:
    """One opcode with its modifiers, as one architecture has it; an example for each operand pattern."""

    sources: list[str] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict)


def head(text: str) -> str:
    """`ld.global.v4.b32` of an instruction's text."""
    return re.sub(GUARD, "", text).split()[0]


def pattern(text: str) -> str:
    """The instruction with registers, numbers and symbols replaced by what they are."""
    body = re.sub(GUARD, "", text)
    body = re.sub(r"0[fdFD][0-9a-fA-F]+", "F", body.partition(" ")[2])
    return re.sub(
        r"(?<![\w%])-?\d\w*",
        "N",
        re.sub(r"%p\d+", "P", re.sub(r"%(?:(?:r|rd|rs|f|fd|h|hh|b|rq)\d+|[\w$]+@\d+)", "R", body)),
    )


def decodes(text: str) -> bool:
    """Whether the emulator knows an instruction."""
    from workbench.emulator.execution.dispatch import knows
    from workbench.emulator.ptx.parser import parse

    name = head(text)
    body = f"{name} $L_here" if name.startswith("bra") else text
    module = parse(f".visible .entry k(.param .u64 p) {{\n $L_here:\n {body};\n}}")
    return knows(module.kernels["k"].instructions[0])


def said(error: Exception) -> str:
    """What the compiler refused, in one line without colours."""
    return f"{type(error).__name__}: {' '.join(re.sub(chr(27) + r'.[0-9]*m', '', str(error)).split())[:160]}"


def batches(items: list[Any], size: int = 12) -> Iterator[list[Any]]:
    """The items in lists of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def compiled(arch: str) -> Iterator[tuple[str, str, str]]:
    """(source, PTX, error) of every probe and every example of ours."""
    import cutlass.cute as cute
    from cutlass.cute.runtime import make_fake_compact_tensor

    sys.path.insert(0, str(HERE))
    import probes

    options = f"--gpu-arch {arch} --keep-ptx --dump-dir {tempfile.mkdtemp(prefix='forms-')}"
    tensors = [make_fake_compact_tensor(kind, (4096,), assumed_align=16) for kind in probes.TYPES.values()]

    def ptx(group: list[tuple[str, Any]]) -> str:
        text: str = cute.compile(probes.launch, tuple(probe for _, probe in group), tensors, options=options).__ptx__
        return text

    for _, found in itertools.groupby(probes.all_probes(), key=lambda item: item[0].split()[0]):
        for group in batches(list(found)):
            try:
                yield group[0][0] if len(group) == 1 else group[0][0].split()[0], ptx(group), ""
            except Exception:  # one of them is not for this architecture: which?
                for name, probe in group:
                    try:
                        yield name, ptx([(name, probe)]), ""
                    except Exception as error:
                        yield name, "", said(error)
    for name, function, arguments in probes.tma_sources():
        try:
            yield name, cute.compile(function, *arguments, options=options).__ptx__, ""
        except Exception as error:
            yield name, "", said(error)
    yield from examples(arch)


def examples(arch: str) -> Iterator[tuple[str, str, str]]:
    """The PTX of our own emitted kernels: one of each operation of muCUTLASS, run on the emulator's hook."""
    import importlib.util

    import torch

    from workbench.codegen import compile_program
    from workbench.emulator import EmulationFault, emulated
    from workbench.language import Binding

    x, w, bias, cube = torch.randn(64, 128), torch.randn(128, 64), torch.randn(128), torch.randn(4, 32, 64)
    label = torch.randint(0, 128, (64,))
    affine = (("weight", "w"), ("bias", "b"))
    texts: dict[str, tuple[str, dict[str, Any], tuple[tuple[str, str], ...]]] = {
        **{
            f"elementwise {name}": (f"elementwise({name}(x)) .threads(128) .vector(4)", {"x": x}, ())
            for name in ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "exp", "neg", "abs")
        },
        "softmax": ("softmax(x) .threads_per_row(32) .vector(4)", {"x": x}, ()),
        "softmax in two passes": ("softmax(x) .threads_per_row(256) .vector(4) .passes(2)", {"x": x}, ()),
        "layernorm": (
            "layernorm(x, eps=1e-05) .threads_per_row(32) .vector(4)",
            {"x": x, "w": bias, "b": bias},
            affine,
        ),
        "rmsnorm": ("rmsnorm(x, eps=1e-05) .threads_per_row(32) .vector(4)", {"x": x, "w": bias}, (("weight", "w"),)),
        **{
            f"reduce {op}": (f"reduce(x, op={op}, axis=last) .threads_per_row(32) .vector(4)", {"x": x}, ())
            for op in ("sum", "max", "mean")
        },
        "reduce middle": ("reduce(x, op=sum, axis=middle)", {"x": cube}, ()),
        "crossentropy": ("crossentropy(x, label)", {"x": x, "label": label}, (("target", "label"),)),
        "gemm simt": (
            "gemm(a, b) .tile(32, 32, 8) .thread_tile(2, 2) >> bias() >> gelu_tanh()",
            {"a": x, "b": w, "bias": torch.randn(64)},
            (),
        ),
        **{
            f"gemm {mma} {stages}": (
                f"gemm(a, b) .tile(64, 64, 32) .mma({mma}){stages} >> bias() >> relu()",
                {"a": x.to(kind), "b": w.to(kind), "bias": torch.randn(64).to(kind)},
                (),
            )
            for mma, kind in (("f16", torch.float16), ("bf16", torch.bfloat16), ("tf32", torch.float32))
            for stages in ("", " .stages(3)")
        },
    }
    for name, (text, arguments, operands) in texts.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "candidate.py"
            try:
                path.write_text(
                    compile_program(
                        text,
                        Binding(
                            init_source="def __init__(self):\n    super().__init__()\n",
                            forward_arguments=tuple(arguments),
                            operands=operands,
                        ),
                    )
                )
                spec = importlib.util.spec_from_file_location("candidate", path)
                assert spec and spec.loader
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
                with (
                    emulated(arch=arch, source_file=str(path)) as emulation,
                    contextlib.suppress(EmulationFault),
                ):  # the PTX is what is wanted
                    module.ModelNew()(*arguments.values())
                for made in emulation.modules:
                    yield f"example {name}", made.ptx, ""
            except Exception as error:
                yield f"example {name}", "", said(error)


def collect() -> None:
    """Compile everything for each architecture and write both files."""
    from workbench.emulator.ptx.parser import parse

    forms: dict[tuple[str, str], Form] = {}
    refused: list[tuple[str, str, str]] = []
    for arch in ARCHES:
        count = 0
        for source, ptx, error in compiled(arch):
            count += 1
            if error:
                refused.append((source, arch, error))
                continue
            for kernel in parse(ptx).kernels.values():
                for ins in kernel.instructions:
                    form = forms.setdefault((head(ins.text), arch), Form())
                    if source not in form.sources:
                        form.sources.append(source)
                    form.examples.setdefault(pattern(ins.text), ins.text)
        print(
            f"{arch}: {count} sources, {sum(1 for _, a in forms if a == arch)} forms, "
            f"{sum(1 for _, a, _ in refused if a == arch)} refused",
            file=sys.stderr,
        )
    rows = []
    for (name, arch), form in sorted(forms.items()):
        unknown = next((text for text in form.examples.values() if not decodes(text)), None)
        rows.append(
            (
                name,
                arch,
                len(form.sources),
                form.sources[0],
                "no" if unknown else "yes",
                unknown or next(iter(form.examples.values())),
            )
        )
    write(rows)
    with (HERE / "probes.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("source", "arch", "refused"), *sorted(refused)])


def read() -> list[dict[str, str]]:
    """The rows of forms.csv."""
    with (HERE / "forms.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[tuple[Any, ...]]) -> None:
    """forms.csv, and the counts on standard error."""
    with (HERE / "forms.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("form", "arch", "sources", "first_source", "supported", "example"), *rows]
        )
    for arch in ARCHES:
        mine = [row for row in rows if row[1] == arch]
        print(f"{arch}: {sum(row[4] == 'yes' for row in mine)} of {len(mine)} forms supported", file=sys.stderr)


if __name__ == "__main__":
    os.environ.setdefault("CUTE_DSL_DISABLE_FILE_CACHING", "1")
    if "--refresh" in sys.argv:
        write(
            [
                (
                    r["form"],
                    r["arch"],
                    r["sources"],
                    r["first_source"],
                    "yes" if decodes(r["example"]) else "no",
                    r["example"],
                )
                for r in read()
            ]
        )
    else:
        collect()
