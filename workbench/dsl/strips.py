"""A reduction along a strided axis, its rows brought to shared memory by bulk copies that need no alignment: `.through(shared)`.

A thread's own loads are of four bytes where the rows do not begin at multiples of 16 bytes, and of those it takes many to keep the memory busy. A bulk copy takes any range that begins and ends at
multiples of 16 bytes, so each brings the columns wanted and a few more.
"""

from __future__ import annotations

from workbench.dsl.axes import View
from workbench.dsl.ir import Rejection, Stage, number, setting
from workbench.dsl.levels import Plan
from workbench.dsl.operation import MOST_THREADS, WARPS
from workbench.dsl.pieces import Parts, expression
from workbench.dsl.walking import Walk, assigned, indented, level_lines

THREADS, UNROLL = 256, 4  # where nothing is said: threads that reduce, columns of each
PIECES = 8  # rows of a strip in one stage
ROOM = 192 << 10  # bytes of shared memory for the stages, of 227 KB

HEAD = '''
THREADS = {threads}  # that reduce; one more warp copies
PIECES = {pieces}  # rows of a strip in one stage


@cute.kernel
def rowwise_kernel({parameters}, y: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32, units: cutlass.Int32, strip: cutlass.Constexpr, stages: cutlass.Constexpr):
    """A strip of columns per CTA: {doc}. One warp copies rows of it into shared memory, ahead of the threads that reduce them.

    A copy begins and ends at multiples of 16 bytes, so it holds a few columns more than the strip. units: how many 16 bytes a tensor has.
    """
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    strips = (columns + strip - 1) // strip
    batch = block // strips
    unit = cutlass.const_expr(128 // {first}.element_type.width)  # elements in 16 bytes
    length = cutlass.const_expr((strip + unit - 1) // unit + 1)  # of a copy, in units
    memory = cutlass.memory.SmemAllocator()
    barriers = memory.allocate_array(cutlass.Int64, stages * 2)
{allocated}
    pipe = pipeline.PipelineTmaAsync.create(
        barrier_storage=barriers, num_stages=stages, producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, THREADS // 32), tx_count={tensors}length * 16 * PIECES, cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    begin = cutlass.min(block % strips * strip, columns - strip)  # the last strip may overlap the one before it
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == THREADS // 32:
        bulk = cute.make_copy_atom(cpasync.CopyBulkG2SOp(), {first}.element_type, num_bits_per_copy=length * 128)
        writing = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, stages)
        for step in cutlass.range((rows + PIECES - 1) // PIECES, unroll=1):
            pipe.producer_acquire(writing)
            piece = thread % 32
            if piece < PIECES:
                start = (batch * rows + cutlass.min(step * PIECES + piece, rows - 1)) * columns + begin
                start = cutlass.min(start // unit, units - length) * unit
{copies}
            pipe.producer_commit(writing)
            writing.advance()
        pipe.producer_tail(writing)
    else:
        width = cutlass.const_expr((strip + THREADS - 1) // THREADS)  # columns of a thread, THREADS apart
        turns = cutlass.const_expr(PIECES)
        reading = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, stages)
{body}


@cute.jit
def rowwise({parameters}, y: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32, batches: cutlass.Int32, units: cutlass.Int32, stream: cuda.CUstream, strip: cutlass.Constexpr, stages: cutlass.Constexpr):
    rowwise_kernel({arguments}, y, rows, columns, units, strip, stages).launch(grid=[batches * ((columns + strip - 1) // strip), 1, 1], block=[THREADS + 32, 1, 1], stream=stream)


def in_units(tensor, least):
    """A tensor as (units, elements in 16 bytes), at least `least` units: copied where it does not begin or end at multiples of 16 bytes."""
    unit = 16 // tensor.element_size()
    more = max(least * unit - tensor.numel(), -tensor.numel() % unit)
    flat = tensor.view(-1)
    if more or tensor.data_ptr() % 16:
        flat = torch.empty(tensor.numel() + more, dtype=tensor.dtype, device=tensor.device)
        flat[: tensor.numel()] = tensor.view(-1)
    return flat.view(-1, unit)

'''


def emit(found: Plan, threads: int, unroll: int, lines: tuple[list[str], list[str]]) -> Parts:
    """Text for a plan of one walk. `lines`: those of forward that take the tensors and work out the sizes, and those that allocate y."""
    names = found.plain
    fields = {
        "threads": threads, "pieces": PIECES, "parameters": ", ".join(f"{name}: cute.Tensor" for name in names), "arguments": ", ".join(names), "first": names[0],
        "doc": " and ".join(dict.fromkeys(item.op for item in found.reductions)), "tensors": f"{len(names)} * " if len(names) > 1 else "",
        "allocated": "\n".join(f"    {name}_shared = memory.allocate_tensor({name}.element_type, cute.make_layout((length * unit, PIECES, stages)), 128)" for name in names),
        "copies": "\n".join(line for name in names for line in _copy(name)), "body": "\n".join(indented(_consume(found), 2)),
    }  # fmt: skip
    return Parts(kernels=HEAD.format(**fields), forward="\n".join(_forward(names, threads, unroll, lines)), imports="import math\nimport cutlass.pipeline as pipeline\nfrom cutlass.cute.nvgpu import cpasync")


def _copy(name: str) -> list[str]:
    source = f"cute.make_tensor(cute.make_ptr({name}.element_type, ({name}.iterator + start).toint(), cute.AddressSpace.gmem, assumed_align=16), cute.make_layout(length * unit))"
    return [f"                cute.copy(bulk, {source}, {name}_shared[None, piece, writing.index], mbar_ptr=pipe.producer_get_barrier(writing))"]


def _consume(found: Plan) -> list[str]:
    """The walk, its chunks from shared memory; then the results of the thread's columns."""
    fetch = ["pipe.consumer_wait(reading)", *(f"{name}_part = cute.make_rmem_tensor(cute.make_layout((width, turns)), {name}.element_type)" for name in found.plain)]
    fetch += ["for turn in cutlass.range_constexpr(turns):", "    start = (batch * rows + cutlass.min(step * PIECES + turn, rows - 1)) * columns + begin", "    before = start - cutlass.min(start // unit, units - length) * unit"]
    fetch += ["    for e in cutlass.range_constexpr(width):", *(f"        {name}_part[e, turn] = {name}_shared[before + cutlass.min(e * THREADS + thread, strip - 1), turn, reading.index]" for name in found.plain)]
    walk = Walk(
        loop="for step in cutlass.range((rows + PIECES - 1) // PIECES, unroll=1):", part="step * PIECES + turn", inside="part < rows", address="", place="part", index="[e]",
        fetch=tuple(fetch), after=("pipe.consumer_release(reading)", "reading.advance()"),
    )  # fmt: skip
    lines = level_lines(walk, found, 1)
    for item in found.reductions:
        if (value := item.value("rows", "[e]")) != f"{item.name}[e]":
            lines += assigned([(item.name, value)], walk, item.types[-1])
    names = {item.call: f"{item.name}[e]" for item in found.reductions}
    return [*lines, "for e in cutlass.range_constexpr(width):", "    if e * THREADS + thread < strip:", f"        y[batch * columns + begin + e * THREADS + thread] = ({expression(found.value, {}, names)}).to(y.element_type)"]


def _forward(names: tuple[str, ...], threads: int, unroll: int, lines: tuple[list[str], list[str]]) -> list[str]:
    size = f"{names[0]}.element_size()"
    return [
        *lines[0], *lines[1], f"strip = min({threads * unroll}, columns)  # columns of a CTA", f"length = (strip * {size} + 15) // 16 + 1  # of a copy, in 16 bytes",
        f"stages = max(min({ROOM} // ({len(names)} * length * 16 * PIECES), -(-rows // PIECES), 8), 2)", *(f"{name} = in_units({name}, length)" for name in names),
        f"call(rowwise, ({', '.join(f'{name}.dtype' for name in names)}, strip, stages), (", *(f"    from_dlpack({name}, assumed_align=16).mark_compact_shape_dynamic(mode=0, stride_order=(0, 1))," for name in names),
        "    from_dlpack(y.view(-1)).mark_layout_dynamic(),", f"    cutlass.Int32(rows), cutlass.Int32(columns), cutlass.Int32(batches), cutlass.Int32({names[0]}.shape[0]),", "), (strip, stages))", "return y",
    ]  # fmt: skip


def check(stage: Stage, found: Plan, view: View) -> list[Rejection]:
    """What goes with `.through(shared)`."""
    how = setting(stage, "through")
    if how is None:
        return []
    if how != "shared":
        return [Rejection(field="through", value=str(how), reason="where a strided reduction's rows go before they are reduced", legal="shared")]
    said = []
    if not view.strided or found.whole or len(found.levels) != 1 or found.spread:
        said.append(Rejection(field="through", value="shared", reason="only a reduction along a strided axis, in one walk, without broadcast operands, goes through shared memory", legal="without through"))
    if (threads := number(stage, "threads", THREADS)) + 32 > MOST_THREADS:
        said.append(Rejection(field="threads", value=str(threads), reason=f"with the warp that copies, a CTA would have {threads + 32} threads, more than {MOST_THREADS}", legal=", ".join(str(count) for count in WARPS if count + 32 <= MOST_THREADS)))
    if setting(stage, "arch") != "sm_90a":
        said.append(Rejection(field="arch", value=str(setting(stage, "arch", "sm_80")), reason="bulk copies into shared memory came with Hopper", legal="sm_90a with through(shared)"))
    for name in ("split", "kept", "parts", "vector", "cluster"):
        if setting(stage, name) is not None:
            said.append(Rejection(field=name, value=str(setting(stage, name)), reason="rows that go through shared memory are shared by threads and unroll alone", legal="without " + name))
    return said
