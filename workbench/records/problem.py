"""Problems, the facts found out about them, and their tensors."""

from __future__ import annotations

import math
import re
from dataclasses import field

from workbench.records.base import LATER, Mode, Precision, Provenance, Settings, record

LONGEST_VALUE = 40  # characters of an argument's value that are kept
NOTHING = "None"  # the form of the result of a forward that returns nothing


@record
class Problem:
    """A PyTorch computation in KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()` in `source`."""

    name: str
    source: str
    origin: str = "cell"  # a path, "cell", "expression" or "shipped"
    settings: Settings = ()  # numbers of the text that the user overrides (`--set name=value`)
    # dtype of floating inputs and parameters; tf32: fp32 storage, TF32 arithmetic; mixed: each as the text has it;
    # declared: as the text has it, not yet looked at. An opened problem has one of the others.
    precision: Precision = "fp32"
    mode: Mode = "train"  # "train": as __init__ leaves the module, because KernelBench calls neither train() nor eval()
    tie: tuple[tuple[str, ...], ...] = field(default=(), metadata=LATER)  # sizes that always have one value
    vary: tuple[str, ...] = field(default=(), metadata=LATER)  # sizes that vary on their own, even if set
    keep: tuple[str, ...] = field(default=(), metadata=LATER)  # sizes that stay as they are in every case
    # (module name, text) of the person's own modules that the source imports
    modules: tuple[tuple[str, str], ...] = field(default=(), metadata=LATER)


@record
class TensorSpec:
    """A tensor's shape and strides in elements, and its torch dtype without prefix ("float32", "int64")."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def output_title(self) -> str:
        """An output in words: `output 1 (int64)` by its place in a tuple, else `output mean`."""
        place = re.fullmatch(r"output(\d.*)", self.name)
        return f"output {place[1]} ({self.dtype})" if place else f"output {self.name}"

    @property
    def stored_elements(self) -> int:
        """Elements that a tensor holds in memory: an expanded axis (stride 0) counts once."""
        return math.prod(
            extent for extent, stride in zip(self.shape, self.strides, strict=True) if stride or extent == 0
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of a contiguous tensor: float32 has 4 for each element, float8_e4m3fn 1, complex64 8, bool 1."""
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * (int(bits[0]) // 8 if bits else 1)


@record
class Operation:
    """One ATen call of the traced reference: `aten.addmm.default`.

    Operands are names: an input has forward's argument name, a parameter is `param:<name>`, a buffer `buffer:<name>`,
    an intermediate has the name of its operation, a list is `[a, b]`, and any other value is its repr. The last
    operation of a graph has the name and target `output`; its operands are the values that forward returns.
    """

    name: str  # of the result
    target: str
    operands: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...] = ()
    result: tuple[TensorSpec, ...] = ()


def aten_name(op: Operation) -> str:
    """The call's name in ATen: `aten.addmm.default` is addmm."""
    return op.target.removeprefix("aten.").split(".")[0]


def plain_name(op: Operation) -> str:
    """The call's name in ATen without the end of calls that write to their operand, which compute the same: `add_` is
    add.
    """
    return aten_name(op).removesuffix("_")


@record
class Case:
    """A set of shapes to test: `full` (as in the file), `shrunk` (fits the emulator's budget), `odd`, `tiny` (sizes of
    1 where the reference allows it), `over` (one over a power of two), `long` (more than one CTA covers; also `long2`
    and `long3`), `empty` (a size of 0), or `numbers` and `numbers2` (as `shrunk`, with other numbers given to forward).
    """

    name: str
    settings: Settings
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()


@record
class Work:
    """The least work of the reference at one case: FLOPs, and bytes with each tensor read or written once."""

    case: str
    flops: int
    least_bytes: int
    dtype: str  # the dtype whose peak rate bounds the FLOPs ("float32", "tfloat32", "float16", "bfloat16")
    tensor_cores: bool  # whether the FLOPs are matrix products, so that tensor-core rates apply
    provenance: Provenance = "counted"
    parts: tuple[tuple[str, int], ...] = ()  # FLOPs by ATen operation, largest first


@record
class Degeneracy:
    """A weakness of a task: a trivial output would pass, or the comparison is not meaningful.

    `kind` is "zero", "constant", "replay", "ignores_inputs" (the same result for other inputs, bit by bit), "identity"
    (a result is an input), "random" (the reference fails against itself), "not_finite", "input_modified" (forward
    writes to an input) or "state_assigned" (forward assigns to its own attributes or buffers).
    """

    kind: str
    message: str


@record
class Size:
    """A number of the problem's text that decides extents, and those that always have its value.

    `extents` are axes of inputs and parameters at full size: `x[1]`, `up.weight[0]`.
    """

    name: str
    value: int  # at full size
    tied: tuple[str, ...] = ()  # the other names with this value
    extents: tuple[str, ...] = ()
    varied: bool = True  # whether some case has another value
    why: str = ""  # it is not varied: the reason


@record
class NumberUse:
    """An argument of an ATen call that is made of a number given to forward."""

    op: str  # the name of the call's result
    place: str  # of the argument: its position, its keyword, or its position and that in a list: "1", "alpha", "1.0"
    expression: str  # of the argument, in forward: "pos", "1.0 - alpha"


@record
class GivenNumber:
    """A number, or a bool, that `get_inputs` gives to forward, and that a caller may give other values."""

    name: str  # its Python expression in forward
    value: bool | int | float  # in get_inputs, which the full case has
    key: str  # its name in a case's settings
    others: tuple[bool | int | float, ...] = ()  # other values that cases have; () if it is not varied
    uses: tuple[NumberUse, ...] = ()  # in `graph`
    full_uses: tuple[NumberUse, ...] = ()  # in `full_graph`
    unclear: str = ""  # the call in which it is used otherwise, or "a branch"; "" if `uses` has all
    follows: bool = False  # whether it is an extent of an input, with which it varies


def scale_name(attention: str) -> str:
    """What the factor of an attention's scores is called, by the name of the attention's value in a graph."""
    return "attention_scale" + "".join(re.findall(r"_\d+$", attention))


@record
class ShapeDerivedTensor:
    """A tensor that forward makes of sizes alone: torch.arange(x.shape[0]); or a factor made of one."""

    name: str  # of the value in `graph`, or `scale_name` of an attention in it
    dtype: str
    expression: str  # in forward
    extents: tuple[str, ...]  # its shape in forward: "4", "x.shape[1]"


@record
class Between:
    """Each value of the first case's graph at another case than the first and the last, under the same name."""

    case: str
    values: tuple[TensorSpec, ...]


@record
class Facts:
    """Facts about a problem, determined by a trusted worker without any candidate."""

    problem_hash: str
    kind: str  # elementwise, reduction, softmax, norm, matmul, loss, other
    init_source: str  # body of Model.__init__, dedented; ModelNew uses it to create the same parameters
    forward_arguments: tuple[str, ...]
    graph: tuple[Operation, ...]  # traced at the shrunk case
    parameters: tuple[TensorSpec, ...]
    cases: tuple[Case, ...]
    work: tuple[Work, ...]
    degeneracies: tuple[Degeneracy, ...] = ()
    notes: tuple[str, ...] = ()
    # each value of `graph` at the full case, under the same name; () if the graph differs there
    full: tuple[TensorSpec, ...] = ()
    # the graph traced at the full case; it may differ: 1 / sqrt(64) for 1 / sqrt(8), a slice for a whole tensor
    full_graph: tuple[Operation, ...] = ()
    sizes: tuple[Size, ...] = field(default=(), metadata=LATER)
    # what forward returns, with `*` for each tensor: "{'y': *, 'cache': None}"; "" for a tensor or a tuple of tensors;
    # NOTHING if it changes inputs or buffers and returns nothing: these are then the outputs, under their names
    form: str = field(default="", metadata=LATER)
    # the containers of the result by kind, if it is no tensor or tuple of tensors: "dataclass Output(y=*, cache=None)"
    structure: str = field(default="", metadata=LATER)
    # forward's arguments that hold no tensor, at full size: ("pos", "int", "17"); defaults too
    plain_arguments: tuple[tuple[str, str, str], ...] = field(default=(), metadata=LATER)
    given: tuple[GivenNumber, ...] = field(default=(), metadata=LATER)
    # numbers of the text beyond which no case for the emulator goes: "the constant 4096 in line 7 was never reached"
    unreached: tuple[str, ...] = field(default=(), metadata=LATER)
    made: tuple[ShapeDerivedTensor, ...] = field(default=(), metadata=LATER)
    # whole numbers of `graph` that are extents of inputs there by chance: they are the same at other sizes
    constants: tuple[int, ...] = field(default=(), metadata=LATER)
    # (name of a call of `graph`, where forward makes it: "line 12", "line 3 of layers"), as far as it is known
    places: tuple[tuple[str, str], ...] = field(default=(), metadata=LATER)
    # where sizes are the same in the first and the last case, and others at one between them
    between: tuple[Between, ...] = field(default=(), metadata=LATER)

    @property
    def result_titles(self) -> tuple[str, ...]:
        """What each output is called in a verdict."""
        outputs = self.cases[-1].outputs if self.cases else ()
        if self.form == NOTHING:
            return tuple(f"{spec.name} after the call" for spec in outputs)
        return tuple(spec.output_title for spec in outputs) if len(outputs) > 1 else ("result",)

    @property
    def has_eight_bits(self) -> bool:
        """Whether any value of the reference is a float of 8 bits."""
        given = [*self.parameters, *(spec for case in self.cases for spec in (*case.inputs, *case.outputs))]
        return any(
            spec.dtype.startswith("float8") for spec in (*given, *(one for op in self.graph for one in op.result))
        )

    def state_label(self, name: str) -> str:
        """The name of a parameter or buffer in `Size.extents`: `self.k` where an input is called k too."""
        return f"self.{name}" if any(spec.name == name for case in self.cases for spec in case.inputs) else name

    def size_values(self, case: str) -> dict[str, int]:
        """Each size's value in a case, by name."""
        settings = next(dict(one.settings) for one in self.cases if one.name == case)
        return {size.name: int(str(settings.get(size.name, size.value))) for size in self.sizes}

    def other_numbers(self, case: str) -> dict[str, bool | int | float]:
        """The numbers given to forward that have another value in a case than in `get_inputs`, by name."""
        settings = next(dict(one.settings) for one in self.cases if one.name == case)
        return {
            one.name: value
            for one in self.given
            if isinstance(value := settings.get(one.key), (int, float)) and value in one.others
        }


@record
class Opened:
    """A problem as it was understood (precision and ties decided), and its facts."""

    problem: Problem
    facts: Facts
