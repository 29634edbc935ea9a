"""Calls of an exported file cost the host little: its host functions get plans, as `library.py` beside this file says.

`library.py` is written into exported files; it is not imported here.
"""

from __future__ import annotations

import ast
import functools
import re
from importlib import resources

from workbench.codegen.exports.merge import join_modules
from workbench.codegen.specialise.file import format_source

# find tensors of the file's own, for the current stream or for sizes; a plan holds none
FINDING = ("zero_counters", "make_workspace", "plan_geometry")
CACHES = ("compiled", "counters", "flag_arrays", "operand_tensors", "with_tvm_ffi")  # what they hold is no result
MODULES = ("torch", "cutlass", "cuda", "math", "functools", "weakref", "itertools", "operator", "typing", "dataclasses")
READS = ("tolist", "numpy")  # read a tensor's elements so that torch does not tell
BINDING = """
if with_tvm_ffi:
    call = record_launches(call, compiled, torch_value)
{lines}
"""


def add_plans(source: str, label: str) -> str:
    """The file of a version, with plans for the host functions that its module calls; as it is if it has a way of
    its own to launch.
    """
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    library = _launching_functions()
    if any(name not in functions or ast.unparse(functions[name]) != text for name, text in library.items()):
        return source
    found = find_host_functions(tree, functions)
    if not found:
        return source
    lines = [f"    {name} = record_workspaces({name})" for name in functions if re.sub(r"_\d+$", "", name) in FINDING]
    lines += [f"    {name} = plan_calls({name})" for name in found]
    text = resources.files(__name__).joinpath("library.py").read_text(encoding="utf-8")
    joined = join_modules(label, source, text, "_of_plans")
    return format_source(_head_of(source, tree) + joined + BINDING.format(lines="\n".join(lines)))


@functools.cache
def _launching_functions() -> dict[str, str]:
    """How the planner's kernels are launched."""
    text = resources.files("workbench.kernels").joinpath("host.py").read_text(encoding="utf-8")
    wanted = ("call", "torch_value", "each_value")
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.unparse(node) for node in nodes if node.name in wanted}


def _head_of(source: str, tree: ast.Module) -> str:
    """The file up to the end of its docstring."""
    if ast.get_docstring(tree) is None:
        return ""
    return "\n".join(source.splitlines()[: tree.body[0].end_lineno]) + "\n\n"


def find_host_functions(tree: ast.Module, functions: dict[str, ast.FunctionDef]) -> list[str]:
    """Functions that `ModelNew` calls and that launch, and whose work follows from their operands alone."""
    called = {name for node in tree.body if isinstance(node, ast.ClassDef) for name in _names_in(node)}
    unknown = _unknown_names(tree) | {*READS}
    found = []
    for name in functions:
        reached = _reach(name, functions)
        mentioned = {used for one in reached for used in _names_in(functions[one])}
        if name in called and "call" in reached and not mentioned & unknown:
            found.append(name)
    return found


def _names_in(node: ast.AST) -> set[str]:
    """Names and attributes that are read."""
    items = [*ast.walk(node)]
    names = {item.id for item in items if isinstance(item, ast.Name)}
    return names | {item.attr for item in items if isinstance(item, ast.Attribute) and item.attr in READS}


def _reach(name: str, functions: dict[str, ast.FunctionDef]) -> set[str]:
    """The function and those on the host that it calls; what has a decorator of CuTe DSL is not on the host."""
    found, left = set[str](), [name]
    while left:
        node = functions[left.pop()]
        if node.name not in found and not any("cute." in ast.unparse(item) for item in node.decorator_list):
            found.add(node.name)
            left += _names_in(node) & functions.keys()
    return found


def _unknown_names(tree: ast.Module) -> set[str]:
    """Names of a module whose meaning may change between two calls: what the planner's files do not have."""
    found = set[str]()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {item.asname or item.name for item in node.names if item.name.split(".")[0] not in MODULES}
        elif isinstance(node, ast.ImportFrom):
            found |= {item.asname or item.name for item in node.names if str(node.module).split(".")[0] not in MODULES}
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and _is_stored(item)}
            found |= set() if _is_constant(node.value) else names - {*CACHES}
    declared = {name for item in ast.walk(tree) if isinstance(item, ast.Global) for name in item.names}
    return found | declared


def _is_constant(value: ast.expr | None) -> bool:
    """Whether an expression is no container that is filled later, and no call."""
    if isinstance(value, ast.Dict):
        return bool(value.keys)
    return isinstance(value, ast.Constant | ast.Tuple | ast.BinOp | ast.UnaryOp | ast.Attribute)


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)
