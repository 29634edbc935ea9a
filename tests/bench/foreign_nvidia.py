"""Cases of foreign_kernels.py: NVIDIA's own CuTe DSL examples, run from a folder that is not part of the repository.

The folder is examples/python/CuTeDSL of github.com/NVIDIA/cutlass. Files that are absent have no cases.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import json
import math
import operator
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils
import torch
import torch.nn.functional as F
from cutlass.cute.runtime import from_dlpack
from foreign_cases import LIMITS, Arguments, Case, Made, product_work, work_of
from foreign_examples import Shape, attention_group, attention_shapes

HALF, BFLOAT, SINGLE = torch.float16, torch.bfloat16, torch.float32
ELEMENTS = {HALF: cutlass.Float16, BFLOAT: cutlass.BFloat16, SINGLE: cutlass.Float32}
AMPERE, HOPPER = "cute/ampere/kernel", "cute/hopper/kernel"
ADD, APPLY = f"{AMPERE}/elementwise/elementwise_add.py", f"{AMPERE}/elementwise/elementwise_apply.py"
SOFTMAX = "experimental/primitives/tutorial/06_softmax.py"
NOTEBOOK = "cute/notebooks/elementwise_add.ipynb"


@functools.cache
def load(folder: Path, name: str) -> ModuleType:
    """The module of one example. Its folder of helpers can be imported too."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    path = folder / name
    if path.suffix == ".ipynb":
        path = export_notebook(path)
    spec = importlib.util.spec_from_file_location(f"nvidia_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with contextlib.redirect_stdout(io.StringIO()):
        spec.loader.exec_module(module)
    return module


def export_notebook(path: Path) -> Path:
    """A file with the imports and definitions of a notebook's cells, without what they run.

    A function of a name that was defined before gets the cell's number.
    """
    seen: set[str] = set()
    parts: list[str] = []
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        text = "".join(cell["source"])
        if cell["cell_type"] != "code" or not text.startswith(("import", "@", "#")) or "\ndef " not in f"\n{text}":
            if cell["cell_type"] == "code" and text.startswith("import"):
                parts.append(text)
            continue
        lines = text.splitlines()
        ends = [at for at, line in enumerate(lines) if line[:1].isalpha() and not line.startswith("def ")]
        text = "\n".join(lines[: ends[0]] if ends else lines)
        name = text.split("def ", 1)[1].split("(")[0]
        parts.append(text.replace(f"def {name}(", f"def {name}_{number}(") if name in seen else text)
        seen.add(name)
    target = Path(tempfile.mkdtemp(prefix="foreign-")) / "notebook.py"
    target.write_text("\n\n\n".join(parts) + "\n")
    return target


def stream() -> cuda.CUstream:
    """torch's current stream."""
    return cuda.CUstream(torch.cuda.current_stream().cuda_stream)


def compile_once(
    function: Callable[..., Any],
    results: Any,
    *arguments: Any,
    constants: tuple[Any, ...] = (),
    stream_argument: bool = False,
) -> Callable[[], Any]:
    """A call that compiles the first time and then launches; it returns `results`.

    `constants` follow the arguments and are given to the compiler alone; with `stream_argument`, torch's current stream
    comes last. What the example prints is dropped.
    """
    compiled: list[Callable[..., Any]] = []

    def call() -> Any:
        last = (stream(),) if stream_argument else ()
        if not compiled:
            with contextlib.redirect_stdout(io.StringIO()):
                compiled.append(cute.compile(function, *arguments, *constants, *last))
        compiled[0](*arguments, *last)
        return results

    return call


def dynamic(tensor: torch.Tensor, leading: int) -> Any:
    """A tensor for CuTe, aligned to 16 bytes, of dynamic shape, contiguous along axis `leading`."""
    return from_dlpack(tensor, assumed_align=16).mark_layout_dynamic(leading_dim=leading)


def compact(tensor: torch.Tensor, leading: int, order: tuple[int, ...] | None = None) -> Any:
    """As `dynamic`, and the extent along `leading` is a multiple of 16 bytes."""
    return dynamic(tensor, leading).mark_compact_shape_dynamic(
        mode=leading, stride_order=order or tensor.dim_order(), divisibility=16 // tensor.element_size()
    )


def add_by_apply(apply: Callable[..., Any]) -> Any:
    """elementwise_apply as a function of two operands and their sum."""

    @cute.jit  # type: ignore[untyped-decorator]
    def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, where: cuda.CUstream) -> None:
        apply(operator.add, [a, b], c, where)

    return add


@dataclass(frozen=True)
class Examples:
    """The cases of the examples in `folder`."""

    folder: Path
    tiny: bool

    def module(self, name: str) -> ModuleType:
        """One example's module."""
        return load(self.folder, name)

    def additions(self) -> Iterator[Case]:
        """elementwise_add.py with several widths of copies, elementwise_apply.py, and the four of the notebook."""
        shape = (256, 512) if self.tiny else (16384, 8192)
        group, size = f"add float16 {shape[0]}x{shape[1]}", math.prod(shape)
        notebook = ("naive_elementwise_add", "vectorized_elementwise_add", "elementwise_add", "elementwise_add_29")
        for path, name, constants in (
            *((ADD, "elementwise_add", (bits,)) for bits in (16, 32, 64, 128)),
            (APPLY, "elementwise_apply", ()),
            *((NOTEBOOK, name, ()) for name in notebook),
        ):
            make = partial(self.add, shape=shape, path=path, name=name, constants=constants)
            label = f"nvidia {Path(path).stem}{Path(path).suffix} {name} {' '.join(map(str, constants))}".strip()
            yield Case(f"{label} {group}", group, make, work_of(size, 6 * size, SINGLE))

    def add(self, given: Arguments, shape: tuple[int, int], path: str, name: str, constants: tuple[int, ...]) -> Made:
        """One of the additions of two matrices."""
        a, b, c = (given.normal(*shape) for _ in range(3))
        views = [from_dlpack(tensor, assumed_align=16) for tensor in (a, b, c)]
        function = getattr(self.module(path), name)
        if path == APPLY:
            call = compile_once(add_by_apply(function), c, *views, stream_argument=True)
        else:
            call = compile_once(function, c, *views, constants=constants)
        return Made(call, lambda: a + b, LIMITS[HALF])

    def softmaxes(self) -> Iterator[Case]:
        """The kernels of the tutorial on softmax, from one thread a row to many; its fourth has a data race."""
        for shape in ((128, 512),) if self.tiny else ((16384, 1024), (4096, 8192)):
            group, size = f"softmax float32 {shape[0]}x{shape[1]}", math.prod(shape)
            # 1 and 5 have a thread for each row: over 10 ms where there are few long rows
            for number in (1, 2, 3, 5, 6, 7, 8) if shape[1] <= 4096 else (2, 3, 6, 7, 8):
                make = partial(self.softmax, shape=shape, number=number)
                yield Case(f"nvidia {group} kernel {number}", group, make, work_of(5 * size, 8 * size, SINGLE))

    def softmax(self, given: Arguments, shape: tuple[int, int], number: int) -> Made:
        """One of them."""
        x, y = given.normal(*shape, dtype=SINGLE), given.empty(*shape, dtype=SINGLE)
        module, (rows, columns) = self.module(SOFTMAX), shape
        whole: dict[int, tuple[str, tuple[int, ...]]] = {
            1: ("softmax_forward1", (rows, 128)),
            3: ("softmax_forward3", (rows,)),
            5: ("softmax_forward_online1", (rows, 128)),
            6: ("softmax_forward_online2", (rows, columns)),
        }
        name, constants = whole.get(number, ("softmax_block_per_row", ()))
        if number not in whole:
            kernel = "softmax_forward_online_kernel8" if number == 8 else f"softmax_forward_kernel{number}"
            constants = (rows, columns, getattr(module, kernel), getattr(module, f"KERNEL{number}_BLOCK_SIZE"))
        views = [from_dlpack(tensor, assumed_align=16) for tensor in (x, y)]
        call = compile_once(getattr(module, name), y, *views, constants=constants)
        return Made(call, lambda: torch.softmax(x, -1), LIMITS[SINGLE])

    def norms(self) -> Iterator[Case]:
        """cta_norm.py, with several numbers of threads, beside the worked example's LayerNorm."""
        shape = (8, 1024) if self.tiny else (16384, 8192)
        group, size = f"layer_norm {HALF} {shape[0]}x{shape[1]}", math.prod(shape)
        for threads in (None, 128, 512, 1024):
            make = partial(self.norm, shape=shape, threads=threads)
            yield Case(f"nvidia cta_norm {group} threads {threads}", group, make, work_of(8 * size, 4 * size, SINGLE))

    def norm(self, given: Arguments, shape: tuple[int, int], threads: int | None) -> Made:
        """LayerNorm with so many threads for a row; None for the example's own choice."""
        x, y = given.normal(*shape), given.empty(*shape)
        weight, bias = given.normal(shape[1]), given.normal(shape[1])
        function = self.module(f"{HOPPER}/cta_norm/cta_norm.py").CtaNorm(shape[1], "layer", threads)
        views = [from_dlpack(tensor, assumed_align=16) for tensor in (y, x, weight, bias)]
        # the same results as the worked example's
        call = compile_once(function, [y, x], *views, cutlass.Float32(1e-5))
        return Made(call, lambda: [F.layer_norm(x, shape[1:], weight, bias, 1e-5), x], LIMITS[HALF])

    def simt_products(self) -> Iterator[Case]:
        """sgemm.py, with A and B along k, and along m and n."""
        size = 256 if self.tiny else 2048
        for axes in ((1, 1), (0, 0), (0, 1), (1, 0)):
            name = f"nvidia sgemm {size} A along {'mk'[axes[0]]} B along {'nk'[axes[1]]}"
            make = partial(self.simt_product, size=size, axes=axes)
            yield Case(name, f"sgemm {size}", make, product_work(size, size, size, SINGLE))

    def simt_product(self, given: Arguments, size: int, axes: tuple[int, int]) -> Made:
        """A B^T, with A and B contiguous along these axes."""
        plain = [given.normal(size, size, dtype=SINGLE) for _ in range(3)]
        tensors = [tensor if axis else tensor.t() for tensor, axis in zip(plain, (*axes, 1), strict=True)]
        views = [
            dynamic(tensor, axis).mark_compact_shape_dynamic(mode=axis, divisibility=size)
            for tensor, axis in zip(tensors, (*axes, 1), strict=True)
        ]
        function = self.module(f"{AMPERE}/dense_gemm/sgemm.py").SGemm()
        a, b, c = tensors
        # its stream comes after an epilogue that has a default, so that torch's stream is not given: it is the default
        return Made(compile_once(function, c, *views), lambda: a @ b.t(), LIMITS[SINGLE])

    def tensor_products(self) -> Iterator[Case]:
        """tensorop_gemm.py (mma.sync), dense_gemm.py and dense_gemm_persistent.py (wgmma), beside gemm_hopper."""
        square = 192 if self.tiny else 4096
        shapes = (((128, 256), (2, 1)), ((128, 128), (2, 1)), ((128, 128), (1, 1)), ((64, 128), (1, 2)))
        for dtype, size in ((HALF, square), (BFLOAT, square // 2)):
            group, work = f"gemm {dtype} {size}", product_work(size, size, size, dtype)
            for atoms in ((2, 2, 1), (4, 2, 1), (1, 4, 1)):
                make = partial(self.mma_sync, size=size, dtype=dtype, atoms=atoms)
                yield Case(f"nvidia tensorop_gemm {group} warps {atoms}", group, make, work)
            for name in ("dense_gemm", "dense_gemm_persistent"):
                for tile, cluster in shapes:
                    make = partial(self.wgmma, size=size, dtype=dtype, name=name, tile=tile, cluster=cluster)
                    yield Case(f"nvidia {name} {group} tile {tile} cluster {cluster}", group, make, work)

    def mma_sync(self, given: Arguments, size: int, dtype: torch.dtype, atoms: tuple[int, int, int]) -> Made:
        """tensorop_gemm.py with so many warps along m, n and k."""
        module = self.module(f"{AMPERE}/dense_gemm/tensorop_gemm.py")
        a, b, c = (given.normal(1, size, size, dtype=dtype) for _ in range(3))
        views = [compact(a, 2, (0, 1, 2)), compact(b.transpose(1, 2), 1, (0, 2, 1)), compact(c, 2, (0, 1, 2))]
        gemm = module.TensorOpGemm(ELEMENTS[dtype], ELEMENTS[dtype], cutlass.Float32, atoms, False)

        @cute.jit  # type: ignore[untyped-decorator]
        def multiply(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, where: cuda.CUstream) -> None:
            module.bmm(gemm, x, y, z, where)

        return Made(compile_once(multiply, c[0], *views, stream_argument=True), lambda: a[0] @ b[0].t(), LIMITS[dtype])

    def wgmma(
        self,
        given: Arguments,
        size: int,
        dtype: torch.dtype,
        name: str,
        tile: tuple[int, int],
        cluster: tuple[int, int],
    ) -> Made:
        """dense_gemm.py or dense_gemm_persistent.py."""
        a, b, c = (given.normal(1, size, size, dtype=dtype).permute(1, 2, 0) for _ in range(3))
        module = self.module(f"{HOPPER}/dense_gemm/{name}.py")
        constants: tuple[Any, ...] = ()
        if name == "dense_gemm":
            gemm = module.HopperWgmmaGemmKernel(cutlass.Float32, tile, cluster)
        else:
            gemm = module.HopperWgmmaGemmPersistentKernel(cutlass.Float32, tile, cluster, 1, True)
            constants = (cutlass.utils.HardwareInfo().get_max_active_clusters(math.prod(cluster)),)
        views = [dynamic(tensor, 1) for tensor in (a, b, c)]
        call = compile_once(gemm, c[:, :, 0], *views, constants=constants, stream_argument=True)
        return Made(call, lambda: a[:, :, 0] @ b[:, :, 0].t(), LIMITS[dtype])

    def attentions(self) -> Iterator[Case]:
        """flash_attention_v2.py (mma.sync) and fmha.py (wgmma), beside flash_attention."""
        for shape, dtype, causal in attention_shapes(self.tiny):
            group, work = attention_group(shape, dtype, causal)
            for blocks in ((128, 64), (128, 128), (64, 64)):
                make = partial(self.flash_attention, shape=shape, dtype=dtype, causal=causal, blocks=blocks)
                yield Case(f"nvidia flash_attention_v2 {group} blocks {blocks}", group, make, work)
            for persistent in (False, True):
                make = partial(self.fmha, shape=shape, dtype=dtype, causal=causal, persistent=persistent)
                yield Case(f"nvidia fmha {group}{' persistent' if persistent else ''}", group, make, work)

    def flash_attention(
        self, given: Arguments, shape: Shape, dtype: torch.dtype, causal: bool, blocks: tuple[int, int]
    ) -> Made:
        """flash_attention_v2.py on (batch, length, heads, dim) with blocks of (queries, keys), four warps."""
        q, k, v, o = (given.normal(*shape, dtype=dtype) for _ in range(4))
        module = self.module(f"{AMPERE}/attention/flash_attention_v2.py")
        function = module.FlashAttentionForwardAmpere(shape[3], *blocks, 128, causal)
        views = [compact(tensor, 3) for tensor in (q, k, v, o)]
        call = compile_once(
            function, o.transpose(1, 2), *views, cutlass.Float32(shape[3] ** -0.5), stream_argument=True
        )
        return Made(call, lambda: expected_attention(q, k, v, causal), LIMITS[dtype])

    def fmha(self, given: Arguments, shape: Shape, dtype: torch.dtype, causal: bool, persistent: bool) -> Made:
        """fmha.py on (batch, length, heads, dim), two warpgroups of 64 queries and blocks of 128 keys."""
        batch, length, heads, dim = shape
        q, k, v, o = (given.normal(*shape, dtype=dtype) for _ in range(4))
        lse = given.empty(batch, length, heads, 1, 1, dtype=SINGLE)
        # (length, dim, heads of a group, groups, batch), with one head in a group
        views = [dynamic(t.view(batch, length, heads, 1, dim).permute(1, 4, 3, 2, 0), 1) for t in (q, k, v, o)]
        views.append(dynamic(lse.permute(1, 4, 3, 2, 0), 1))
        module = self.module(f"{HOPPER}/attention/fmha.py")
        function = module.HopperFusedMultiHeadAttentionForward(
            cutlass.Float32, cutlass.Float32, (64, 128, dim), persistent, module.fmha_utils.MaskEnum.WINDOW_MASK
        )
        scale = dim**-0.5
        numbers = [cutlass.Float32(value) for value in (scale * math.log2(math.e), scale, 1.0)]
        window = (None, cutlass.Int32(0) if causal else None)
        call = compile_once(function, o.transpose(1, 2), *views, *numbers, *window, stream_argument=True)
        return Made(call, lambda: expected_attention(q, k, v, causal), LIMITS[dtype])

    def sigmoid_attentions(self) -> Iterator[Case]:
        """hstu_attention.py: SiLU in place of softmax, and a bias of the scores."""
        shape = (1, 256, 2, 128) if self.tiny else (4, 2048, 4, 128)
        batch, length, heads, dim = shape
        scores = batch * heads * length * length
        group = f"hstu_attention {BFLOAT} {shape}"
        work = work_of(4 * scores * dim, 2 * (4 * math.prod(shape) + scores), BFLOAT)
        for blocks, threads in (((64, 64), 128), ((128, 64), 128), ((128, 64), 256), ((64, 128), 128)):
            make = partial(self.sigmoid_attention, shape=shape, blocks=blocks, threads=threads)
            yield Case(f"nvidia {group} blocks {blocks} threads {threads}", group, make, work)

    def sigmoid_attention(self, given: Arguments, shape: Shape, blocks: tuple[int, int], threads: int) -> Made:
        """hstu_attention.py on (batch, length, heads, dim) with blocks of (queries, keys)."""
        batch, length, heads, dim = shape
        q, k, v, o = (given.normal(*shape, dtype=BFLOAT) for _ in range(4))
        bias = given.normal(batch, heads, length, length, dtype=BFLOAT)
        module = self.module(f"{AMPERE}/attention/hstu_attention.py")
        function = module.HSTUAttentionForwardAmpere(
            cutlass.BFloat16, batch, length, length, heads, dim, *blocks, threads
        )
        views = [compact(tensor, 3) for tensor in (q, k, v, o, bias)]

        def expected() -> Any:
            return module.run_pytorch_hstu_test(BFLOAT, *(t.transpose(1, 2) for t in (q, k, v)), bias, False)

        return Made(compile_once(function, o, *views, stream_argument=True), expected, LIMITS[BFLOAT])


def expected_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """torch's attention on (batch, length, heads, dim): (batch, heads, length, dim)."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def cases(folder: Path, tiny: bool) -> Iterator[Case]:
    """All of this file."""
    if not folder.is_dir():
        raise SystemExit(f"{folder} is no folder: it should be examples/python/CuTeDSL of NVIDIA's CUTLASS")
    examples = Examples(folder, tiny)
    yield from examples.additions()
    yield from examples.softmaxes()
    yield from examples.norms()
    yield from examples.simt_products()
    yield from examples.tensor_products()
    yield from examples.attentions()
    yield from examples.sigmoid_attentions()
