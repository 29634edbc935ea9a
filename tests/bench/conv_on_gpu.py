"""muCUTLASS's convolutions against torch eager (cuDNN, TF32 allowed, benchmark off) on an H200, at the sizes of
KernelBench's level-1 convolutions and of three of level 2.

    python tests/bench/conv_on_gpu.py [--only 2d,3d] [--kinds tf32,bf16] [--sweep 3] [--rounds 10] [--workers 12]
    writes $OUT/conv.json
    python tests/bench/conv_on_gpu.py --profile conv2d_asym --kinds tf32                 times of each kernel, ours and
    torch's, by torch.profiler
    python tests/bench/conv_on_gpu.py --dry-run                                          tiny extents on the emulator;
    no GPU, no times

float32 with TF32 allowed, and bfloat16; contiguous NCHW tensors, uniform numbers as KernelBench has. Ours is the first
rung of the planner's ladder (with --sweep the best of several), all
kernels included that prepare its operands. Times: events around one call, L2 flushed before it and the device kept busy
meanwhile so that the host's work does not
count, both sides interleaved, medians. Each result is compared with torch's in float32 without TF32 (bfloat16: with
torch's), as the relative error of the whole. Worker processes compile side by side on tiny extents, then measure one at
a time.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib.util
import json
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from workbench.codegen import compile_program
from workbench.language import Binding, Call, Program, Stage, format_program
from workbench.proposers.ladders import convolutions
from workbench.proposers.ladders.base import put

INIT = "def __init__(self):\n    super().__init__()\n"
DTYPES = {"tf32": torch.float32, "bf16": torch.bfloat16}
ALLOWED = {"tf32": 2e-3, "bf16": 1e-2}  # relative error of the whole result
FLUSH_BYTES = 512 << 20


@dataclass(frozen=True)
class Case:
    """One problem: batch, channels, extents; filters and their extents; stride, padding, dilation, output padding.

    Groups (0: depthwise); pointwise: filters of a 1x1 convolution behind it.
    """

    group: str
    name: str
    batch: int
    channels: int
    extents: tuple[int, ...]
    filters: int
    taps: tuple[int, ...]
    stride: tuple[int, ...] | int = 1
    padding: tuple[int, ...] | int = 0
    dilation: tuple[int, ...] | int = 1
    more: tuple[int, ...] | int = 0
    groups: int = 1
    bias: bool = False
    pointwise: int = 0

    @property
    def transposed(self) -> bool:
        """Whether it is a transposed convolution."""
        return self.group == "transposed"

    def all(self, value: tuple[int, ...] | int) -> tuple[int, ...]:
        """A setting of each extent."""
        return value if isinstance(value, tuple) else (value,) * len(self.extents)

    @property
    def out(self) -> tuple[int, ...]:
        """Extents of the result."""
        settings = zip(
            self.extents,
            self.taps,
            self.all(self.stride),
            self.all(self.padding),
            self.all(self.dilation),
            self.all(self.more),
            strict=True,
        )
        if self.transposed:
            return tuple((n - 1) * s - 2 * p + d * (t - 1) + m + 1 for n, t, s, p, d, m in settings)
        return tuple((n + 2 * p - d * (t - 1) - 1) // s + 1 for n, t, s, p, d, m in settings)

    @property
    def flops(self) -> float:
        """Of the whole."""
        each = (
            2.0
            * self.batch
            * self.filters
            * (self.channels // self.groups if self.groups else 1)
            * math.prod(self.taps)
        )
        return each * math.prod(
            self.extents if self.transposed else self.out
        ) + 2.0 * self.batch * self.channels * self.pointwise * math.prod(self.out)


CASES = (
    Case("2d", "conv2d_11x11", 256, 3, (224, 224), 96, (11, 11), 4, 2, bias=True),
    Case("2d", "conv2d_asym_input", 8, 64, (512, 1024), 128, (3, 3)),
    Case("2d", "conv2d_asym", 8, 64, (512, 256), 128, (5, 7)),
    Case("2d", "conv2d_asym_kernel", 8, 32, (512, 512), 64, (5, 9)),
    Case("2d", "conv2d_square", 16, 16, (1024, 1024), 128, (3, 3)),
    Case("2d", "conv2d_dilated_asym", 8, 32, (512, 512), 64, (5, 9), 1, (2, 4), (2, 3)),
    Case("2d", "conv2d_pointwise", 16, 64, (1024, 1024), 128, (1, 1)),
    Case("2d", "conv2d_separable", 16, 64, (512, 512), 64, (3, 3), 1, 1, groups=0, pointwise=128),
    Case("2d", "conv2d_few_channels", 128, 16, (256, 256), 64, (3, 3)),
    Case("2d", "conv2d_many_images", 128, 64, (128, 128), 128, (3, 3)),
    Case("3d", "conv3d_square", 16, 3, (64, 64, 64), 64, (3, 3, 3)),
    Case("3d", "conv3d_asym_input", 16, 3, (256, 256, 10), 64, (3, 3, 1)),
    Case("3d", "conv3d_asym_kernel", 16, 3, (64, 64, 64), 64, (3, 5, 7)),
    Case("3d", "conv3d_asym", 8, 3, (16, 128, 128), 64, (3, 5, 7)),
    Case("1d", "conv1d", 32, 64, (131072,), 128, (3,)),
    Case("1d", "conv1d_dilated_strided", 64, 64, (524280,), 128, (3,), 3, 0, 4),
    Case("depthwise", "depthwise_square", 16, 64, (512, 512), 64, (3, 3), groups=0),
    Case("depthwise", "depthwise_asym_kernel", 64, 8, (512, 512), 8, (3, 1), groups=0),
    Case("depthwise", "depthwise_asym_input", 64, 128, (256, 512), 128, (3, 3), groups=0),
    Case("depthwise", "depthwise_asym", 32, 128, (128, 256), 128, (3, 7), groups=0),
    Case("transposed", "transposed1d", 64, 128, (65536,), 128, (3,)),
    Case("transposed", "transposed1d_dilated", 32, 32, (131072,), 64, (5,), 1, 0, 3),
    Case("transposed", "transposed1d_strided", 16, 32, (131072,), 64, (3,), 2, 1, 2),
    Case("transposed", "transposed2d_square", 8, 64, (1024, 1024), 64, (3, 3)),
    Case("transposed", "transposed2d_asym_kernel", 8, 64, (512, 512), 64, (3, 7)),
    Case("transposed", "transposed2d_asym", 64, 64, (128, 256), 128, (3, 5)),
    Case("transposed", "transposed2d_asym_input", 8, 32, (512, 1024), 32, (3, 3)),
    Case("transposed", "transposed2d_grouped", 16, 32, (128, 256), 64, (3, 5), (2, 3), (1, 2), (2, 1), groups=4),
    Case("transposed", "transposed2d_padded", 8, 32, (512, 1024), 32, (3, 7), 1, (1, 3)),
    Case("transposed", "transposed2d_strided", 16, 32, (64, 128), 64, (3, 3), 5, 1, 2),
    Case("transposed", "transposed3d_asym", 16, 32, (16, 32, 64), 16, (3, 5, 7)),
    Case("transposed", "transposed3d_square", 8, 48, (64, 64, 64), 48, (3, 3, 3)),
    Case("transposed", "transposed3d_asym_kernel", 16, 32, (64, 64, 64), 64, (3, 5, 5)),
    Case("transposed", "transposed3d_asym_input", 8, 48, (96, 96, 96), 24, (3, 3, 3)),
    Case("transposed", "transposed3d_many_filters", 16, 64, (16, 32, 32), 128, (5, 5, 5)),
    Case("transposed", "transposed3d_grouped_asym", 8, 32, (12, 24, 48), 32, (3, 5, 7), 2, (1, 2, 3), 1, 1, groups=4),
    Case("transposed", "transposed3d_grouped", 4, 32, (32, 64, 128), 32, (3, 3, 3), 2, 1, groups=4),
    Case("transposed", "transposed3d_strided", 16, 32, (16, 32, 32), 64, (3, 3, 3), 2, 1, 2),
)


def tiny(case: Case) -> Case:
    """The same kernels on little data."""
    least = [
        d * (t - 1) + 1 + s for t, d, s in zip(case.taps, case.all(case.dilation), case.all(case.stride), strict=True)
    ]
    return replace(case, batch=1, extents=tuple(max(n, 4) for n in least))


def call_of(case: Case, pointwise: bool = False) -> Call:
    """The convolution as the language writes it."""
    if pointwise:
        return Call(name="conv", positional=("h", "w2"))
    named = {
        "stride": (case.stride, 1),
        "padding": (case.padding, 0),
        "dilation": (case.dilation, 1),
        **({"output_padding": (case.more, 0)} if case.transposed else {}),
        "groups": (case.groups or "channels", 1),
    }
    return Call(
        name="convtranspose" if case.transposed else "conv",
        positional=("x", "w"),
        named=tuple((name, value) for name, (value, usual) in named.items() if value != usual),
    )


def size_of(case: Case) -> convolutions.Size:
    """What the ladder asks for."""
    if case.pointwise:
        space = len(case.out)
        return convolutions.Size(
            images=case.batch,
            channels=case.channels,
            filters=case.pointwise,
            extents=case.out,
            out=case.out,
            taps=(1,) * space,
            stride=(1,) * space,
        )
    return convolutions.Size(
        images=case.batch,
        channels=case.channels,
        filters=case.filters,
        extents=case.extents,
        out=case.out,
        taps=case.taps,
        stride=case.all(case.stride),
        groups=case.groups or case.channels,
        transposed=case.transposed,
    )


def programs(case: Case, kind: str, most: int) -> list[str]:
    """The first rungs of the ladder."""
    epilogues = (Call(name="bias"),) if case.bias else ()
    slides = [
        (put("threads", threads), put("rows", rows))
        for threads, rows in ((128, 8), (256, 8), (128, 16), (128, 4), (256, 16))
    ]
    if case.groups == 0 and not case.pointwise:
        return [
            format_program(
                Program(
                    stages=(
                        Stage(operation=call_of(case), settings=(put("arch", "sm_90a"), *one), epilogues=epilogues),
                    )
                )
            )
            for one in slides[:most]
        ]
    main = call_of(case, bool(case.pointwise))
    before = (
        (Stage(operation=call_of(case), settings=(put("arch", "sm_90a"), *slides[0]), result="h"),)
        if case.pointwise
        else ()
    )
    return [
        format_program(
            Program(
                stages=(
                    *before,
                    Stage(operation=main, settings=(put("arch", "sm_90a"), *choice.settings), epilogues=epilogues),
                )
            )
        )
        for choice in list_choices(main, kind, size_of(case), most)
    ]


def list_choices(main: Call, kind: str, size: convolutions.Size, most: int) -> list[Any]:
    """So many choices of the planner, its first one in front: implicit products, halos, and the fastest of patches."""
    halos = convolutions.list_halo_choices(main, kind, size, "H200")
    chosen = list(convolutions.order_choices(convolutions.list_choices(main, kind, size, "H200", most), halos))
    if kind == "tf32" and math.prod(size.taps) > 1:
        patches = convolutions.list_patch_choices(main, "sm_90a", size, "H200")[:1]
        modelled = chosen[0].seconds * convolutions.correct_whole(chosen[0], size) if chosen else math.inf
        chosen[: 0 if patches and patches[0].seconds < modelled else 1] += patches
    return chosen[:most]


def operands(case: Case, kind: str, device: str) -> list[torch.Tensor]:
    """x, the filters, the bias, and the pointwise filters."""
    torch.manual_seed(1)
    per = case.channels // case.groups if case.groups else 1
    shape = (
        (case.channels, case.filters // case.groups, *case.taps) if case.transposed else (case.filters, per, *case.taps)
    )
    bound = 1 / math.sqrt(per * math.prod(case.taps))
    made = [
        torch.rand(case.batch, case.channels, *case.extents, device=device),
        (torch.rand(shape, device=device) * 2 - 1) * bound,
    ]
    made += [torch.rand(case.filters, device=device)] if case.bias else []
    made += (
        [
            (torch.rand(case.pointwise, case.filters, *((1,) * len(case.taps)), device=device) * 2 - 1)
            / math.sqrt(case.filters)
        ]
        if case.pointwise
        else []
    )
    return [tensor.to(DTYPES[kind]) for tensor in made]


def by_torch(case: Case, tensors: list[torch.Tensor]) -> torch.Tensor:
    """What torch users write."""
    function = getattr(torch.nn.functional, f"conv{'_transpose' if case.transposed else ''}{len(case.extents)}d")
    settings: dict[str, Any] = {
        "stride": case.stride,
        "padding": case.padding,
        "dilation": case.dilation,
        "groups": case.groups or case.channels,
        **({"output_padding": case.more} if case.transposed else {}),
    }
    result = function(tensors[0], tensors[1], tensors[2] if case.bias else None, **settings)
    return torch.nn.functional.conv2d(result, tensors[-1]) if case.pointwise else result


def load(case: Case, text: str, folder: Path) -> Any:
    """The compiled program's module."""
    names = ("x", "w", *(("bias",) if case.bias else ()), *(("w2",) if case.pointwise else ()))
    path = folder / f"candidate_{abs(hash((case.name, text)))}.py"
    path.write_text(compile_program(text, Binding(init_source=INIT, forward_arguments=names)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew()


def error_of(case: Case, kind: str, tensors: list[torch.Tensor], got: torch.Tensor) -> float:
    """Relative error of the whole result."""
    torch.backends.cudnn.allow_tf32 = False
    wanted = by_torch(case, tensors)
    torch.backends.cudnn.allow_tf32 = True
    apart, norm = 0.0, 0.0
    if got.shape != wanted.shape:
        return math.inf
    for ours, theirs in zip(got, wanted, strict=True):  # image by image: twice the memory is not there
        apart += float((ours.float() - theirs.float()).double().square().sum())
        norm += (
            float(theirs.double().square().sum())
            if theirs.numel() < 1 << 27
            else float(theirs.float().square().sum(dtype=torch.float64))
        )
    return math.sqrt(apart / norm)


def seconds(call: Callable[[], Any], flush: torch.Tensor) -> float:
    """Of one call, L2 flushed before it."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush.zero_()
    torch.cuda._sleep(4_000_000)  # about 2 ms, in which the host gets ahead: its work is no part of the time
    start.record()
    result = call()
    end.record()
    end.synchronize()
    del result
    return float(start.elapsed_time(end)) * 1e-3


def measured(case: Case, kind: str, models: list[tuple[str, Any]], rounds: int) -> list[dict[str, Any]]:
    """A row for each program; torch is measured between them."""
    tensors, flush = operands(case, kind, "cuda"), torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    rows = []
    for text, model in models:
        row: dict[str, Any] = {"group": case.group, "case": case.name, "kind": kind, "program": text}
        rows.append(row)
        try:
            row["error"] = error_of(case, kind, tensors, model(*tensors))
            torch.cuda.synchronize()
            if not row["error"] < ALLOWED[kind]:
                row["failed"] = "wrong result"
                continue
            times: list[list[float]] = [[], []]
            for _ in range(2):
                seconds(lambda: model(*tensors), flush), seconds(lambda: by_torch(case, tensors), flush)  # noqa: B023
            for _ in range(rounds):
                times[0].append(seconds(lambda: model(*tensors), flush))  # noqa: B023
                times[1].append(seconds(lambda: by_torch(case, tensors), flush))
            mine, torchs = (statistics.median(one) for one in times)
            row |= {
                "us": round(mine * 1e6, 1),
                "torch_us": round(torchs * 1e6, 1),
                "ratio": round(torchs / mine, 3),
                "tflops": round(case.flops / mine / 1e12, 1),
                "torch_tflops": round(case.flops / torchs / 1e12, 1),
            }
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}"[:400]
            traceback.print_exc()
    return rows


def profiled(case: Case, kind: str, models: list[tuple[str, Any]]) -> None:
    """Times of each kernel of ours and of torch's."""
    tensors = operands(case, kind, "cuda")
    for name, call in [
        *((text, lambda model=model: model(*tensors)) for text, model in models),
        ("torch", lambda: by_torch(case, tensors)),
    ]:
        call()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            for _ in range(5):
                call()
            torch.cuda.synchronize()
        print(f"# {case.name} {kind}: {name}")
        for event in sorted(found.key_averages(), key=lambda event: -event.self_device_time_total):
            print(f"  {event.self_device_time_total / 5:10.1f} us  {event.count / 5:5.1f}x  {event.key[:150]}")


def work(tasks: list[tuple[Case, str]], arguments: argparse.Namespace, ready: Any, turn: Any, results: Any) -> None:
    """One worker: compile all tasks, wait for the others, measure one at a time."""
    faulthandler.enable()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = False
    torch.set_grad_enabled(False)
    models: list[list[tuple[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case, kind in tasks:
            models.append([])
            try:
                few = operands(tiny(case), kind, "cuda")
                for text in programs(case, kind, arguments.sweep):
                    model = load(case, text, Path(folder))
                    model(*few)
                    models[-1].append((text, model))
                torch.cuda.synchronize()
            except Exception as error:
                traceback.print_exc()
                results.put(
                    [
                        {
                            "group": case.group,
                            "case": case.name,
                            "kind": kind,
                            "failed": f"compile: {type(error).__name__}: {error}"[:400],
                        }
                    ]
                )
        ready.wait()
        for (case, kind), found in zip(tasks, models, strict=True):
            with turn:
                if found:
                    if arguments.profile:
                        profiled(case, kind, found)
                        results.put([])
                    else:
                        results.put(measured(case, kind, found, arguments.rounds))
                gc.collect()
                torch.cuda.empty_cache()
    results.put(None)


def mean(ratios: list[float]) -> float:
    """Geometric."""
    return round(math.exp(statistics.fmean(map(math.log, ratios))), 3) if ratios else math.nan


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of the first programs' ratios, and of the best ones', by kind and group."""
    found: dict[str, Any] = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for groups in (
            ("2d", "3d"),
            ("2d",),
            ("3d",),
            ("1d",),
            ("depthwise",),
            ("transposed",),
            ("2d", "3d", "1d", "depthwise", "transposed"),
        ):
            by: dict[str, list[float]] = {}
            for row in rows:
                if row["kind"] == kind and row["group"] in groups and "ratio" in row:
                    by.setdefault(row["case"], []).append(row["ratio"])
            if by:
                found[f"{kind} {'+'.join(groups)}"] = {
                    "first": mean([ratios[0] for ratios in by.values()]),
                    "best": mean([max(ratios) for ratios in by.values()]),
                    "cases": len(by),
                }
    return found


def run(arguments: argparse.Namespace) -> int:
    """Compile in parallel, measure in turn, write."""
    tasks = [
        (case, kind)
        for case in CASES
        for kind in arguments.kinds.split(",")
        if (not arguments.only or case.group in arguments.only.split(",") or case.name in arguments.only.split(","))
        and (not arguments.profile or case.name == arguments.profile)
    ]
    start, context = time.monotonic(), multiprocessing.get_context("spawn")
    count = min(arguments.workers, len(tasks))
    ready, turn, results = context.Barrier(count), context.Lock(), context.Queue()
    workers = [
        context.Process(target=work, args=(tasks[n::count], arguments, ready, turn, results)) for n in range(count)
    ]
    for worker in workers:
        worker.start()
    rows: list[dict[str, Any]] = []
    left, died = count, False
    while left:
        try:
            got = results.get(timeout=5)
        except Exception:
            if any(worker.exitcode not in (None, 0) for worker in workers):
                print(f"# a worker died: {[worker.exitcode for worker in workers]}", flush=True)
                died = True
                for worker in workers:
                    worker.terminate()
                break
            continue
        left -= got is None
        for row in got or []:
            rows.append(row)
            print(json.dumps(row), flush=True)
        if got and not arguments.profile:
            out = Path(os.environ.get("OUT", ".")) / "conv.json"
            out.write_text(
                json.dumps(
                    {
                        "torch": torch.__version__,
                        "seconds": round(time.monotonic() - start),
                        "summary": summary(rows),
                        "rows": rows,
                    },
                    indent=1,
                )
                + "\n"
            )
    for name, means in summary(rows).items():
        print(f"# {name}: geometric mean {means['first']} (best of the sweep {means['best']}), {means['cases']} cases")
    failed = [row for row in rows if "failed" in row]
    print(f"# {len(rows)} rows, {len(failed)} failed, {time.monotonic() - start:.0f} s")
    return 1 if failed or died else 0


def dry_run(arguments: argparse.Namespace) -> int:
    """Every case's first program on the emulator, tiny."""
    import workbench

    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in (
            one
            for one in CASES
            if not arguments.only or one.group in arguments.only.split(",") or one.name in arguments.only.split(",")
        ):
            for kind in arguments.kinds.split(","):
                few = tiny(case)
                text = programs(case, kind, 1)[0]
                tensors = operands(few, kind, "cpu")
                model = load(case, text, Path(folder))
                with workbench.emulated(device="H200"), torch.no_grad():
                    got = model(*(tensor.to("cuda") for tensor in tensors)).cpu()
                wanted = by_torch(few, [tensor.double() for tensor in tensors])
                error = float((got.double() - wanted).norm() / wanted.norm())
                wrong += not error < ALLOWED[kind]
                print(f"{case.name} {kind} {tuple(got.shape)}: error {error:.1e}; {text}", flush=True)
    return 1 if wrong else 0


def main() -> int:
    """Measure, print, write; 1 when anything fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="groups (2d, 3d, 1d, depthwise, transposed) or names of cases")
    parser.add_argument("--kinds", default="tf32,bf16")
    parser.add_argument("--sweep", type=int, default=1, help="how many rungs of the ladder are measured")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--profile", default="", help="a case's name")
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    return dry_run(arguments) if arguments.dry_run else run(arguments)


if __name__ == "__main__":
    sys.exit(main())
