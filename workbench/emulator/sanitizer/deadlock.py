"""The fault of a kernel in which nothing can run any more: which threads wait at which line, and what is missing."""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import BARRIER_WAIT, CLUSTER_WAIT, Batch
from workbench.emulator.execution.launch import EmulationFault
from workbench.emulator.isa.sm90 import mbarrier

SHOWN = 6  # largest number of groups of waiting threads in a message
PHASES = (
    "compare the parity waited for, the arrival count, and the bytes that expect_tx announces with those that the"
    " copies bring"
)
SAME = "every thread of the CTA must reach the same barrier: no barrier inside a branch that only some threads take"
COUNTS = (
    "the threads that arrive at a named barrier, with barrier and with barrier_arrive, must be as many as its"
    " number_of_threads says, a multiple of 32 and the same number on every side"
)
ALL_CTAS = (
    "every thread of every CTA of the cluster must arrive at the cluster barrier as often as the others wait for it"
)


def deadlock_fault(b: Batch) -> EmulationFault:
    """The fault of a batch in which every live thread waits, described for the first such CTA or cluster."""
    at_mbarrier = b.waiting == BARRIER_WAIT
    lane = _pick_thread(b, at_mbarrier) if at_mbarrier.any() else int(np.argmax(b.waiting >= 0))
    mine = (b.waiting >= 0) & (b.cta // b.cluster_size == b.cta[lane] // b.cluster_size)
    exited = int(((b.cta == b.cta[lane]) & ~b.alive & (b.thread < b.threads)).sum())
    groups = _describe_groups(b, lane, np.nonzero(mine)[0])
    said = "; ".join(groups[:SHOWN]) + (f"; and {len(groups) - SHOWN} more" if len(groups) > SHOWN else "")
    if len(groups) > 1:
        said = f"{int(mine.sum())} threads wait: {said}"
    kind = "mbarrier" if at_mbarrier.any() else "barrier"
    gone = f"; {exited} threads have exited" if exited else ""
    number = int(b.waiting[lane])
    hint = (
        PHASES
        if at_mbarrier.any()
        else ALL_CTAS
        if number == CLUSTER_WAIT
        else COUNTS
        if b.barrier_count[b.cta[lane], number]
        else SAME
    )
    address = int(b.waiting_for[lane]) * 8 % b.shared_bytes if at_mbarrier.any() else None
    return b.fault(
        f"{kind}_deadlock",
        f"{kind} deadlock: {said}{gone}; nothing can run any more, as seen",
        int(b.waiting_line[lane]) or None,
        lane,
        address,
        hint=hint,
    )


def _pick_thread(b: Batch, at_mbarrier: Array) -> int:
    """The thread that the fault names: preferably one whose mbarrier lacks bytes, which no thread can bring
    any more.
    """
    lanes = np.nonzero(at_mbarrier)[0]
    words = b.shared.view(np.int64)[b.waiting_for[lanes]].tolist()
    return int(lanes[np.argmax([mbarrier.unpack_word(word)[2] != 0 for word in words])])


def _describe_groups(b: Batch, first: int, lanes: Array) -> list[str]:
    """One phrase for the threads that wait at the same line for the same thing; the group of the first lane comes
    first.
    """
    place = np.where(b.waiting[lanes] == BARRIER_WAIT, b.waiting_for[lanes], b.cta[lanes])
    keys = np.stack([lanes != first, b.waiting_line[lanes], b.waiting[lanes], place])
    keys[0] = [not any((key[1:] == own).all() for own in keys[1:, lanes == first].T) for key in keys.T]
    found, counts = np.unique(keys, axis=1, return_counts=True)
    return [
        f"{count} threads{_block_phrase(b, int(key[2]), int(key[3]))} wait{f' at line {key[1]}' if key[1] else ''} for"
        f" {_describe_wait(b, int(key[2]), int(key[3]))}"
        for key, count in zip(found.T, counts, strict=True)
    ]


def _block_phrase(b: Batch, waiting: int, place: int) -> str:
    cta = place * 8 // b.shared_bytes if waiting == BARRIER_WAIT else place
    return f" of block {b.coordinates(cta * b.padded)[0]}" if b.cluster_size > 1 else ""


def _describe_wait(b: Batch, waiting: int, place: int) -> str:
    """What some threads wait for, and what is missing; `place` is the mbarrier's word, or the CTA."""
    if waiting == BARRIER_WAIT:
        arrivals, expected, left, parity = mbarrier.unpack_word(int(b.shared.view(np.int64)[place]))
        lacks = f"{arrivals} of {expected} arrivals" + (f" and {left} bytes" if left > 0 else "")
        if left < 0:
            lacks += f", and got {-left} bytes more than were announced,"
        return (
            f"the mbarrier at offset {place * 8 % b.shared_bytes}, which lacks {lacks} in its phase of parity {parity}"
        )
    if waiting == CLUSTER_WAIT:
        cluster = place // b.cluster_size
        return (
            f"the cluster barrier, where {int(b.cluster_arrived[cluster])} of"
            f" {int((b.alive & (b.cta // b.cluster_size == cluster)).sum())} threads have arrived"
        )
    here = int(((b.waiting == waiting) & (b.cta == place)).sum() + b.arrived[place, waiting])
    expected = int(b.barrier_count[place, waiting]) or int((b.alive & (b.cta == place)).sum())
    return f"barrier {waiting}, where {here} of {expected} threads have arrived"
