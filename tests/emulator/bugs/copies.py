"""Copies and elementwise kernels: bounds, views, alignment, memory that is not there or not written."""

import cutlass
import cutlass.cute as cute
import torch
from case import Case, numbers, views, written
from cutlass.cute.runtime import make_ptr

THREADS = 64


class Scale(Case):
    """y = 2 x, one element a thread, guarded; sizes that are no multiple of the CTA."""

    correct = ("", "half", "int", "no tail")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y, cute.size(x)).launch(grid=[cute.ceil_div(cute.size(x), THREADS), 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        i = block * THREADS + thread
        limit = n
        if cutlass.const_expr(self.variant == "less_or_equal"):
            limit = n + 1
        if cutlass.const_expr(self.variant == "no_guard"):
            limit = n + THREADS
        if i < limit:
            # BUG(less_or_equal, no_guard, next): out_of_bounds
            v = x[i + 1 if cutlass.const_expr(self.variant == "next") else i]
            y[i] = (v * 2).to(y.element_type)

    def check(self):
        dtype = {"half": torch.float16, "int": torch.int32}.get(self.variant, torch.float32)
        x = numbers(128 if self.variant == "no tail" else 150, dtype=dtype)
        y = written(*x.shape, dtype=dtype)
        self(*views(x, y))
        return y, x * 2


class Stencil(Case):
    """y[i] = x[i-1] + x[i] + x[i+1], zero outside."""

    advice = ("uncoalesced",)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y, cute.size(x)).launch(grid=[cute.ceil_div(cute.size(x), THREADS), 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        i = block * THREADS + thread
        if i < n:
            total = x[i]
            if i > (-1 if cutlass.const_expr(self.variant == "left") else 0):
                total += x[i - 1]  # BUG(left): out_of_bounds
            if i < (n if cutlass.const_expr(self.variant == "right") else n - 1):
                total += x[i + 1]  # BUG(right): out_of_bounds
            y[i] = total

    def check(self):
        x, y = numbers(100), written(100)
        self(*views(x, y))
        padded = torch.nn.functional.pad(x, (1, 1))
        return y, padded[:-2] + x + padded[2:]


class Reverse(Case):
    """y[n - 1 - i] = x[i]."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y, cute.size(x)).launch(grid=[2, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        i = block * THREADS + thread
        last = n if cutlass.const_expr(self.variant == "one_too_far") else n - 1
        if i < n:
            y[last - i] = x[i]  # BUG(one_too_far): out_of_bounds

    def check(self):
        x, y = numbers(111), written(111)
        self(*views(x, y))
        return y, x.flip(0)


class Gather(Case):
    """y[i] = x[index[i]], the index checked."""

    correct = ("", "clamped")
    advice = ("uncoalesced",)

    @cute.jit
    def __call__(self, x: cute.Tensor, index: cute.Tensor, y: cute.Tensor):
        self.kernel(x, index, y, cute.size(x)).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, index: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        at = index[thread]
        if cutlass.const_expr(self.variant == "clamped"):
            y[thread] = x[cutlass.min(cutlass.max(at, 0), n - 1)]
        elif cutlass.const_expr(self.variant == "unchecked"):
            y[thread] = x[at]  # BUG(unchecked): out_of_bounds
        else:
            y[thread] = cutlass.Float32(0)
            if at >= 0 and at < n:
                y[thread] = x[at]

    def check(self):
        x, y = numbers(50), written(THREADS)
        index = (torch.arange(THREADS, dtype=torch.int32) * 13 % 60 - 2).cuda()
        self(*views(x, index, y))
        inside = (index >= 0) & (index < 50)
        found = x[index.clamp(0, 49).long()]
        return y, found if self.variant == "clamped" else torch.where(inside, found, 0)


class Rows(Case):
    """y[r, c] = x[r, c] + 1 where both are slices of larger tensors, with their own strides."""

    correct = ("", "whole", "columns", "same storage")
    advice = ("uncoalesced",)

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        m, n = x.shape
        self.kernel(x, y, m, n).launch(grid=[cute.size(x, mode=[0]), 1, 1], block=[32, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, m: cutlass.Int32, n: cutlass.Int32):
        column, _, _ = cute.arch.thread_idx()
        row, _, _ = cute.arch.block_idx()
        limit = n
        if cutlass.const_expr(self.variant in ("column_past_slice", "write_past_slice")):
            limit = n + 1
        if cutlass.const_expr(self.variant == "row_past_slice"):
            row += 1
        source = x
        if cutlass.const_expr(self.variant == "compact_strides"):
            source = cute.make_tensor(x.iterator, cute.make_layout((m, n), stride=(n, 1)))
        if column < limit:
            # BUG(column_past_slice, row_past_slice, compact_strides): out_of_bounds
            v = source[
                row, cutlass.min(column, n - 1) if cutlass.const_expr(self.variant == "write_past_slice") else column
            ]
            y[row, column] = v + 1  # BUG(write_past_slice): out_of_bounds

    def check(self):
        big, out = numbers(10, 40), torch.zeros(10, 40, device="cuda")
        if self.variant == "whole":
            x, y = numbers(6, 30), written(6, 30)
        elif self.variant == "columns":
            x, y = big.t()[3:20, 1:9], out.t()[3:20, 1:9]
        elif self.variant == "same storage":
            x, y = big[:4, :20], big[5:9, 20:]
        else:
            x, y = big[2:8, 5:30], out[2:8, 5:30]
        expected = x + 1
        self(*views(x, y))
        return y, expected


class Vector(Case):
    """128-bit loads and stores; the alignment that the DSL is told must be the tensor's (a pointer made by hand is
    believed).
    """

    correct = ("", "half", "aligned slice")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        n = THREADS * (128 // x.element_type.width)
        first = cute.make_ptr(
            x.element_type,
            (x.iterator + (1 if cutlass.const_expr(self.variant == "load_misaligned") else 0)).toint(),
            cute.AddressSpace.gmem,
            assumed_align=16,
        )
        into = cute.make_ptr(
            y.element_type,
            (y.iterator + (3 if cutlass.const_expr(self.variant == "store_misaligned") else 0)).toint(),
            cute.AddressSpace.gmem,
            assumed_align=16,
        )
        self.kernel(cute.make_tensor(first, n), cute.make_tensor(into, n)).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        width = 128 // x.element_type.width
        source, target = cute.zipped_divide(x, (width,)), cute.zipped_divide(y, (width,))
        part = cute.make_rmem_tensor(width, x.element_type)
        atom = cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), x.element_type, num_bits_per_copy=128)
        cute.copy(atom, source[None, thread], part)  # BUG(load_misaligned): misaligned
        cute.copy(atom, part, target[None, thread])  # BUG(store_misaligned): misaligned

    def check(self):
        dtype = torch.float16 if self.variant == "half" else torch.float32
        n = THREADS * (8 if self.variant == "half" else 4)
        big, out = numbers(n + 8, dtype=dtype), torch.zeros(n + 8, dtype=dtype, device="cuda")
        first = 4 if self.variant == "aligned slice" else 0
        x, y = big[first:], out[: len(big) - first]
        self(*views(x, y, align=16))
        return y[:n], x[:n]


class Accumulate(Case):
    """y += x: y must have been written before."""

    correct = ("", "ones")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        y[thread] = y[thread] + x[thread]  # BUG(empty): uninitialised

    def check(self):
        x = numbers(THREADS)
        y = (
            written(THREADS)
            if self.variant == "empty"
            else torch.ones(THREADS, device="cuda")
            if self.variant == "ones"
            else torch.zeros(THREADS, device="cuda")
        )
        expected = x + (1 if self.variant == "ones" else 0)
        self(*views(x, y))
        return y, expected


class Chain(Case):
    """Two kernels, the second reads what the first wrote: the first may leave the end out."""

    @cute.jit
    def __call__(self, x: cute.Tensor, t: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        self.first(x, t, n).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])
        self.second(t, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def first(self, x: cute.Tensor, t: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        if thread < n:
            t[thread] = x[thread] * 3

    @cute.kernel
    def second(self, t: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        y[thread] = t[thread] - 1  # BUG(last_left_out): uninitialised

    def check(self):
        x, t, y = numbers(THREADS), written(THREADS), written(THREADS)
        self(*views(x, t, y), THREADS - 1 if self.variant == "last_left_out" else THREADS)
        return y, x * 3 - 1


class Where(Case):
    """Memory that the kernel cannot reach: a tensor left on the host, or one that is gone."""

    correct = ("", "pointer")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.jit
    def on_pointer(self, x: cute.Pointer, y: cute.Tensor):
        self.kernel(cute.make_tensor(x, THREADS), y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        y[thread] = x[thread] + 1  # BUG(host): host_memory # BUG(freed): use_after_free

    def check(self):
        x, y = numbers(THREADS), written(THREADS)
        if self.variant == "host":
            cpu = torch.ones(THREADS)
            self(*views(cpu, y))
        if self.variant in ("pointer", "freed"):
            expected, pointer = x + 1, make_ptr(cutlass.Float32, x.data_ptr(), cute.AddressSpace.gmem)
            if self.variant == "freed":
                del x
            self.on_pointer(pointer, *views(y))
            return y, expected
        self(*views(x, y))
        return y, x + 1


class Strided(Case):
    """Every eighth element of x."""

    correct = ("", "contiguous")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        # BUG(far_apart): uncoalesced
        y[thread] = x[thread * 8 if cutlass.const_expr(self.variant == "far_apart") else thread]

    def check(self):
        x, y = numbers(THREADS * 8), written(THREADS)
        self(*views(x, y))
        return y, x[::8] if self.variant == "far_apart" else x[:THREADS]


class Large(Case):
    """What a launch may ask for: threads, shared memory, grid."""

    correct = ("", "opt-in")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        floats = {"too_much_shared": 64 * 1024, "opt-in": 25 * 1024}.get(self.variant, 1024)
        threads = 2048 if self.variant == "too_many_threads" else THREADS
        grid = 70_000 if self.variant == "grid_too_large" else 1
        self.kernel(x, y, floats).launch(grid=[1, grid, 1], block=[threads, 1, 1], smem=4 * floats)

    @cute.kernel  # BUG(too_much_shared, too_many_threads, grid_too_large): bad_launch
    def kernel(self, x: cute.Tensor, y: cute.Tensor, floats: cutlass.Constexpr):
        thread, _, _ = cute.arch.thread_idx()
        tile = cutlass.memory.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(floats), 16)
        tile[thread] = x[thread]
        y[thread] = tile[thread] + 1

    def check(self):
        x, y = numbers(THREADS), written(THREADS)
        self(*views(x, y))
        return y, x + 1


class Fragment(Case):
    """Four elements a thread through registers; the fragment must be written before it is read."""

    correct = ("", "predicated", "half")

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y, cute.size(x)).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
        thread, _, _ = cute.arch.thread_idx()
        part = cute.make_rmem_tensor(4, x.element_type)
        if cutlass.const_expr(self.variant == "not_filled"):
            pass
        elif cutlass.const_expr(self.variant == "filled_by_some"):
            if thread < 32:
                part.fill(1)
        elif cutlass.const_expr(self.variant != "predicated"):
            part.fill(1)
        for j in cutlass.range_constexpr(4):
            if cutlass.const_expr(self.variant == "predicated"):
                if j * THREADS + thread < n:
                    part[j] = x[j * THREADS + thread]
            else:
                part[j] = part[j] + x[j * THREADS + thread]  # BUG(not_filled, filled_by_some): uninitialised_register
        if cutlass.const_expr(self.variant == "predicated"):
            part.store(part.load() + 1)  # garbage in what sticks out, which is dropped below
        for j in cutlass.range_constexpr(4):
            if j * THREADS + thread < n:
                y[j * THREADS + thread] = part[j]

    def check(self):
        dtype = torch.float16 if self.variant == "half" else torch.float32
        n = 4 * THREADS - (9 if self.variant == "predicated" else 0)
        x, y = numbers(n, dtype=dtype), written(n, dtype=dtype)
        self(*views(x, y))
        return y, x + 1


class Table(Case):
    """A small table in registers, indexed by data: local memory."""

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        table = cute.make_rmem_tensor(8, cutlass.Int32)
        for j in cutlass.range_constexpr(7 if cutlass.const_expr(self.variant == "one_not_written") else 8):
            table[j] = j * j
        at = x[thread]
        # BUG(one_not_written): uninitialised_register
        # BUG(past_the_table): local_out_of_bounds
        y[thread] = table[at + 1 if cutlass.const_expr(self.variant == "past_the_table") else at]

    def check(self):
        x, y = (torch.arange(THREADS, dtype=torch.int32) % 8).cuda(), written(THREADS, dtype=torch.int32)
        self(*views(x, y))
        return y, x * x
