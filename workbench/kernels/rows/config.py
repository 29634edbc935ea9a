"""Configuration of the row kernels: passes over a row, their hooks, and how threads share rows. Pure data.

Values of a row are numbered in the order in which they are computed: a pass names by number what it needs of them.
"""

from __future__ import annotations

from typing import ClassVar

from workbench.records import record


@record
class Slot:
    """A value that a thread keeps: name and type, f32 or i32."""

    name: str
    kind: str = "f32"


@record
class Pass:
    """What a pass over a row reads: tensors, results of earlier passes, and scalars computed from those."""

    name: str
    inputs: tuple[int, ...] = ()  # which of the tensors of the full shape
    repeated: tuple[int, ...] = ()  # which of the broadcast tensors
    reads: tuple[int, ...] = ()  # which values of the row, `scalars` following those of the passes before
    scalars: object = None  # hook: values of the row -> further ones, computed once per row
    scalar_reads: tuple[int, ...] = ()
    scalar_slots: tuple[Slot, ...] = ()


@record
class Level(Pass):
    """The reductions of one pass. Hooks take and return the slots of `state` as separate values."""

    state: tuple[Slot, ...]
    values: tuple[Slot, ...]  # the reductions' results
    start: object  # hook: () -> state before any element
    absorb: object  # hook: state, elements, values of the row, [position] -> state
    merge: object  # hook: state, state of other threads -> state
    finish: object = None  # hook: state, [number of elements] -> values; None: the state is the value
    is_counted: bool = False  # whether `finish` needs the number of elements
    is_numbered: bool = False  # whether `absorb` needs the element's position
    is_online: bool = False  # softmax's maximum, and the sum of exponentials scaled to it
    merge_total: object = None  # hook of an online level: sum, sum of other threads -> sum
    slots: tuple[int, ...] = ()  # which of the kernel's shared memory a part of `state` goes through


@record
class Result(Pass):
    """What is stored: one value per element, or one value per row."""

    expression: object  # hook: elements, values of the row -> the result's value
    is_whole: bool = False  # whether there is one for each element of a row


@record
class Prologue(Pass):
    """A prologue: what is computed of the elements of a row as they are loaded, and kept in place of them."""

    expression: object  # hook: elements of all tensors -> what is kept


@record
class RowConfig:
    """One reduction along an axis.

    layout: rows (the axis is contiguous), columns (it is strided), or segments (all axes but one).
    """

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads per row, or per group of columns",
        "vector": "neighbouring elements in one access, where addresses allow it",
        "unroll": "vectors that a thread loads before it uses the first one",
        "cluster": "CTAs that share a row through each other's shared memory",
        "split": "thread groups that split the rows of a column",
        "lanes": "column vectors per CTA",
        "parts": "maximum number of CTAs that share a row",
        "cta_threads": "threads of a CTA",
        "rows_per_cta": "rows per CTA",
        "step": "stride between the vectors of a row, or the rows of a column, that one thread loads",
        "memory_places": "values in shared memory: one per warp, and one more if several CTAs share a row",
    }
    levels: tuple[Level, ...]
    result: Result
    is_matrix: bool = False  # rows of any number, in pieces; a broadcast tensor has one element for each column
    axis: str = "last"  # last, all, but or strided
    first_axis: int = 0  # the one that is left (but), the first one reduced (strided)
    last_axis: int = 1  # how many are reduced (last), the last one reduced (strided)
    least_axes: int = 0  # axes that a tensor has at least
    keepdim: bool = False
    is_place: bool = False  # whether the result is a place, an int64
    undefined: str = ""  # the reduction that has no value without elements
    threads: int = 32
    vector: int = 1
    unroll: int = 1
    is_kept: bool = False
    prologue: Prologue | None = None  # of a row that is kept; passes then read this one tensor
    cluster: int = 1
    split: int = 1
    parts: int = 1
    memory: tuple[Slot, ...] = ()  # shared memory that threads of a row combine through
    reads_integers: bool = False  # whether a tensor is int32 or int64: its values are rounded to float32, as torch does
    out: str = ""  # the result's type where it is not that of the first tensor
    # whether the values of the rows are returned: beside a result with one value per element, else in its place
    returns_values: bool = False
    has_result: bool = True  # whether the result is written, or only these values are wanted

    @property
    def writes_elements(self) -> bool:
        """Whether a result with a value for each element is written."""
        return self.result.is_whole and self.has_result

    @property
    def layout(self) -> str:
        """Memory layout of the reduced axis: rows, columns or segments."""
        return {"strided": "columns", "but": "segments"}.get(self.axis, "rows")

    @property
    def warps(self) -> int:
        """Number of warps that share a row."""
        return self.threads // 32

    @property
    def value_count(self) -> int:
        """Number of values that all passes compute of a row."""
        return sum(len(level.values) for level in self.levels)

    @property
    def lanes(self) -> int:
        """Number of column vectors per CTA."""
        return self.threads // self.split

    @property
    def step(self) -> int:
        """Stride between the vectors of a row, or the rows of a column, that one thread loads."""
        return self.split if self.layout == "columns" else self.threads * self.cluster

    @property
    def cta_threads(self) -> int:
        """Threads of a CTA; one CTA has several rows if a row has at most a warp."""
        return self.threads if self.threads > 32 else 128

    @property
    def rows_per_cta(self) -> int:
        """Number of rows per CTA."""
        return self.cta_threads // self.threads

    @property
    def is_combined(self) -> bool:
        """Whether several warps or CTAs share a row."""
        return self.warps > 1 or self.cluster > 1

    @property
    def memory_places(self) -> int:
        """Number of values in shared memory: one per warp, and one more if several CTAs share a row."""
        return self.warps + (self.cluster > 1)

    @property
    def is_one_value(self) -> bool:
        """Whether one pass reduces all elements to one value, which is done in pieces for large tensors."""
        return self.axis == "all" and len(self.levels) == 1 and not self.result.is_whole and not self.is_place

    @property
    def steps(self) -> tuple[Step, ...]:
        """The passes of a two-pass (split) reduction."""
        last = len(self.levels) - 1
        return tuple(
            Step(cfg=self, level=level, is_last=number == last and not self.result.is_whole)
            for number, level in enumerate(self.levels)
        )


@record
class Step:
    """One pass of a split reduction: a kernel that computes partial results and one that combines them."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "end_threads": "threads that combine the partial results of one result",
        "end_cta": "threads of a CTA of the combining kernel",
        "end_results": "results per CTA of the combining kernel",
    }
    cfg: RowConfig
    level: Level
    is_last: bool  # whether the result is computed from its values

    @property
    def name(self) -> str:
        """The name of its level."""
        return self.level.name

    @property
    def memory(self) -> tuple[Slot, ...]:
        """Slots of shared memory that its threads combine through."""
        return tuple(self.cfg.memory[number] for number in self.level.slots)

    @property
    def end_threads(self) -> int:
        """Threads that combine the partial results of one result."""
        if self.cfg.layout == "columns":
            return 32
        return 1024 if self.cfg.parts >= 2048 else self.cfg.threads

    @property
    def end_warps(self) -> int:
        """Number of warps that combine the partial results of one result."""
        return self.end_threads // 32

    @property
    def end_cta(self) -> int:
        """Threads of a CTA of the combining kernel; it has several results if each has one warp."""
        return self.end_threads if self.end_threads > 32 else 128

    @property
    def end_results(self) -> int:
        """Number of results per CTA of the combining kernel."""
        return self.end_cta // 32


@record
class LossConfig:
    """Cross entropy: the losses of the rows and how they are reduced: mean, sum or none."""

    # of the maximum, the mean if there is smoothing, and the sum of exponentials; no levels if x is log-probabilities
    rows: RowConfig
    reduction: str = "mean"
    smoothing: float = 0.0  # the share of each label that is spread over all classes

    @property
    def is_of_logits(self) -> bool:
        """Whether x is logits rather than log-probabilities."""
        return len(self.rows.levels) > 0


@record
class StatisticsConfig:
    """Statistics of a batch by channel, and the update of running ones by exponential averaging."""

    momentum: float = 0.1
    eps: float = 1e-5  # what is added to the variance

    @property
    def keep(self) -> float:
        """Weight of the old value: 1 - momentum."""
        return 1 - self.momentum


@record
class BulkConfig:
    """A strided reduction through shared memory, loaded by bulk copies."""

    CONSTANTS: ClassVar[dict[str, str]] = {
        "threads": "threads that reduce; one more warp copies",
        "pieces": "rows of a strip in one stage",
        "cta_threads": "threads of a CTA",
        "strip": "columns of a CTA, at most",
        "room": "bytes of shared memory for the stages, of 227 KB",
    }
    rows: RowConfig
    threads: int
    strip: int
    pieces: int
    room: int

    @property
    def cta_threads(self) -> int:
        """Threads of a CTA, with the producer warp."""
        return self.threads + 32

    @property
    def level(self) -> Level:
        """The single pass."""
        return self.rows.levels[0]
