"""Makes modules, inputs and models from problem records.

Used in workers only: it imports torch and runs the problem's code.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import inspect
import linecache
import mmap
import re
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

import torch

from workbench.errors import ProblemError
from workbench.problems import with_settings
from workbench.problems.inputs.adapted import adapt
from workbench.problems.inputs.arguments import Call, read_call
from workbench.problems.inputs.init_arguments import check_fit
from workbench.problems.model_class import returns_nothing
from workbench.problems.settings import given_settings
from workbench.problems.tracing.uncompiled import without_compile
from workbench.records import LONGEST_VALUE, Problem, Scalar, Settings, TensorSpec
from workbench.wire import content_hash

_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's value; Python before 3.13 has no name for it

# dtype of floating tensors by precision; under "mixed" and "declared" they stay as they are
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

MODULE_FILE = "<module "  # and its name and ">": the file of a module that a problem comes with
NO_CUDA = (
    "no GPU is used here, and where one is, inputs and module are moved to it: leave out .cuda(), .to('cuda') and "
    "device='cuda', and in forward make tensors with device=x.device"
)

# torch's exceptions for calls whose course depends on values -> what is said of them, with the call
DATA_DEPENDENT = {
    "DataDependentOutputException": (
        "forward reads a value out of a tensor here ({}: .item(), int(), bool(), an if), so what it computes is not "
        "known without data: keep it a tensor (torch.where instead of if), or pass the number as an argument of forward"
    ),
    "DynamicOutputShapeException": (
        "the shape of this result depends on values ({}: nonzero, unique, x[mask]), so its size is not known without "
        "data: keep the shape (torch.where(mask, x, 0)), or let get_inputs() return the indices"
    ),
}
REPEATS = "; say how many come out: torch.repeat_interleave(indptr.diff(), output_size=indices.shape[0])"
SELF_LOOPS = "self loops are removed here, by data: give the layer add_self_loops=False, and edges with the loops"
SPARSE = (
    "a sparse matrix has a shape without data only where forward makes it of its parts and multiplies by it, "
    "torch.sparse_csr_tensor(indptr, indices, values, size) @ x; or write the product as "
    "torch.segment_reduce(x[indices] * values[:, None], 'sum', offsets=indptr); the planner has a kernel for both"
)


class _OwnModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the person's own modules that a problem comes with."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def provide(self, modules: tuple[tuple[str, str], ...]) -> None:
        """Make the modules importable, and those of another problem no longer."""
        if dict(modules) == self.texts:
            return
        for name in self.texts:
            sys.modules.pop(name, None)
        self.texts = dict(modules)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        """The module if it is one of them."""
        if fullname not in self.texts:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in self.texts)
        return importlib.machinery.ModuleSpec(fullname, self, origin=f"{MODULE_FILE}{fullname}>", is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Run the text of the module."""
        text, path = self.texts[module.__name__], f"{MODULE_FILE}{module.__name__}>"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        exec(compile(text, path, "exec"), module.__dict__)


_own_modules = _OwnModules()


def provide_modules(problem: Problem) -> None:
    """Make the person's own modules that a problem comes with importable in this process."""
    _own_modules.provide(problem.modules)


def load_module(problem: Problem, settings: Settings = ()) -> ModuleType:
    """The problem's module with its own and the case's settings applied.

    Raises `ProblemError` with the line if importing it fails.
    """
    values = (*problem.settings, *settings)
    source, given = with_settings(problem.source, values), given_settings(problem.source, values)
    provide_modules(problem)
    own = "".join(text for _, text in problem.modules) + (repr(given) if given else "")
    name = f"cutegen_problem_{content_hash(source + own)[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = f"<problem {problem.name} {name[-8:]}>"
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(keepends=True), module.__file__)
    sys.modules[name] = module  # before it runs: dataclasses look their module up
    try:
        with without_compile():
            exec(compile(source, module.__file__, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise problem_error(problem, module, error) from error
    _given[module] = given
    return module


def problem_error(problem: Problem, module: ModuleType, error: Exception, what: str = "") -> ProblemError:
    """An exception in the problem's own code as an error of one line: place, `what` was tried, type and message.

    The place is the innermost line of the problem or of the person's own modules.
    """
    place = _find_place(problem, module, error)
    if type(error).__name__ in DATA_DEPENDENT:
        if any("self_loops" in frame.name for frame in traceback.extract_tb(error.__traceback__)):
            return ProblemError(f"{place}: {SELF_LOOPS}")
        said = DATA_DEPENDENT[type(error).__name__].format(error)
        return ProblemError(f"{place}: {said}{REPEATS if 'aten.repeat_interleave' in str(error) else ''}")
    text = next(iter(str(error).splitlines()), "")
    hint = f"; {SPARSE}" if any(word in text for word in ("compressed tensor", "SparseCsr", "Sparse CSR")) else ""
    if "cuda" in text.lower() and not torch.cuda.is_available():
        hint = f"; {NO_CUDA}"
    return ProblemError(f"{place}: {what}{type(error).__name__}: {text}{hint}")


def _find_place(problem: Problem, module: ModuleType, error: BaseException) -> str:
    """File and line; of a module of the person's also from which line of the problem."""
    line = find_line(error, module.__file__ or "")
    place = f"{problem.origin}:{line}" if line is not None else problem.origin
    trace, inner = error.__traceback__, ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        name = path.removeprefix(MODULE_FILE).removesuffix(">")
        if path == module.__file__:
            inner = ""
        elif path.startswith(MODULE_FILE) and name in dict(problem.modules):
            inner = f"{_module_path(problem, name)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{inner} (from {place})" if inner else place


def _module_path(problem: Problem, name: str) -> str:
    folder = Path() if problem.origin == "cell" else Path(problem.origin).parent
    path = folder.joinpath(*name.split("."))
    return str(path / "__init__.py" if (path / "__init__.py").is_file() else path.with_suffix(".py"))


def find_line(error: BaseException, path: str) -> int | None:
    """The innermost line of `path` in an exception's traceback."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def cast(value: object, problem: Problem) -> object:
    """A floating tensor in the problem's precision, if it casts; integers, bools and everything else as they are."""
    dtype = DTYPES.get(problem.precision)
    return value.to(dtype) if dtype and isinstance(value, torch.Tensor) and value.is_floating_point() else value


def call_inputs(module: ModuleType, problem: Problem, device: str = "cpu") -> list[object]:
    """What `get_inputs()` makes as a flat list of tensors and plain values: the inputs of `find_call`'s form.

    Tensors are moved to `device` and cast. One that is given twice is copied, so that each input is its own. Numbers
    have the values of the module's settings.
    """
    inputs, _calls[module] = read_call(module.get_inputs(), _parameters(module))
    for name, number in _given.get(module, {}).items():
        inputs[_calls[module].names.index(name)] = number
    seen: set[int] = set()

    def take(value: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        own = value.clone() if id(value) in seen else value
        seen.add(id(value))
        return own.to(device) if own.device.type != device else own

    return [cast(take(value), problem) for value in inputs]


_calls: WeakKeyDictionary[ModuleType, Call] = WeakKeyDictionary()
_given: WeakKeyDictionary[ModuleType, dict[str, Scalar]] = WeakKeyDictionary()  # numbers for forward, by name


def find_call(module: ModuleType, problem: Problem, *, is_small: bool = False) -> Call:
    """The form of forward's arguments. Where it is not known yet, `get_inputs()` makes tensors without memory.

    It makes real ones if it needs their values, or if they are small: torch imports 500 modules for the others. Torch's
    generators stay as they are.
    """
    if module not in _calls:
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices), torch.no_grad():
            try:
                with torch.device("cpu" if is_small else "meta") as device:
                    call_inputs(module, problem, device.type)
            except Exception:  # what the person's code raises without values
                seed_generators(0)
                call_inputs(module, problem)
    return _calls[module]


def name_tensors(module: ModuleType, problem: Problem, inputs: Sequence[object]) -> dict[str, torch.Tensor]:
    """The tensors among the inputs of a call by name."""
    named = zip(find_call(module, problem).names, inputs, strict=True)
    return {name: value for name, value in named if isinstance(value, torch.Tensor)}


def _parameters(module: ModuleType) -> dict[str, inspect.Parameter]:
    """Parameters of forward without self."""
    if not issubclass(type(module.Model), type):
        kind = type(module.Model).__name__
        raise ProblemError(
            f"Model is an instance of {kind}, not a class: write class Model, which makes it in __init__"
        )
    return dict(list(inspect.signature(module.Model.forward).parameters.items())[1:])


def seed_generators(seed: int) -> None:
    """Seed torch's generators as `torch.manual_seed` does.

    Without CUDA that takes milliseconds: it notes a stack for each kind of device that has not started.
    """
    if torch.version.cuda is None:
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def make_inputs(module: ModuleType, problem: Problem, seed: int, device: str = "cpu") -> list[object]:
    """`get_inputs()` after seeding, made on `device`, in the dtypes of the problem."""
    seed_generators(seed)
    with torch.device(device):
        return call_inputs(module, problem, device)


def lazy_zeros(spec: TensorSpec) -> torch.Tensor:
    """Zeros of that shape, dtype and strides, from the start of a page on, as an allocation on a device.

    The system maps their memory only when it is used, and does not count it before (`_MAP_NORESERVE`), so a tensor may
    be larger than the machine's memory.
    """
    size = (
        1 + sum((extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True))
        if all(spec.shape)
        else 0
    )
    dtype = getattr(torch, spec.dtype)
    if not size:
        return torch.zeros(spec.shape, dtype=dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    pages = mmap.mmap(-1, size * dtype.itemsize, flags=flags)
    return torch.frombuffer(pages, dtype=dtype).as_strided(spec.shape, spec.strides)


def build_model(
    module: ModuleType,
    name: str,
    problem: Problem,
    device: str = "cpu",
    *,
    init_from: ModuleType | None = None,
    changed: tuple[str, ...] | None = None,
) -> torch.nn.Module:
    """The module's class `name` (Model or ModelNew) with the problem's init inputs, in its precision and mode.

    It takes the inputs of a call as a flat list. If forward returns nothing, `changed` names what it changes.
    """
    with torch.device(device):
        model = construct(getattr(module, name), init_from or module)
    model = set_mode(cast_model(model.to(device), problem), problem)
    return adapt_model(model, init_from or module, problem, changed)


def adapt_model(
    model: torch.nn.Module, module: ModuleType, problem: Problem, changed: tuple[str, ...] | None = None
) -> torch.nn.Module:
    """The model, which takes the inputs of a call as a flat list, and returns what it changes if forward returns
    nothing.
    """
    call, nothing = find_call(module, problem), returns_nothing(problem.source)
    return adapt(model, call, returns_nothing=nothing, changed=changed)


def set_mode(model: torch.nn.Module, problem: Problem) -> torch.nn.Module:
    """The model in eval mode if the problem says so; else as `__init__` leaves it, which may have called eval() of
    parts.
    """
    return model.eval() if problem.mode == "eval" else model


def construct(model: type[torch.nn.Module], init_from: ModuleType) -> torch.nn.Module:
    """The model with what `get_init_inputs()` returns: a list, or a dictionary of `__init__`'s arguments.

    Raises `TypeError` if the `__init__` of a candidate does not take these.
    """
    given = init_from.get_init_inputs()
    args, kwargs = ((), given) if isinstance(given, dict) else (given, {})
    if model is not init_from.Model:
        check_fit(model, init_from.Model, args, kwargs)
        return model(*args, **kwargs)
    with without_compile(), torch.no_grad():  # what `weight_norm` computes of parameters can be copied then
        return model(*args, **kwargs)


def cast_model(model: torch.nn.Module, problem: Problem) -> torch.nn.Module:
    """The model with floating parameters and buffers in the problem's precision, if it casts."""
    dtype = DTYPES.get(problem.precision)
    return model if dtype is None else model.to(dtype)


def pair_parameters(reference: torch.nn.Module, candidate: torch.nn.Module) -> dict[str, str]:
    """Names of the reference's parameters and buffers -> the candidate's: by name, then by a shape that is left once
    on each side.
    """
    left, target = state_of(reference), state_of(candidate)
    pairs = {name: name for name, value in target.items() if name in left and left[name].shape == value.shape}
    source_shapes = Counter(value.shape for name, value in left.items() if name not in pairs)
    target_shapes = Counter(value.shape for name, value in target.items() if name not in pairs)
    for name, value in target.items():
        if name not in pairs and source_shapes[value.shape] == target_shapes[value.shape] == 1:
            key = next(key for key, other in left.items() if other.shape == value.shape and pairs.get(key) != key)
            pairs[key] = name
    return pairs


def copy_parameters(reference: torch.nn.Module, candidate: torch.nn.Module) -> tuple[str, ...]:
    """Copy parameters and buffers to their partners (`pair_parameters`).

    Returns a line for each one that has no counterpart.
    """
    left, target = state_of(reference), state_of(candidate)
    pairs = pair_parameters(reference, candidate)
    with torch.no_grad():
        for key, name in pairs.items():
            target[name].copy_(left[key])
    taken, given = set(pairs), set(pairs.values())
    return (
        *(
            f"{name} {tuple(value.shape)} of ModelNew has no counterpart in Model"
            for name, value in target.items()
            if name not in given
        ),
        *(
            f"{name} {tuple(value.shape)} of Model was not taken over"
            for name, value in left.items()
            if name not in taken
        ),
    )


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def forward_arguments(module: ModuleType) -> tuple[str, ...]:
    """Names of forward's arguments, without self."""
    return tuple(_parameters(module))


def plain_arguments(module: ModuleType, problem: Problem, inputs: Sequence[object]) -> tuple[tuple[str, str, str], ...]:
    """(name, type, value) of forward's arguments that hold no tensor: those given, then those left out."""
    names = find_call(module, problem).names
    given = [(name, value) for name, value in zip(names, inputs, strict=True) if not isinstance(value, torch.Tensor)]
    taken = {re.split(r"[.\[]", name)[0] for name in names}
    left = [(name, one.default) for name, one in _parameters(module).items() if name not in taken]
    return tuple(
        (name, type(value).__name__, repr(value)[:LONGEST_VALUE])
        for name, value in (*given, *left)
        if value is not inspect.Parameter.empty
    )
