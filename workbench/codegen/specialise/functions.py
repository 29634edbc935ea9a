"""One function of the library -> its text for one case, without static parameters, dead branches and unused values."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

import libcst as cst

from workbench.codegen.specialise.calls import kind_of
from workbench.codegen.specialise.library import Module
from workbench.codegen.specialise.names import CODE, local_names, used_names
from workbench.codegen.specialise.nodes import called_name
from workbench.codegen.specialise.protocols import FileBuilder
from workbench.codegen.specialise.scope import Scope
from workbench.codegen.specialise.statements import Statements
from workbench.codegen.specialise.values import Symbol
from workbench.records import record

PURE_CALLS = (
    *("block_dim", "block_idx", "cosize", "grid_dim", "group_modes", "lane_idx", "local_tile", "make_layout"),
    *("make_identity_tensor", "make_tensor", "make_warp_uniform", "recast_tensor", "select", "size", "thread_idx"),
    *("warp_idx", "zipped_divide", "get_slice", "partition_A", "partition_B", "partition_C", "partition_S"),
    *("partition_D", "domain_offset", "retile", "min", "max", "Int32", "Float32", "Boolean"),
)  # calls without an effect: a value made by them that nobody reads is left out


@record
class Specialised:
    """A function for one case."""

    text: str
    parameters: tuple[str, ...]
    unused: frozenset[str]  # of its parameters, those that are left out
    returns: tuple[str, ...] | None  # names of what it returns where that is a Many


def function_scope(
    module: Module, node: cst.FunctionDef, static: Mapping[str, object], many: Mapping[str, tuple[Symbol, ...]]
) -> Scope:
    """The scope at the start of a function: its static arguments, and names for its run-time ones."""
    taken = set(used_names(node, frozenset((*static, *many))) - set(many))
    known: dict[str, object] = dict(static)
    for role, symbols in many.items():
        known[role] = tuple(Symbol(name=_apart(symbol.name, taken), base=symbol.base) for symbol in symbols)
    return Scope(module, static=known, local=set(local_names(node) - set(known)), taken=taken)


def specialise_function(
    builder: FileBuilder, scope: Scope, node: cst.FunctionDef, *, written: str, whole: bool
) -> Specialised:
    """The function for the static arguments of its scope. Unless it is wanted `whole`, parameters that it does not
    read go.
    """
    known = scope.initial
    rewriter = Statements(builder, scope)
    params = _parameters(rewriter, node.params, known)
    names = tuple(param.name.value for param in (*params.params, *params.kwonly_params))
    scope.local |= set(names)
    decorators = [item.with_changes(decorator=rewriter.rewrite(item.decorator)) for item in node.decorators]
    assert isinstance(node.body, cst.IndentedBlock)
    body = rewriter.statements(node.body.body) or [cst.SimpleStatementLine([cst.Pass()])]
    returns = node.returns.with_changes(annotation=rewriter.rewrite(node.returns.annotation)) if node.returns else None
    made = node.with_changes(
        name=cst.Name(written),
        params=params,
        decorators=decorators,
        body=node.body.with_changes(body=body),
        returns=returns,
        leading_lines=[line for line in node.leading_lines if line.comment],
    )
    text = drop_unused_values(CODE.code_for_node(made))
    unused = frozenset() if whole or is_kernel(node) else unused_parameters(text, written)
    if unused:
        text = drop_unused_values(CODE.code_for_node(made.with_changes(params=without_parameters(params, unused))))
    return Specialised(text=text, parameters=names, unused=unused, returns=scope.returns)


def is_kernel(node: cst.FunctionDef) -> bool:
    """Whether it is the entry of a kernel, whose parameters the host passes."""
    return any(called_name(item.decorator) == "kernel" for item in node.decorators)


def unused_parameters(text: str, written: str) -> frozenset[str]:
    """Parameters of a function's text that it does not read; none where it takes any number or calls itself."""
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    named = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    if function.args.vararg is not None or written in named:
        return frozenset()
    return frozenset(item.arg for item in (*function.args.args, *function.args.kwonlyargs) if item.arg not in named)


def without_parameters(params: cst.Parameters, names: frozenset[str]) -> cst.Parameters:
    """The parameters but those of these names."""
    kept, kept_kwonly = (
        [param.with_changes(comma=cst.MaybeSentinel.DEFAULT) for param in part if param.name.value not in names]
        for part in (params.params, params.kwonly_params)
    )
    star = params.star_arg if kept_kwonly else cst.MaybeSentinel.DEFAULT
    return params.with_changes(params=kept, kwonly_params=kept_kwonly, star_arg=star)


def _apart(name: str, taken: set[str]) -> str:
    """A name for an operand that the function does not use for something else."""
    while name in taken:
        name += "_in"
    taken.add(name)
    return name


def _parameters(rewriter: Statements, params: cst.Parameters, known: Mapping[str, object]) -> cst.Parameters:
    return params.with_changes(
        params=_expanded(rewriter, params.params, known),
        kwonly_params=_expanded(rewriter, params.kwonly_params, known),
    )


def _expanded(rewriter: Statements, params: Sequence[cst.Param], known: Mapping[str, object]) -> list[cst.Param]:
    found = []
    for param in params:
        note = param.annotation.annotation if param.annotation else None
        is_known = kind_of(param) == "" and param.name.value in known
        if kind_of(param) == "Static" or is_known:
            continue
        if kind_of(param) == "Many":
            inner = note.slice[0].slice if isinstance(note, cst.Subscript) else None
            each = cst.Annotation(rewriter.rewrite(inner.value)) if isinstance(inner, cst.Index) else None
            symbols = known[param.name.value]
            assert isinstance(symbols, tuple)
            found += [cst.Param(cst.Name(symbol.name), annotation=each) for symbol in symbols]
            continue
        changed = param.with_changes(comma=cst.MaybeSentinel.DEFAULT)
        if note is not None:
            changed = changed.with_changes(annotation=cst.Annotation(rewriter.rewrite(note)))
        if param.default is not None:
            changed = changed.with_changes(default=rewriter.rewrite(param.default))
        found.append(changed)
    return found


def drop_unused_values(text: str) -> str:
    """The function's text without assignments whose value nobody reads and whose making has no effect."""
    while True:
        tree = ast.parse(text)
        read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        lines = text.splitlines(keepends=True)
        dead = [node for node in ast.walk(tree) if _is_dead(node, read) and not _is_alone(tree, node)]
        if not dead:
            return text
        for node in sorted(dead, key=lambda item: -item.lineno):  # type: ignore[attr-defined]
            del lines[node.lineno - 1 : node.end_lineno]  # type: ignore[attr-defined]
        text = "".join(lines)


def _is_dead(node: ast.AST, read: set[str]) -> bool:
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
        return False
    targets = [item for item in ast.walk(node.targets[0]) if isinstance(item, ast.Name | ast.Attribute | ast.Subscript)]
    if not all(isinstance(item, ast.Name) and item.id not in read for item in targets):
        return False
    calls = [item.func for item in ast.walk(node.value) if isinstance(item, ast.Call)]
    named = [call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls]
    return all(name in PURE_CALLS for name in named)


def _is_alone(tree: ast.AST, node: ast.AST) -> bool:
    """Whether a block has nothing else."""
    return any(
        getattr(block, field, None) == [node] for block in ast.walk(tree) for field in ("body", "orelse", "finalbody")
    )
