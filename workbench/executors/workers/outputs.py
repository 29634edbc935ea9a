"""Imports a candidate in its process, and validates its outputs before they are passed on."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import torch

from workbench.emulator import EmulationFault
from workbench.errors import ProblemError
from workbench.problems import loading
from workbench.problems.results import describe_structure, flatten_result, is_alike
from workbench.records import NOTHING, Case, Failure, Job, Stage, TensorSpec
from workbench.toolchain import explain_error
from workbench.wire import Json, to_plain

OUTPUTS = "out"  # below scratch
SMALL = 1 << 20  # elements of inputs that take less time to be made than torch to make some without memory
# Methods and properties of tensors, taken before a candidate is imported, which could replace them
_numel, _element_size, _stride = torch.Tensor.numel, torch.Tensor.element_size, torch.Tensor.stride
_detach, _shape, _dtype = torch.Tensor.detach, torch.Tensor.shape.__get__, torch.Tensor.dtype.__get__


class Rejected(Exception):
    """The candidate failed in a way that is already a `Failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def find_case(job: Job, name: str) -> Case:
    """The case of that name."""
    return next(case for case in job.facts.cases if case.name == name)


def load_case(job: Job, name: str) -> ModuleType:
    """The problem's module at the sizes of a case, of which the form of a call is then known."""
    case = find_case(job, name)
    module = loading.load_module(job.problem, case.settings)
    loading.find_call(module, job.problem, is_small=sum(spec.elements for spec in case.inputs) <= SMALL)
    return module


def tolerance_path(folder: Path, place: str) -> Path:
    """The file with the tolerances of a trial."""
    return folder / "private" / f"{place}-tolerances"


def source_path(folder: Path) -> str:
    """The candidate's file in its job's folder."""
    return str(folder / "scratch" / "candidate.py")


def import_candidate(source_file: str) -> ModuleType:
    """Import the candidate. Raises `Rejected` if it defines no module ModelNew."""
    spec = importlib.util.spec_from_file_location("cutegen_candidate", source_file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cutegen_candidate"] = module
    spec.loader.exec_module(module)
    model = getattr(module, "ModelNew", None)
    if not isinstance(model, type) or not issubclass(model, torch.nn.Module):
        what = "ModelNew is no torch.nn.Module" if isinstance(model, type) else "the file defines no class ModelNew"
        raise Rejected(
            Failure(
                stage="import",
                kind="no_model",
                message=what,
                hint="a candidate is a KernelBench file: class ModelNew(torch.nn.Module) with forward",
            )
        )
    return module


def check_untouched(find_replaced: Callable[[], str]) -> None:
    """Raise `Rejected` if functions of the workbench were replaced (jobs/replaced.py)."""
    if name := find_replaced():
        message = f"the candidate replaced {name}, a function of the process that judges it"
        raise Rejected(Failure(stage="integrity", kind="replaced_function", message=message))


def explain_failure(error: BaseException, source_file: str, stage: Stage) -> Json:
    """The failure for an exception of the candidate, as plain data."""
    if isinstance(error, (EmulationFault, Rejected)):
        return plain_failure(error.failure)
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        error = RuntimeError(f"the candidate called {type(error).__name__}")
    return plain_failure(explain_error(error, source_file, "source" if isinstance(error, SyntaxError) else stage))


def plain_failure(failure: Failure) -> Json:
    """A failure as plain data."""
    plain: Json = to_plain(failure)
    return plain


def digest(values: Iterable[object]) -> str:
    """A digest of the bits of all tensors among the values, on the CPU or on a device."""
    made = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            made.update(str(_device_sum(value)).encode())
        elif isinstance(value, torch.Tensor) and value.numel():
            made.update(value.contiguous().reshape(-1).view(torch.uint8).numpy())
    return made.hexdigest()


def _device_sum(value: torch.Tensor) -> int:
    """A sum over the bits of a CUDA tensor weighted by position; a changed or moved element changes it."""
    flat = value.contiguous().reshape(-1).view(torch.uint8)
    size = next(size for size in (4, 2, 1) if flat.numel() % size == 0)
    words = flat.view({4: torch.int32, 2: torch.int16, 1: torch.uint8}[size])
    total = 0
    for at in range(0, words.numel(), 1 << 26):
        part = words[at : at + (1 << 26)].to(torch.int64)
        weight = (
            torch.arange(at, at + part.numel(), device=value.device, dtype=torch.int64).mul_(0x9E3779B1).bitwise_or_(1)
        )
        total += int((part * weight).sum().item())
    return total


def validate(
    job: Job,
    name: str,
    output: object,
    count_unwritten: Callable[[torch.Tensor], int] = lambda _: 0,
    any_strides: bool = False,
) -> list[torch.Tensor]:
    """The outputs of case `name` in the reference's order, if names, shapes and dtypes are those of the reference.

    `count_unwritten` gives the bytes of an output that no kernel wrote. Raises `Rejected`. Transposed outputs and views
    are taken; those whose elements share memory by a stride of 0 only with `any_strides`.
    """
    expected = find_case(job, name).outputs
    if output is None:
        what = _counted(expected)
        raise _reject("wrong_outputs", f"ModelNew.forward returns None; the reference returns {what}", "return them")
    try:
        found = flatten_result(output)
    except ProblemError as error:
        if not isinstance(output, (tuple, list, dict)):
            raise _reject("wrong_type", f"the output is a {type(output).__name__}, not a torch.Tensor") from None
        raise _reject("wrong_outputs", str(error)) from None
    kinds = _describe_kinds(output, job.facts.structure, len(expected)) if job.facts.form != NOTHING else None
    if kinds and job.facts.structure:
        raise _reject("wrong_outputs", *kinds)
    if {*found} != {spec.name for spec in expected}:
        many, wanted = _counted(found), _counted(expected)
        if job.facts.form == NOTHING:
            wanted = f"nothing, and changes {', '.join(spec.name for spec in expected)} in place"
        raise _reject("wrong_outputs", f"ModelNew.forward returns {many}; the reference returns {wanted}")
    if kinds:
        raise _reject("wrong_outputs", *kinds)
    return validate_tensors(job, name, found, count_unwritten, any_strides)


def validate_tensors(
    job: Job,
    name: str,
    found: Mapping[str, torch.Tensor],
    count_unwritten: Callable[[torch.Tensor], int] = lambda _: 0,
    any_strides: bool = False,
) -> list[torch.Tensor]:
    """The outputs by name as `validate` returns them, if shapes and dtypes are those of the reference.

    Raises `Rejected`.
    """
    expected, tensors = find_case(job, name).outputs, list[torch.Tensor]()
    for spec in expected:
        which = spec.output_title if len(expected) > 1 else "the output"
        tensor = _check_form(found[spec.name], spec, which, name, any_strides)
        tensors.append(_detach(tensor))
        if unwritten := count_unwritten(tensor):
            size = _numel(tensor) * _element_size(tensor)
            if unwritten >= size:
                raise _reject(
                    "partial_write",
                    f"{which} was never written (case {name})",
                    "no kernel stored into the tensor that forward returns: is it passed to the launch, does the "
                    "launch run, does the guard let any thread store?",
                )
            raise _reject(
                "partial_write",
                f"{unwritten} of {size} bytes of {which} were never written (case {name})",
                "cover every element, the tail at odd sizes included",
            )
    return tensors


class Returned:
    """The results of the calls so far, which a caller may still hold."""

    def __init__(self) -> None:
        self.results: list[torch.Tensor] = []
        self.reused = False  # whether a result lies where an earlier one does

    def add(self, found: Sequence[torch.Tensor], owned: Iterable[object]) -> None:
        """Add the results of a call. Those in a tensor of the model or the caller (`owned`) reuse nothing."""
        places = {_storage(value) for value in self.results} - {_storage(value) for value in owned} - {0}
        self.reused |= any(_storage(value) in places for value in found)
        self.results += found


def _storage(value: object) -> int:
    return int(value.untyped_storage().data_ptr()) if isinstance(value, torch.Tensor) else 0


def _counted(names: Mapping[str, object] | Sequence[TensorSpec]) -> str:
    """The number and the names of outputs."""
    titles = [item if isinstance(item, str) else item.name for item in names]
    return f"{len(titles)} output{'s' * (len(titles) != 1)} ({', '.join(titles)})"


def _describe_kinds(output: object, structure: str, count: int) -> tuple[str, str] | None:
    """(message, hint) if the containers of an output are not those of the reference; None if they are alike."""
    got = describe_structure(output)
    is_plain = got == "*" if count == 1 else set(got) <= set("tuple(*, )")
    if is_alike(got, structure) or (not structure and is_plain):
        return None
    own, wanted = (text.replace("*", "tensor") for text in (got, structure or "*"))
    hint = "return the same kind of container, whose class may be your own; a list counts as a tuple"
    return f"ModelNew.forward returns {own}; the reference returns {wanted}", hint if structure else ""


def _check_form(value: object, spec: TensorSpec, which: str, case: str, any_strides: bool) -> torch.Tensor:
    """The value as a tensor of the shape and dtype, without strides of 0 unless `any_strides`.

    Subclasses of Tensor and attributes of an instance run own code, so they are refused.
    """
    if type(value) is not torch.Tensor:
        raise _reject("wrong_type", f"{which} is a {type(value).__name__}, not a torch.Tensor")
    tensor: torch.Tensor = value
    if own := object.__getattribute__(tensor, "__dict__"):
        raise _reject(
            "wrong_type",
            f"{which} has attributes of its own ({', '.join(map(str, own))}), which could replace a tensor's methods",
            "return a tensor without them",
        )
    shape, found = tuple(_shape(tensor)), str(_dtype(tensor)).removeprefix("torch.")
    if shape != spec.shape:
        raise _reject("wrong_shape", f"{which} has shape {list(shape)}, expected {list(spec.shape)} (case {case})")
    if found != spec.dtype:
        raise _reject("wrong_dtype", f"{which} is {found}, expected {spec.dtype}")
    steps = _stride(tensor)
    if not any_strides and any(not step and extent > 1 for step, extent in zip(steps, shape, strict=True)):
        raise _reject(
            "wrong_strides", f"{which} has strides {list(steps)}, expected memory of its own for each element"
        )
    return tensor


def _reject(kind: str, message: str, hint: str = "") -> Rejected:
    return Rejected(Failure(stage="check", kind=kind, message=message, hint=hint))
