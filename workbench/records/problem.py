"""What to compute."""

from __future__ import annotations

import math
import re

from workbench.records.base import Mode, Precision, Provenance, Settings, record


@record
class Problem:
    """A PyTorch computation in KernelBench's form: `Model`, `get_inputs()`, `get_init_inputs()` in `source`."""

    name: str
    source: str
    origin: str = "cell"  # a path, "cell", "expression" or "shipped"
    settings: Settings = ()  # module-level names that the person overrides (`--set name=value`)
    precision: Precision = "fp32"  # what floating inputs and parameters are cast to; tf32 = fp32 storage, TF32 maths
    mode: Mode = "train"  # KernelBench never calls .eval()


@record
class TensorSpec:
    """Shape and strides in elements; dtype as torch spells it without the prefix ("float32", "bfloat16", "int64")."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of a contiguous tensor: float32 has 4 for each element, float8_e4m3fn 1, complex64 8, bool 1."""
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * (int(bits[0]) // 8 if bits else 1)


@record
class Operation:
    """One ATen call of the traced reference: `aten.addmm.default`.

    An operand is spelt: an input by forward's argument name, a parameter `param:<name>`, a buffer `buffer:<name>`, an
    intermediate by the name of the operation that makes it, a list as `[a, b]` of such, anything else by its repr. The
    last operation of a graph is called `output`, with target `output`; its operands are what forward returns.
    """

    name: str  # of the value it produces
    target: str
    operands: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...] = ()
    result: tuple[TensorSpec, ...] = ()


@record
class Case:
    """One set of shapes to check at: `full` (the file's own), `shrunk` (fits the emulator's budget) or `odd`."""

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
    """A task that a trivial output passes.

    `kind` is "zero", "constant", "replay", "random" (the reference fails against itself), "not_finite" or
    "input_modified" (forward writes to an input).
    """

    kind: str
    message: str


@record
class Facts:
    """What a trusted worker found out about a problem without any candidate."""

    problem_hash: str
    kind: str  # elementwise, reduction, softmax, norm, matmul, loss, other
    init_source: str  # body of Model.__init__, dedented, so that ModelNew can own the same parameters
    forward_arguments: tuple[str, ...]
    graph: tuple[Operation, ...]  # traced at the shrunk case
    parameters: tuple[TensorSpec, ...]
    cases: tuple[Case, ...]
    work: tuple[Work, ...]
    degeneracies: tuple[Degeneracy, ...] = ()
    notes: tuple[str, ...] = ()
    full: tuple[
        TensorSpec, ...
    ] = ()  # every value of the graph at the full case, named as in it; () where the graph is another one there
    full_graph: tuple[
        Operation, ...
    ] = ()  # traced at the full case, where it may differ: 1 / sqrt(64) for 1 / sqrt(8), a slice for a whole tensor
