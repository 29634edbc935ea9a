"""Doubts about a result that is too good."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.records import Bound, Check, Degeneracy, Outcome, TorchWork, Work, record

CEILING = 0.9  # a time under 0.9 of the floor is suspect (the muCUTLASS paper's speed-of-light ceiling, section 2.6)
# shares of a problem's work up to which torch in forward leaves no doubt, and up to which it is not refused (inferred)
TORCH_DOUBT, TORCH_LIMIT = 0.05, 0.5
# shares of a problem's work under which its kernels leave a doubt: of the bytes, and of the FLOPs. The kernels of
# tests/corpus/honest move 1.0 of the bytes or more and do 0.9 of the FLOPs or more; fewer FLOPs may be saved (inferred)
KERNEL_BYTES, KERNEL_FLOPS = 0.5, 0.05
# share of the results' bytes up to which memory that neither a kernel nor torch wrote in sight leaves no doubt: tables
# that numpy made may be read (inferred)
UNSEEN = 0.25
# operations that a kernel may do without FLOPs: by comparing and selecting
COMPARISONS = frozenset(
    [
        "relu",
        "clamp",
        "clamp_min",
        "clamp_max",
        "hardtanh",
        "threshold",
        "abs",
        "neg",
        "sign",
        "heaviside",
        "where",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "logical_not",
        "isnan",
        "isinf",
        "any",
        "all",
        "max",
        "min",
        "amax",
        "amin",
        "aminmax",
        "maximum",
        "minimum",
        "cummax",
        "cummin",
        "max_pool2d",
        "max_pool2d_with_indices",
        "max_pool3d_with_indices",
        "adaptive_max_pool2d",
        "segment_reduce",
        "nll_loss_forward",
    ]
)
# with dilation, or strides beyond its window, a pool reads a part too
READS_A_PART = ("index", "embedding", "gather", "slice", "select", "take", "narrow", "scatter", "nll_loss", "max_pool")
# a whole call by the host's clock over its kernels' time by events: below it one of the two is not true (inferred, with
# room for a GPU whose clock is higher after it was idle)
SHORT_CALL = 0.7
WALL_RATIO = 1.5  # host clock over events: above it, work was hidden from the events (CUDA-L2's threshold)

# beginnings or parts of the sentences of doubts, with their codes
CODES = (
    ("degenerate task", "degenerate_task"),
    ("drops NaN", "drops_nan"),
    ("reads inputs of", "layout"),
    ("fails on NaN and infinity", "fails_on_nan"),
    ("faster than the device", "impossible_time"),
    ("the host clock saw", "work_outside_the_stream"),
    ("no output of a timed call", "timed_output_unchecked"),
    ("no CuTe DSL kernel", "no_kernel"),
    ("still within tolerance", "trivial_output"),
    ("torch did ", "torch_share"),
    ("torch moved ", "torch_share"),
    ("the kernels did ", "kernel_share"),
    ("the kernels moved ", "kernel_share"),
    ("written out of sight", "unseen_writer"),
    ("was never reached", "constant_unreached"),
)
TASK_DOUBTS = ("ignores_inputs", "identity")  # kinds of degeneracies with which a kernel without work is right


def doubts(
    outcome: Outcome,
    bound: Bound | None,
    seconds: float | None = None,
    work: Sequence[Work] = (),
    operations: Sequence[str] = (),
) -> tuple[str, ...]:
    """Sentences about why a correct result may still be wrong; empty when there is no doubt.

    `seconds` is the time of the outcome, measured or modelled; `work` is the problem's own by case; `operations` are
    the targets of its graph.
    """
    share = _torch_share(outcome, work)
    by_torch = [share.sentence] if share is not None else []
    by_kernels = [] if share is not None else _kernel_doubts(outcome, work, operations)
    by_others = _unseen_doubts(outcome)
    return (*_time_doubts(outcome, bound, seconds), *_output_doubts(outcome), *by_torch, *by_kernels, *by_others)


@record
class _TorchShare:
    """The share of a case's work that torch did: of its FLOPs or bytes, as `of` says."""

    case: str
    share: float
    of: str
    operations: tuple[str, ...]
    is_main: bool  # torch did the main work

    @property
    def sentence(self) -> str:
        """The share in words."""
        names = ", ".join(self.operations) or "copies"
        did = "did" if self.of == "FLOPs" else "moved"
        return f"torch {did} {min(self.share, 1):.0%} of the problem's {self.of} in forward (case {self.case}): {names}"


def torch_refusal(outcome: Outcome, work: Sequence[Work]) -> str:
    """That torch did more than half of the FLOPs of the first case that was checked; empty otherwise.

    At other cases it is a doubt: host code may send sizes that its kernels do not take to torch.
    """
    share = _torch_share(outcome, work)
    return share.sentence if share is not None and share.is_main and share.case == _first_case(outcome) else ""


def _first_case(outcome: Outcome) -> str:
    return outcome.checks[0].case if outcome.checks else ""


def _torch_share(outcome: Outcome, work: Sequence[Work]) -> _TorchShare | None:
    """The share that says most: of the first case if torch did the main work there, else the largest. None if all are
    small.
    """
    own, first = {one.case: one for one in work}, _first_case(outcome)
    found = [_find_share(item, own[item.case]) for item in outcome.torch_work if item.case in own]
    most = max(found, key=lambda one: (one.is_main and one.case == first, one.is_main, one.share), default=None)
    return most if most is not None and most.share > TORCH_DOUBT else None


def _find_share(item: TorchWork, own: Work) -> _TorchShare:
    """Torch's share of the problem's own work.

    Main work is counted in FLOPs: an epilogue after a matrix product may move most of the bytes. Only in a problem that
    computes nothing it is counted in bytes, and copies are work too.
    """
    flops = item.flops / own.flops if own.flops else 0.0
    moved = item.bytes if own.flops else item.bytes + item.copied
    of_bytes = moved / own.least_bytes if own.least_bytes else 0.0
    is_main = (flops if own.flops else of_bytes) > TORCH_LIMIT
    say_flops = flops >= of_bytes or (is_main and bool(own.flops))
    return _TorchShare(
        case=item.case,
        share=flops if say_flops else of_bytes,
        of="FLOPs" if say_flops else "bytes",
        operations=item.operations,
        is_main=is_main,
    )


def _kernel_doubts(outcome: Outcome, work: Sequence[Work], operations: Sequence[str]) -> list[str]:
    """That emulated kernels did too little of the first case for the result to be theirs, whoever did the rest: numpy,
    a thread, torch out of sight. Kernels that save work leave the doubt too.
    """
    own = next((one for one in work if one.case == _first_case(outcome)), None)
    if own is None or outcome.failure is not None or outcome.timing is not None or not outcome.launches:
        return []
    totals = [launch.total for launch in outcome.launches]
    moved = sum(one.global_read_bytes + one.global_write_bytes for one in totals)
    flops = sum(one.flops for one in totals)
    least = sum(count for name, count in own.parts if name not in COMPARISONS)
    if least and flops < KERNEL_FLOPS * least:
        return [f"the kernels did {flops / least:.1%} of the problem's FLOPs (case {own.case}), and torch not the rest"]
    reads_a_part = any(target.split(".")[1].startswith(READS_A_PART) for target in operations if "aten." in target)
    if moved < KERNEL_BYTES * own.least_bytes and not reads_a_part:
        share = moved / own.least_bytes
        return [f"the kernels moved {share:.1%} of the problem's bytes (case {own.case}), and torch not the rest"]
    return []


def _unseen_doubts(outcome: Outcome) -> list[str]:
    """That much of a result, or as much of what the kernels read, was written by what nobody saw."""
    most = max(outcome.torch_work, key=lambda item: item.unseen, default=None)
    if most is None or most.unseen <= UNSEEN:
        return []
    return [
        f"written out of sight, by numpy, a thread, a custom operator or native code: {min(most.unseen, 1):.0%} of the"
        f" results' bytes (case {most.case}), returned or read by the kernels"
    ]


def task_doubts(degeneracies: Sequence[Degeneracy]) -> tuple[str, ...]:
    """Sentences about tasks of which a kernel that does nothing, or no work, is right."""
    return tuple(f"degenerate task: {item.message}" for item in degeneracies if item.kind in TASK_DOUBTS)


def find_code(doubt: str) -> str:
    """The code of a doubt, for programs."""
    return next((code for part, code in CODES if part in doubt), doubt.split(":")[0].replace(" ", "_").lower())


def refusal_reason(outcome: Outcome, bound: Bound | None, seconds: float | None = None) -> str:
    """Why a time is impossible: it is under 0.9 of the floor at the most permissive data-sheet rates. Empty if it is
    possible. `seconds` is a modelled time.
    """
    taken = outcome.timing.median_s if outcome.timing is not None else seconds
    if taken is None or bound is None:
        return ""
    floor = bound.floor_s if bound.floor_s is not None else bound.bound_s
    if outcome.timing is not None and not outcome.timing.cold_l2:
        floor = min(floor, bound.compute_s)  # what lies in L2 is not read from memory
    if taken >= CEILING * floor:
        return ""
    work = f"{bound.flops:.3g} FLOPs and {bound.least_bytes:.3g} bytes by the data sheet of {bound.device}"
    return (
        f"{taken * 1e6:.1f} us is under {CEILING} of the floor of {floor * 1e6:.1f} us ({work}): faster than the device"
        " can be, so not all of the work was done or timed"
    )


def _time_doubts(outcome: Outcome, bound: Bound | None, seconds: float | None) -> list[str]:
    timing, found = outcome.timing, []
    if impossible := refusal_reason(outcome, bound, seconds):
        found.append(impossible)
    if timing is None:
        return found
    if timing.wall_ratio is not None and timing.wall_ratio > WALL_RATIO:
        found.append(
            f"the host clock saw {timing.wall_ratio:.1f}x the time of the events: work outside the timed stream"
        )
    if timing.call_s is not None and timing.call_s < SHORT_CALL * timing.median_s:
        found.append(
            f"a whole call took {timing.call_s * 1e6:.1f} us by the host's clock, less than the "
            f"{timing.median_s * 1e6:.1f} us of its kernels: a call ends before its work, or a clock was changed"
        )
    if outcome.failure is None and not outcome.quick and not any(check.timed for check in outcome.checks):
        found.append("no output of a timed call was checked")
    return found


def _tells_nothing(check: Check, outcome: Outcome) -> bool:
    """Whether an output is trivial where the reference's is not. Special values of the inputs may saturate it (sigmoid
    of a product of positive numbers): then another comparison of the same sizes tells.
    """
    return bool(check.trivial) and not (
        check.values
        and any(
            other.passed
            and not other.trivial
            and other.elements > 1
            and (other.case, other.output, other.of) == (check.case, check.output, check.of)
            for other in outcome.checks
        )
    )


def _output_doubts(outcome: Outcome) -> list[str]:
    if outcome.failure is not None:
        return []
    found = []
    if outcome.timing is None and not outcome.launches:  # on an emulator, which sees every launch
        found.append("no CuTe DSL kernel was launched")
    elif outcome.timing is not None and not outcome.builds:  # on a GPU
        found.append("no CuTe DSL kernel was compiled")
    trivial = sorted({check.trivial for check in outcome.checks if check.passed and _tells_nothing(check, outcome)})
    if trivial:
        said = " or ".join("all zeros" if kind == "zero" else "one value everywhere" for kind in trivial)
        found.append(f"an output is {said}, and still within tolerance: this task cannot tell")
    return found
