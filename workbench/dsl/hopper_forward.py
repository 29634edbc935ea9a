"""The body of forward of a Hopper product: operands as TMA takes them, the result or its parts, the launches."""

from __future__ import annotations

from workbench.dsl import epilogue
from workbench.dsl.epilogue import Chain
from workbench.dsl.expecting import called, empty, expect, expect_axes, expect_some, some_k
from workbench.dsl.hopper_finish import by_kernel_rows, has_pairs
from workbench.dsl.hopper_plan import Plan
from workbench.dsl.ir import Binding

TURNED = ".transpose(-2, -1)"
STREAMK_VIEWS = ("    from_dlpack(sums, assumed_align=16).mark_layout_dynamic(),", "    from_dlpack(ready).mark_layout_dynamic(),")


def forward(binding: Binding, chain: Chain, plan: Plan, dtype: str) -> str:
    """The text; `dtype` is torch's word for the result's."""
    bound = dict(binding.operands)
    (a, a_turned), (b, b_turned) = (_stored(bound.get(name, name)) for name in ("a", "b"))
    m, n = f"a.shape[-{1 if a_turned else 2}]", f"b.shape[-{2 if b_turned else 1}]"
    lines = [f"a, b = {a}, {b}"] if (a, b) != ("a", "b") else []
    lines += operand_lines(bound, a_turned, b_turned, "*a.shape[:-2], ")
    either = ", either=True" if plan.registers else ""
    first, second = (", left=True", ", left=False") if plan.kind == "tf32x3" else (either, "")
    sides = f"operand(a, {a_turned}{first}), operand(b, {not b_turned}{second})  # as (batch, m, k) and (batch, n, k)"
    if plan.swap:
        sides = f"operand(b, {not b_turned}{first}), operand(a, {a_turned}{second})  # as (batch, n, k) and (batch, m, k): of the transposed product"
    lines += _reduced_result(plan, chain, m, n, dtype) if plan.reduced else _result(plan, f"*a.shape[:-2], {m}, {n}" if a_turned else f"*a.shape[:-1], {n}", dtype)
    lines += epilogue.expected(chain, bound, "m", "n", "(*lead, m, n)") if plan.reduced else epilogue.expected(chain, bound, "d.shape[-2]", "d.shape[-1]", "d.shape")
    lines += empty("d")
    if plan.reduced:
        lines += expect_some(called("b" if chain.by_rows else "a", bound), "b" if chain.by_rows else "a", "n" if chain.by_rows else "m", chain.how)
    lines += some_k(f"a.shape[-{2 if a_turned else 1}]", -2 if a_turned else -1, -1 if b_turned else -2)
    lines += [f"(left, left_first), (right, right_first) = {sides}", *_reads(plan, chain, bound)]
    if not plan.reduced and not plan.in_cluster:
        target = "partial" if plan.splits > 1 else "d3"
        lines += [f"by_tma = {f'{target}.shape[-1] * {target}.element_size() % 16 == 0  # otherwise the threads store the result' if plan.store == 'tma' else 'False'}"]
    if plan.streamk:
        lines += ["sums, ready = workspace(a.device)"]
    return "\n".join([*lines, *_launch(plan, chain, bound)])


def operand_lines(bound: dict[str, str], a_turned: bool, b_turned: bool, batch: str) -> list[str]:
    """Lines that refuse operands whose axes, batch or k do not go together; `batch` is what stands before b's k and n."""
    k, n = f"a.shape[-{2 if a_turned else 1}]", f"b.shape[-{2 if b_turned else 1}]"
    names = {name: called(name, {name: _stored(bound.get(name, name))[0]}) for name in ("a", "b")}
    wanted = f"({batch}{n}, {k})" if b_turned else f"({batch}{k}, {n})"
    return [*(expect_axes(names[name], name, 2, 3) for name in ("a", "b")[: 1 + b_turned]), expect(names["b"], "b", wanted, "(DTYPE,)")]


def _result(plan: Plan, shape: str, dtype: str) -> list[str]:
    lines = [f"d = torch.empty({shape}, dtype={dtype}, device=a.device)", "d3 = d if d.dim() == 3 else d.unsqueeze(0)"]
    if plan.splits > 1 and not plan.in_cluster:
        lines += ["partial = torch.empty(d3.shape[0] * SPLITS, *d3.shape[1:], dtype=torch.float32, device=a.device)"]
    return lines


def _reduced_result(plan: Plan, chain: Chain, m: str, n: str, dtype: str) -> list[str]:
    high, wide = ("n", "m") if plan.swap else ("m", "n")  # what the kernel calls m and n
    parts, length = (f"-(-{wide} // TILE_N)", high) if by_kernel_rows(plan, chain) else (f"-(-{high} // TILE_M) * (TILE_M // ROWS) * 4", wide)
    return [
        f"m, n, lead = {m}, {n}, a.shape[:-2]",
        f"d = torch.empty(*lead, {length}, dtype={dtype}, device=a.device)",
        f"partial = torch.empty({parts}, a.shape[0] if lead else 1, {length}, dtype=torch.float32, device=a.device)  # what each tile gives",
    ]


def _reads(plan: Plan, chain: Chain, bound: dict[str, str]) -> list[str]:
    """Assignments of the (m, n) tensors that the kernel reads with its fragments, and whether it can take two columns at a time."""
    if not has_pairs(plan, chain):
        return []
    shape = "(*lead, m, n)" if plan.reduced else "d.shape"
    roles = [read.role for read in chain.reads if read.along == "both"]
    lines = [f"{role}_view, {role}_pairs = spread({bound.get(role, role)}, {shape})" for role in roles]
    return [*lines, "pairs = False  # neighbouring columns of the transposed product are rows apart" if plan.swap else "pairs = " + " and ".join(f"{role}_pairs" for role in roles)]


def _views(plan: Plan, chain: Chain, bound: dict[str, str]) -> list[str]:
    if not has_pairs(plan, chain):
        turned = ".transpose(1, 2)" if plan.swap else ""
        plain = {"both": f"from_dlpack(spread({{}}, d.shape){turned}).mark_layout_dynamic(leading_dim={1 if plan.swap else 2})"}
        return ["    " + plain.get(read.along, "from_dlpack({}.detach()).mark_layout_dynamic()").format(bound.get(read.role, read.role)) + "," for read in chain.reads]
    lines = []
    for read in chain.reads:
        if read.along != "both":
            lines.append(f"    from_dlpack({bound.get(read.role, read.role)}.detach()).mark_layout_dynamic(),")
        elif plan.swap:
            lines.append(f"    from_dlpack({read.role}_view.transpose(1, 2)).mark_layout_dynamic(leading_dim=1),")
        else:
            lines.append(f"    from_dlpack({read.role}_view, assumed_align=2 * {read.role}_view.element_size() if pairs else None).mark_layout_dynamic(leading_dim=2),")
    return lines


def _launch(plan: Plan, chain: Chain, bound: dict[str, str]) -> list[str]:
    keys, views = epilogue.keys(chain, bound), _views(plan, chain, bound)
    pairs = has_pairs(plan, chain)
    resident, count = "resident()", tuple[str, ...]()
    if plan.streamk:
        views, resident, count = [*views, *STREAMK_VIEWS], "", ("    cutlass.Int32(resident()),",)  # told at every call
    turned, leading = (".transpose(1, 2)", 1) if plan.swap else ("", 2)
    firsts = "left_first, right_first" + ", pairs" * pairs
    if plan.reduced:
        length = "-1, " + ("m" if chain.by_rows else "n")
        back = "d" if not chain.keepdim else f"d.unsqueeze({-1 if chain.by_rows else -2})"
        return [
            f"call(gemm, ({keys}{firsts}), (", "    left, right,", *views, "    from_dlpack(partial).mark_layout_dynamic(leading_dim=2),", *count, f"), {_constants(['pairs'] * pairs + [resident])})",
            "call(gather, (d.dtype,), (", "    from_dlpack(partial).mark_layout_dynamic(leading_dim=2),", f"    from_dlpack(d.view({length})).mark_layout_dynamic(leading_dim=1),",
            f"    cutlass.Int32({'n' if chain.by_rows else 'm'}),", "))", f"return {back}",
        ]  # fmt: skip
    result = f"    from_dlpack(d3{turned}).mark_layout_dynamic(leading_dim={leading}),"
    if plan.in_cluster:
        return [f"call(gemm, ({keys}{firsts}), (", "    left, right,", *views, result, "))", "return d"]
    split = plan.splits > 1
    target = "partial" if split else f"d3{turned}"
    lines = [
        f"call(gemm, ({'' if split else keys}by_tma, {firsts}), (", "    left, right,", *([] if split else views), f"    from_dlpack({target}, assumed_align=16 if by_tma else None).mark_layout_dynamic(leading_dim={leading}),",
        *count, f"), {_constants(['by_tma', *['pairs'] * pairs, resident])})",
    ]  # fmt: skip
    if split:
        lines += [f"call(combine, ({keys}d.dtype,), (", "    from_dlpack(partial).mark_layout_dynamic(leading_dim=2),", *views, result, "))"]
    return [*lines, "return d"]


def _constants(names: list[str]) -> str:
    """The text of a tuple of those that are not empty."""
    named = [name for name in names if name]
    return f"({', '.join(named)}{',' if len(named) == 1 else ''})"


def _stored(expression: str) -> tuple[str, bool]:
    """(the tensor itself, whether the operand is its transpose): the tensor is the same object at every call, a view of it is not."""
    turned = expression.endswith(TURNED)
    return expression.removesuffix(TURNED), turned
