"""A small typed subset of Python, translated to LLVM IR text: the language of the engine's helper functions.

A helper is an ordinary function on integers (64 bits, two's complement) and addresses; floats come from `load_f32` and
similar intrinsics. Allowed: assignments to local names, if, while, for over range (rising), break, continue, return,
arithmetic, comparisons (signed), `and`/`or`/`not` (with short circuit), conditional expressions, the intrinsics below,
and calls of other helpers. `//` and `%` truncate as in C.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

Helper = TypeVar("Helper", bound=Callable[..., int])
HELPERS: dict[str, Callable[..., Any]] = {}
WORDS = {
    "load8": "i8",
    "load16": "i16",
    "load32": "i32",
    "load64": "i64",
    "store8": "i8",
    "store16": "i16",
    "store32": "i32",
    "store64": "i64",
}
FLOATS = {
    "load_f16": "half",
    "load_f32": "float",
    "load_f64": "double",
    "store_f16": "half",
    "store_f32": "float",
    "store_f64": "double",
}
INTEGER_OPS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "sdiv",
    ast.Mod: "srem",
    ast.LShift: "shl",
    ast.RShift: "ashr",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
FLOAT_OPS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
INTEGER_TESTS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "slt", ast.LtE: "sle", ast.Gt: "sgt", ast.GtE: "sge"}
BINARY = {"unsigned_less": "icmp ult", "unsigned_divide": "udiv"}
DECLARATIONS = """
declare i64 @llvm.ctpop.i64(i64)
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.ctlz.i64(i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def helper(function: Helper) -> Helper:
    """Register a function of the subset; it never runs in Python."""
    HELPERS[function.__name__] = function
    return function


def _int_intrinsic(*_: object) -> int:
    raise NotImplementedError("this exists in compiled code only")


def _float_intrinsic(*_: object) -> float:
    raise NotImplementedError("this exists in compiled code only")


load8 = load16 = load32 = load64 = store8 = store16 = store32 = store64 = store_f16 = store_f32 = store_f64 = (
    _int_intrinsic
)
load_f16 = load_f32 = load_f64 = fma80 = _float_intrinsic
unsigned_less = unsigned_divide = popcount = lowest_bit = highest_bit = fill = call2 = call4 = _int_intrinsic


class _Function:
    """The translation of one helper: variables live in allocas, which LLVM's passes turn into registers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.tree = tree
        self.globals = function.__globals__
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.kinds: dict[str, str] = {}
        self.count = 0
        self.loops: list[tuple[str, str]] = []
        self.ended = False

    def text(self) -> str:
        """The whole function definition."""
        names = [argument.arg for argument in self.tree.args.args]
        for name in names:
            self._variable(name, "i64")
            self.entry.append(f"  store i64 %arg.{name}, ptr %v.{name}")
        for statement in self.tree.body:
            self._statement(statement)
        if not self.ended:
            self._emit("ret i64 0")
        arguments = ", ".join(f"i64 %arg.{name}" for name in names)
        return f"define i64 @{self.tree.name}({arguments}) {{\n" + "\n".join([*self.entry, *self.lines]) + "\n}\n"

    def _emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def _new(self, line: str) -> str:
        self.count += 1
        self._emit(f"%t{self.count} = {line}")
        return f"%t{self.count}"

    def _label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def _place(self, label: str) -> None:
        if not self.ended:
            self._emit(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.ended = False

    def _go(self, label: str) -> None:
        if not self.ended:
            self._emit(f"br label %{label}")
        self.ended = True

    def _variable(self, name: str, kind: str) -> None:
        if name not in self.kinds:
            self.kinds[name] = kind
            self.entry.append(f"  %v.{name} = alloca {kind}")

    def _statement(self, node: ast.stmt) -> None:
        if self.ended:
            return
        if isinstance(node, ast.Assign):
            assert isinstance(node.targets[0], ast.Name)
            self._set(node.targets[0].id, *self._number(node.value))
        elif isinstance(node, ast.AnnAssign):
            assert isinstance(node.target, ast.Name) and node.value is not None
            self._set(node.target.id, *self._number(node.value))
        elif isinstance(node, ast.AugAssign):
            assert isinstance(node.target, ast.Name)
            self._set(node.target.id, *self._number(ast.BinOp(ast.Name(node.target.id), node.op, node.value)))
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Constant):
                self._value(node.value)
        elif isinstance(node, ast.Return):
            self._emit(f"ret i64 {self._number(node.value)[0] if node.value else 0}")
            self.ended = True
        elif isinstance(node, (ast.Break, ast.Continue)):
            self._go(self.loops[-1][0 if isinstance(node, ast.Break) else 1])
        else:
            self._compound(node)

    def _compound(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            yes, no, after = self._label(), self._label(), self._label()
            self._branch(node.test, yes, no)
            for label, body in ((yes, node.body), (no, node.orelse)):
                self._place(label)
                for statement in body:
                    self._statement(statement)
                self._go(after)
            self._place(after)
        elif isinstance(node, ast.While):
            top, body_label, after = self._label(), self._label(), self._label()
            self._place(top)
            self._branch(node.test, body_label, after)
            self._body(body_label, node.body, after, top)
            self._go(top)
            self._place(after)
        elif isinstance(node, ast.For):
            self._for(node)
        else:
            raise NotImplementedError(ast.unparse(node))

    def _for(self, node: ast.For) -> None:
        assert isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call)
        bounds = node.iter.args
        first: ast.expr = bounds[0] if len(bounds) > 1 else ast.Constant(0)
        last: ast.expr = bounds[1] if len(bounds) > 1 else bounds[0]
        step: ast.expr = bounds[2] if len(bounds) > 2 else ast.Constant(1)
        name = node.target.id
        self._set(name, *self._number(first))
        top, body, following, after = (self._label() for _ in range(4))
        self._place(top)
        self._branch(ast.Compare(ast.Name(name), [ast.Lt()], [last]), body, after)
        self._body(body, node.body, after, following)
        self._place(following)
        self._set(name, *self._number(ast.BinOp(ast.Name(name), ast.Add(), step)))
        self._go(top)
        self._place(after)

    def _body(self, label: str, body: list[ast.stmt], after: str, again: str) -> None:
        self.ended = True
        self._place(label)
        self.loops.append((after, again))
        for statement in body:
            self._statement(statement)
        self.loops.pop()

    def _number(self, node: ast.expr) -> tuple[str, str]:
        """An expression's value; a comparison's is 0 or 1."""
        value, kind = self._value(node)
        return (self._new(f"zext i1 {value} to i64"), "i64") if kind == "i1" else (value, kind)

    def _set(self, name: str, value: str, kind: str) -> None:
        self._variable(name, kind)
        self._emit(f"store {kind} {value}, ptr %v.{name}")

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Branch to `yes` or `no`; `and`, `or` and `not` become branches."""
        if isinstance(test, ast.BoolOp):
            for part in test.values[:-1]:
                following = self._label()
                self._branch(part, *((following, no) if isinstance(test.op, ast.And) else (yes, following)))
                self._place(following)
            self._branch(test.values[-1], yes, no)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._branch(test.operand, no, yes)
        else:
            value, kind = self._value(test)
            flag = value if kind == "i1" else self._new(f"icmp ne i64 {value}, 0")
            self._emit(f"br i1 {flag}, label %{yes}, label %{no}")
            self.ended = True

    def _value(self, node: ast.expr) -> tuple[str, str]:
        """An expression's IR value and type."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, float):
                return repr(node.value), "double"
            return str(int(node.value)), "i64"  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            if node.id in self.kinds:
                return self._new(f"load {self.kinds[node.id]}, ptr %v.{node.id}"), self.kinds[node.id]
            return str(int(self.globals[node.id])), "i64"
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.BoolOp):
            return self._conditional(ast.IfExp(node, ast.Constant(1), ast.Constant(0)))
        if isinstance(node, ast.UnaryOp):
            value, kind = self._value(node.operand)
            return (
                self._new(f"sub i64 0, {value}") if isinstance(node.op, ast.USub) else self._new(f"xor i64 {value}, -1")
            ), kind
        if isinstance(node, ast.Compare):
            left, kind = self._value(node.left)
            right, _ = self._value(node.comparators[0])
            return self._new(f"icmp {INTEGER_TESTS[type(node.ops[0])]} {kind} {left}, {right}"), "i1"
        if isinstance(node, ast.IfExp):
            return self._conditional(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise NotImplementedError(ast.unparse(node))

    def _conditional(self, node: ast.IfExp) -> tuple[str, str]:
        self.count += 1
        name = f"c{self.count}"
        choice = ast.If(
            node.test, [ast.Assign([ast.Name(name)], node.body)], [ast.Assign([ast.Name(name)], node.orelse)]
        )
        self._compound(choice)
        return self._value(ast.Name(name))

    def _binary(self, node: ast.BinOp) -> tuple[str, str]:
        left, kind = self._number(node.left)
        right, _ = self._number(node.right)
        table: Any = INTEGER_OPS if kind == "i64" else FLOAT_OPS
        return self._new(f"{table[type(node.op)]} {kind} {left}, {right}"), kind

    def _call(self, node: ast.Call) -> tuple[str, str]:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        arguments = [self._number(argument) for argument in node.args]
        values = [value for value, _ in arguments]
        if name in WORDS:
            return self._word(name, values)
        if name in FLOATS:
            return self._float(name, arguments)
        if name in BINARY:
            kind = "i1" if name == "unsigned_less" else "i64"
            return self._new(f"{BINARY[name]} i64 {values[0]}, {values[1]}"), kind
        if name in ("call2", "call4"):
            places = ", ".join(f"ptr {self._pointer(value)}" for value in values[1:])
            self._emit(f"call void {self._pointer(values[0])}({places})")
            return "0", "i64"
        return self._intrinsic(name, values)

    def _intrinsic(self, name: str, values: list[str]) -> tuple[str, str]:
        if name == "popcount":
            return self._new(f"call i64 @llvm.ctpop.i64(i64 {values[0]})"), "i64"
        if name == "lowest_bit":
            return self._new(f"call i64 @llvm.cttz.i64(i64 {values[0]}, i1 false)"), "i64"
        if name == "highest_bit":
            zeros = self._new(f"call i64 @llvm.ctlz.i64(i64 {values[0]}, i1 false)")
            return self._new(f"sub i64 63, {zeros}"), "i64"
        if name == "fill":
            self._emit(
                f"call void @llvm.memset.p0.i64(ptr {self._pointer(values[0])}, i8 {values[1]}, i64 {values[2]}, i1"
                " false)"
            )
            return "0", "i64"
        if name == "fma80":
            return self._fma80(values), "double"
        return self._new(f"call i64 @{HELPERS[name].__name__}({', '.join(f'i64 {value}' for value in values)})"), "i64"

    def _fma80(self, values: list[str]) -> str:
        """a * b + c in x87 extended precision, as numpy's longdouble computes it."""
        wide = [
            self._new(f"fpext double {self._new(f'load double, ptr {self._pointer(value)}')} to x86_fp80")
            for value in values
        ]
        product = self._new(f"fmul x86_fp80 {wide[0]}, {wide[1]}")
        return self._new(f"fptrunc x86_fp80 {self._new(f'fadd x86_fp80 {product}, {wide[2]}')} to double")

    def _pointer(self, value: str) -> str:
        return self._new(f"inttoptr i64 {value} to ptr")

    def _word(self, name: str, values: list[str]) -> tuple[str, str]:
        kind, place = WORDS[name], self._pointer(values[0])
        if name.startswith("load"):
            value = self._new(f"load {kind}, ptr {place}, align 1")
            return (value if kind == "i64" else self._new(f"zext {kind} {value} to i64")), "i64"
        value = values[1] if kind == "i64" else self._new(f"trunc i64 {values[1]} to {kind}")
        self._emit(f"store {kind} {value}, ptr {place}, align 1")
        return "0", "i64"

    def _float(self, name: str, arguments: list[tuple[str, str]]) -> tuple[str, str]:
        kind, place = FLOATS[name], self._pointer(arguments[0][0])
        if name.startswith("load"):
            value = self._new(f"load {kind}, ptr {place}, align 1")
            return (self._new(f"fpext half {value} to float"), "float") if kind == "half" else (value, kind)
        value, given = arguments[1]
        if kind != given:
            value = self._new(
                f"{'fptrunc' if kind == 'half' or given == 'double' else 'fpext'} {given} {value} to {kind}"
            )
        self._emit(f"store {kind} {value}, ptr {place}, align 1")
        return "0", "i64"


def translate_helpers() -> str:
    """LLVM IR of every registered helper."""
    return DECLARATIONS + "\n".join(_Function(function).text() for function in HELPERS.values())
