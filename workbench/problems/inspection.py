"""Problem -> Facts: shapes that fit the emulator, a traced graph, counted work, degeneracies. Runs in a worker (imports torch)."""

from __future__ import annotations

import ast
import textwrap
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from workbench.errors import ProblemError
from workbench.problems import loading, module_scalars
from workbench.records import Case, Degeneracy, Facts, Operation, Problem, Settings, TensorSpec, Work
from workbench.wire import content_hash

ELEMENT_BUDGET = 1 << 16  # elements of all inputs at the shrunk case
FLOP_BUDGET = 1 << 22
ODD_OFFSET = {0: 37, 1: 51, 2: 67, 3: 83}  # odd sizes, no multiples of 2, 4, 8, 16
KINDS = (
    ("loss", ("nll_loss", "mse_loss", "cross_entropy")), ("convolution", ("convolution",)), ("attention", ("scaled_dot_product",)),
    ("matmul", ("mm", "bmm", "addmm", "matmul", "mv")), ("softmax", ("_softmax", "_log_softmax")), ("norm", ("native_layer_norm", "rsqrt", "var_mean")),
    ("reduction", ("sum", "mean", "amax", "amin", "max", "prod")),
)  # fmt: skip


def inspect(problem: Problem, *, full_size: bool = False) -> Facts:
    """All that can be found out without a candidate; raises `ProblemError` with file and line."""
    full_module = loading.load_module(problem)
    arguments = loading.forward_arguments(full_module)
    full = _specs(full_module, problem, arguments, "full", ())
    shrunk_settings = _shrink(problem, full)
    module = loading.load_module(problem, shrunk_settings)
    shrunk = _real_case(module, problem, arguments, "shrunk", shrunk_settings)
    cases, notes = [shrunk], []
    odd = _odd(problem, arguments, shrunk_settings)
    if odd is None:
        notes.append("the reference does not run at odd sizes, so only the shrunk sizes are checked")
    else:
        cases.append(odd)
    cases.append(full)
    graph, parameters = _trace(module, problem, arguments)
    kind = _kind(graph)
    work = tuple(_work(problem, case, graph, parameters, kind) for case in cases)
    return Facts(
        problem_hash=content_hash(problem), kind=kind, init_source=_init_source(problem.source), forward_arguments=arguments, graph=graph,
        parameters=parameters, cases=tuple(cases), work=work, degeneracies=_degeneracies(module, problem), notes=tuple(notes),
    )  # fmt: skip


def _spec(name: str, value: torch.Tensor) -> TensorSpec:
    return TensorSpec(name=name, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."), strides=tuple(value.stride()))


def _outputs(result: Any) -> tuple[TensorSpec, ...]:
    values = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(_spec(f"output{n}", value) for n, value in enumerate(values) if isinstance(value, torch.Tensor))


def _case(name: str, settings: Settings, arguments: tuple[str, ...], inputs: list[Any], result: Any) -> Case:
    specs = tuple(_spec(label, value) for label, value in zip(arguments, inputs, strict=False) if isinstance(value, torch.Tensor))
    return Case(name=name, settings=settings, inputs=specs, outputs=_outputs(result))


def _specs(module: ModuleType, problem: Problem, arguments: tuple[str, ...], name: str, settings: Settings) -> Case:
    """A case's shapes without its memory (fake tensors)."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            inputs = [loading.cast(value, problem) for value in module.get_inputs()]
            result = _fake_model(module, problem)(*inputs)
            return _case(name, settings, arguments, inputs, result)
    except Exception as error:
        raise ProblemError(f"{problem.origin}: the reference does not run: {type(error).__name__}: {str(error).splitlines()[0]}") from error


def _real_case(module: ModuleType, problem: Problem, arguments: tuple[str, ...], name: str, settings: Settings) -> Case:
    inputs = loading.make_inputs(module, problem, 0)
    with torch.no_grad():
        return _case(name, settings, arguments, inputs, loading.build_model(module, "Model", problem)(*inputs))


def _sizes(problem: Problem) -> dict[str, int]:
    fixed = dict(problem.settings)
    return {name: value for name, value in module_scalars(problem.source).items() if isinstance(value, int) and not isinstance(value, bool) and value >= 16 and name not in fixed}


def _fake_model(module: ModuleType, problem: Problem) -> torch.nn.Module:
    """Model with fake parameters, made in the problem's dtype (a fake parameter cannot be converted afterwards)."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(loading.DTYPES[problem.precision])
    try:
        return module.Model(*module.get_init_inputs()).train(problem.mode == "train")
    finally:
        torch.set_default_dtype(default)


def _elements(case: Case) -> int:
    total = 0
    for spec in (*case.inputs, *case.outputs):
        count = 1
        for extent in spec.shape:
            count *= extent
        total += count
    return total


def _shrink(problem: Problem, full: Case) -> Settings:
    """Halve the largest module-level sizes (to powers of two) until inputs, outputs and FLOPs fit the emulator's budget."""
    sizes = {name: 1 << (value.bit_length() - 1) for name, value in _sizes(problem).items()}
    arguments = loading.forward_arguments(loading.load_module(problem))
    for _ in range(200):
        settings = tuple(sizes.items())
        module = loading.load_module(problem, settings)
        case = _specs(module, problem, arguments, "shrunk", settings)
        if _elements(case) <= 2 * ELEMENT_BUDGET and _flops(module, problem) <= FLOP_BUDGET:
            return settings
        largest = max(sizes, key=lambda name: sizes[name], default=None)
        if largest is None or sizes[largest] <= 16:
            raise ProblemError(f"{problem.origin}: the inputs cannot be shrunk for the emulator; give module-level sizes, or use --set name=value")
        sizes[largest] //= 2
    return tuple(sizes.items())


def _flops(module: ModuleType, problem: Problem) -> int:
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), FlopCounterMode(display=False) as counter:
        inputs = [loading.cast(value, problem) for value in module.get_inputs()]
        _fake_model(module, problem)(*inputs)
    return int(counter.get_total_flops())


def _odd_size(size: int, position: int) -> int:
    """Near three quarters of a size, odd, and different for different positions."""
    half = max(3, size // 2)
    return max(3, half + ODD_OFFSET[position % 4] % half | 1)


def _odd(problem: Problem, arguments: tuple[str, ...], shrunk: Settings) -> Case | None:
    """Sizes near the shrunk ones that are multiples of nothing; None when the reference cannot run at them."""
    settings = tuple((name, _odd_size(int(str(value)), n)) for n, (name, value) in enumerate(shrunk))
    try:
        return _real_case(loading.load_module(problem, settings), problem, arguments, "odd", settings)
    except (RuntimeError, ValueError, IndexError, ProblemError):
        return None


def _trace(module: ModuleType, problem: Problem, arguments: tuple[str, ...]) -> tuple[tuple[Operation, ...], tuple[TensorSpec, ...]]:
    """The reference as ATen calls. Inputs keep forward's names, parameters are `param:<name>`, buffers `buffer:<name>`."""
    model = loading.build_model(module, "Model", problem)
    inputs = loading.make_inputs(module, problem, 0)
    state = {**{f"param:{n}": p for n, p in model.named_parameters()}, **{f"buffer:{n}": p for n, p in model.named_buffers()}}

    def call(values: list[torch.Tensor], *args: Any) -> Any:
        named = {key.split(":", 1)[1]: value for key, value in zip(state, values, strict=True)}
        return torch.func.functional_call(model, named, args)

    with torch.no_grad():
        traced = make_fx(call)([value.detach() for value in state.values()], *inputs)
    labels = [*state, *arguments]
    names: dict[Any, str] = {}
    operations = []
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            names[node] = labels[len(names)]
        elif node.op == "call_function":
            names[node] = node.name
            operations.append(Operation(name=node.name, target=str(node.target), operands=tuple(_operand(a, names) for a in node.args),
                                        keywords=tuple((k, _operand(v, names)) for k, v in node.kwargs.items()), result=_outputs(node.meta.get("val"))))  # fmt: skip
        elif node.op == "output":
            values = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
            operations.append(Operation(name="output", target="output", operands=tuple(_operand(a, names) for a in values)))
    return tuple(operations), tuple(_spec(key.split(":", 1)[1], value) for key, value in state.items())


def _operand(value: Any, names: dict[Any, str]) -> str:
    if isinstance(value, torch.fx.Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_operand(item, names) for item in value) + "]"
    return repr(value)


def _kind(graph: tuple[Operation, ...]) -> str:
    targets = [op.target.removeprefix("aten.").split(".")[0] for op in graph]
    return next((kind for kind, ops in KINDS if any(t in ops for t in targets)), "elementwise" if len(graph) > 1 else "other")


def _work(problem: Problem, case: Case, graph: tuple[Operation, ...], parameters: tuple[TensorSpec, ...], kind: str) -> Work:
    """FLOPs: FlopCounterMode for matrix products, plus one per element and traced operation else; bytes: everything once."""
    module = loading.load_module(problem, case.settings)
    products = _flops(module, problem)
    inputs = sum(_count(spec) for spec in case.inputs if "float" in spec.dtype)
    others = sum(1 for op in graph if op.target.startswith("aten.") and op.target.split(".")[1] not in ("mm", "bmm", "addmm", "t", "transpose", "view", "expand", "detach", "permute", "unsqueeze", "squeeze", "alias", "_unsafe_view"))
    width = max([_count(spec) for spec in (*case.outputs, *case.inputs)]) if not products else sum(_count(spec) for spec in case.outputs)
    own = tuple(_spec(name, value) for name, value in _fake_parameters(module, problem))
    size = sum(_count(spec) * _itemsize(spec.dtype) for spec in (*case.inputs, *case.outputs, *own))
    dtype = {"fp32": "float32", "tf32": "tfloat32", "fp16": "float16", "bf16": "bfloat16"}[problem.precision]
    return Work(case=case.name, flops=products + others * width, least_bytes=size, dtype=dtype, tensor_cores=bool(products) and inputs > 0)


def _fake_parameters(module: ModuleType, problem: Problem) -> list[tuple[str, torch.Tensor]]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = _fake_model(module, problem)
        return [*model.named_parameters(), *model.named_buffers()]


def _count(spec: TensorSpec) -> int:
    count = 1
    for extent in spec.shape:
        count *= extent
    return count


def _itemsize(dtype: str) -> int:
    return int(getattr(torch, dtype).itemsize)


def _init_source(source: str) -> str:
    """The whole `def __init__` of Model, dedented, so that ModelNew can own the same parameters."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    return textwrap.dedent(ast.get_source_segment(source, item, padded=True) or "")
    return "def __init__(self):\n    super().__init__()\n"


def _degeneracies(module: ModuleType, problem: Problem) -> tuple[Degeneracy, ...]:
    """Trivial outputs that KernelBench's own tolerance (1e-2 absolute and relative in 16 bits, 1e-4 in 32) would let pass."""
    tolerance = 1e-4 if problem.precision in ("fp32", "tf32") else 1e-2
    found = []
    with torch.no_grad():
        first, again, other = (_one(module, problem, seed, forward) for seed, forward in ((1, 3), (1, 4), (2, 3)))
    if not torch.allclose(first, again, atol=tolerance, rtol=tolerance):
        found.append(Degeneracy(kind="random", message="the reference differs from itself on the same inputs (dropout?)"))
    if torch.allclose(first, torch.zeros_like(first), atol=tolerance, rtol=tolerance):
        found.append(Degeneracy(kind="zero", message=f"an output of zeros passes an absolute tolerance of {tolerance}"))
    elif first.numel() > 1 and torch.allclose(first, first.mean().expand_as(first), atol=tolerance, rtol=tolerance):
        found.append(Degeneracy(kind="constant", message="a constant output passes"))
    if first.shape == other.shape and torch.allclose(first, other, atol=tolerance, rtol=tolerance):
        found.append(Degeneracy(kind="replay", message="the output for other inputs passes"))
    return tuple(found)


def _one(module: ModuleType, problem: Problem, seed: int, forward_seed: int) -> torch.Tensor:
    torch.manual_seed(0)
    model = loading.build_model(module, "Model", problem)
    inputs = loading.make_inputs(module, problem, seed)
    torch.manual_seed(forward_seed)
    result = model(*inputs)
    return (result[0] if isinstance(result, (tuple, list)) else result).to(torch.float64)
