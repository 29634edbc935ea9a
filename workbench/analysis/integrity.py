"""Doubts about a result that is too good, and the known ways to cheat with our defence against each."""

from __future__ import annotations

from workbench.records import Bound, Outcome

CEILING = 0.9  # a time under 0.9 of the bound is suspect (muCUTLASS paper's speed-of-light ceiling, section 2.6 in our notes)
WALL_RATIO = 1.5  # host clock over events: above it, work was hidden from the events (inferred threshold)

EXPLOITS = (
    ("work on another stream or thread", "time runs to a device-wide synchronisation and is compared with the host clock"),
    ("lazy tensors and subclasses", "an output must be exactly torch.Tensor, with storage, of the reference's shape, dtype and strides"),
    ("patched clocks, allclose or torch", "the verdict is made in another process, which never imports the candidate"),
    ("faked results", "outputs are raw bytes that the checker compares itself; an early exit is a failure"),
    ("replayed or cached outputs", "fresh secret inputs for every trial and every timed call; outputs of timed calls are checked too"),
    ("stale memory", "allocations are poisoned, and every element must be written"),
    ("reading the reference's output", "the reference runs in another process and its output lies where the candidate cannot read"),
    ("modified inputs", "inputs are hashed before and after"),
    ("guessed seeds", "seeds come from the operating system and reach the candidate only as data"),
    ("degenerate tasks", "a problem is tested for trivial outputs, and tolerance follows the magnitude of the output"),
    ("lower precision", "tolerance per dtype against a float64 reference; the precision policy is explicit"),
    ("shapes through shared globals", "problem and candidate live in separate modules and processes"),
    ("no kernel of its own", "the emulator counts launches; a candidate without any is suspect"),
    ("files and network", "Landlock and namespaces; no network, read-only files outside the scratch folder"),
)


def doubts(outcome: Outcome, bound: Bound | None) -> tuple[str, ...]:
    """Sentences about why a correct result may still be wrong."""
    found = []
    timing = outcome.timing
    if timing is not None and bound is not None and timing.median_s < CEILING * bound.bound_s:
        found.append(f"{timing.median_s * 1e6:.1f} us is under {CEILING} of the bound of {bound.bound_s * 1e6:.1f} us: faster than the device can be")
    if timing is not None and timing.wall_ratio is not None and timing.wall_ratio > WALL_RATIO:
        found.append(f"the host clock saw {timing.wall_ratio:.1f}x the time of the events: work outside the timed stream")
    if outcome.executor == "emulator" and outcome.failure is None and not outcome.launches:
        found.append("no CuTe DSL kernel was launched")
    return tuple(found)
