"""mbarriers (PTX ISA, parallel synchronization: mbarrier): a 64-bit word in shared memory, at the program's address.

PTX leaves the layout of the word open; ours: bits 0-19 arrivals still expected in this phase, bits 20-39 arrivals
expected per phase, bits 40-62 bytes still expected (23 bits, two's complement), bit 63 the phase's parity. A phase is
complete when no arrival and no byte is expected any more. Lanes whose try_wait is false are parked; the completion
wakes them. When no other lane can run, they wake with "false" instead, as at the time limit of a real try_wait. If that
does not help either, it is a deadlock.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import BARRIER_WAIT, Batch
from workbench.emulator.execution.operands import Fn, Get, Unknown, getter, setter
from workbench.emulator.isa.access import address, broadcast, owning_cta, shared_index
from workbench.emulator.isa.sm90.async_copies import finish_arrivals
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Imm, Mem, Name, Vec

COUNT = (1 << 20) - 1  # the largest arrival count, and the mask of its field (PTX ISA, mbarrier.init)
TX_BITS = 23
TX_LIMIT = (1 << 20) - 1  # the largest number of bytes (PTX ISA, mbarrier.expect_tx)


def unpack_word(word: int) -> tuple[int, int, int, int]:
    """(arrivals pending, arrivals expected, bytes pending, parity) of a word as a signed integer."""
    tx = word >> 40 & ((1 << TX_BITS) - 1)
    return word & COUNT, word >> 20 & COUNT, tx - (1 << TX_BITS) if tx >> (TX_BITS - 1) else tx, word >> 63 & 1


def _pack_word(pending: int, expected: int, tx: int, parity: int) -> int:
    return (pending | expected << 20 | (tx & ((1 << TX_BITS) - 1)) << 40) - (parity << 63)


def _sum_by_word(index: Array, arrivals: Array, tx: Array) -> list[tuple[int, int, int]]:
    """(word, arrivals, bytes) for each of the words, in ascending order."""
    found: dict[int, list[int]] = {}
    for word, arrived, count in zip(index.tolist(), arrivals.tolist(), tx.tolist(), strict=True):
        row = found.setdefault(word, [0, 0])
        row[0] += arrived
        row[1] += count
    return [(word, arrived, count) for word, (arrived, count) in sorted(found.items())]


def _word_indices(b: Batch, lanes: Array, where: Array, ins: Instruction, *, write: bool = False) -> Array:
    """Indices of the words; faults outside shared memory, if misaligned, or if never initialised. A sample that only
    counts makes no such checks.
    """
    if not b.moves_data:
        cta, offset = owning_cta(b, lanes, where)
        return np.asarray((cta * b.shared_bytes + offset) // 8)
    index = shared_index(b, lanes, where, 8, write, ins) // 8
    if not write:
        new = b.barriers[index] == 0
        if new.any():
            at = int(np.argmax(new))
            raise b.fault(
                "mbarrier_uninitialised",
                f"an mbarrier at offset {int(where[at])} of shared memory is used, but was never initialised",
                ins.line,
                int(lanes[at]),
                int(where[at]),
                hint="mbarrier_init by one thread, then mbarrier_init_fence and a barrier, before the first use",
            )
        if b.races is not None:
            b.races.use_barrier(b, lanes, index, ins)
    return index


def _apply_counts(
    b: Batch, lanes: Array, index: Array, arrivals: Array, tx: Array, ins: Instruction, clock: Array | None = None
) -> None:
    """Count arrivals and bytes (expected: positive, arrived: negative), one word after the other, and complete phases.

    `clock` is that of the copy that brings the bytes, None for threads.
    """
    if b.timeline is not None:
        b.timeline.arrive(lanes, index, ins)
    if b.races is not None:
        b.races.clocks.arrive_mbarrier(index, lanes, clock)
    done = []
    words = b.shared.view(np.int64)
    for word, added, bytes_ in _sum_by_word(index, arrivals, tx):
        pending, expected, left, parity = unpack_word(int(words[word]))
        pending, left = pending - added, left + bytes_
        if pending < 0:
            raise b.fault(
                "mbarrier_overrun",
                f"an mbarrier that expects {expected} arrivals a phase got {-pending} more",
                ins.line,
                int(lanes[int(np.argmax(index == word))]),
                word * 8 % b.shared_bytes,
                hint="compare the arrival count of mbarrier_init with the threads that arrive",
            )
        if pending == 0 and left == 0:
            done.append(word)
            pending, parity = expected, parity ^ 1
        words[word] = _pack_word(pending, expected, left, parity)
    if done:
        b.stalls = 0
        if b.races is not None:
            b.races.clocks.complete_mbarrier(np.array(done))
        woken = (b.waiting == BARRIER_WAIT) & np.isin(b.waiting_for, done)
        b.waiting[woken] = -1


def complete_tx(
    b: Batch, lanes: Array, where: Array, count: Array, ins: Instruction, clock: Array | None = None
) -> None:
    """Count arrived bytes of an asynchronous copy; `clock` is the issuer's clock for the race checks."""
    _apply_counts(
        b, lanes, _word_indices(b, lanes, where, ins), np.zeros(len(lanes), dtype=np.int64), -count, ins, clock
    )


def operation(ins: Instruction) -> Fn:
    """mbarrier.{init, inval, arrive, arrive_drop, expect_tx, complete_tx, test_wait}. The machine handles try_wait,
    since it parks lanes.
    """
    name = ins.mods[0]
    table = {
        "init": _init,
        "inval": _invalidate,
        "arrive": _arrive,
        "arrive_drop": _arrive,
        "expect_tx": _expect,
        "complete_tx": _expect,
        "test_wait": _test,
        "pending_count": _pending_count,
    }
    if name not in table:
        raise Unknown(ins.text)
    return table[name](ins)


def _lanes_and_addresses(where: Get, b: Batch, i: Lanes) -> tuple[Array, Array]:
    return b.all_lanes(i), broadcast(b, i, where(b, i))


def _init(ins: Instruction) -> Fn:
    assert isinstance(ins.operands[0], Mem)
    where, count = address(ins.operands[0], "shared"), getter(ins.operands[1], "u32")

    def run(b: Batch, i: Lanes) -> None:
        lanes, at = _lanes_and_addresses(where, b, i)
        expected = broadcast(b, i, count(b, i)).astype(np.int64)
        if ((expected < 1) | (expected > COUNT)).any():
            raise b.fault(
                "mbarrier_count",
                f"an mbarrier cannot expect {int(expected[0])} arrivals: 1 to {COUNT}",
                ins.line,
                int(lanes[0]),
            )
        index = _word_indices(b, lanes, at, ins, write=True)
        b.shared.view(np.int64)[index] = expected | expected << 20
        b.shared_written.view(np.uint64)[index] = np.uint64(0x0101010101010101)
        b.barriers[index] = 1
        if b.races is not None:
            b.races.init_barrier(lanes, index, ins)

    return run


def _invalidate(ins: Instruction) -> Fn:
    assert isinstance(ins.operands[0], Mem)
    where = address(ins.operands[0], "shared")

    def run(b: Batch, i: Lanes) -> None:
        lanes, at = _lanes_and_addresses(where, b, i)
        b.barriers[_word_indices(b, lanes, at, ins)] = 0

    return run


def _arrive(ins: Instruction) -> Fn:
    """mbarrier.arrive{.expect_tx}{.noComplete} state, [a]{, count or bytes}; the state is the word before."""
    expects = "expect_tx" in ins.mods
    if "noComplete" in ins.mods or ins.mods[0] == "arrive_drop":
        raise Unknown(ins.text)
    put = (
        setter(ins.operands[0], 8)
        if not (isinstance(ins.operands[0], Name) and ins.operands[0].name == "_")
        and not isinstance(ins.operands[0], Mem)
        else None
    )
    rest = ins.operands if isinstance(ins.operands[0], Mem) else ins.operands[1:]
    assert isinstance(rest[0], Mem)
    where = address(rest[0], "shared")
    amount = getter(rest[1], "u32") if len(rest) > 1 else None

    def run(b: Batch, i: Lanes) -> None:
        lanes, at = _lanes_and_addresses(where, b, i)
        given = broadcast(b, i, amount(b, i)).astype(np.int64) if amount else np.ones(len(lanes), dtype=np.int64)
        index = _word_indices(b, lanes, at, ins)
        if put is not None:
            put(b, i, b.shared.view(np.uint64)[index])
        if expects:
            _check_expected(b, lanes, given, ins)
            _apply_counts(b, lanes, index, np.ones(len(lanes), dtype=np.int64), given, ins)
        else:
            _apply_counts(b, lanes, index, given, np.zeros(len(lanes), dtype=np.int64), ins)

    return run


def _check_expected(b: Batch, lanes: Array, given: Array, ins: Instruction) -> None:
    if (given > TX_LIMIT).any():
        raise b.fault(
            "mbarrier_bytes",
            f"{int(given.max())} bytes are expected at once, but an mbarrier counts {TX_LIMIT} at most",
            ins.line,
            int(lanes[0]),
        )


def _expect(ins: Instruction) -> Fn:
    """mbarrier.expect_tx and mbarrier.complete_tx [a], bytes."""
    assert isinstance(ins.operands[0], Mem)
    where, amount = address(ins.operands[0], "shared"), getter(ins.operands[1], "u32")
    sign = 1 if ins.mods[0] == "expect_tx" else -1

    def run(b: Batch, i: Lanes) -> None:
        lanes, at = _lanes_and_addresses(where, b, i)
        given = broadcast(b, i, amount(b, i)).astype(np.int64)
        _check_expected(b, lanes, given, ins)
        _apply_counts(
            b, lanes, _word_indices(b, lanes, at, ins), np.zeros(len(lanes), dtype=np.int64), sign * given, ins
        )

    return run


def _pending_count(ins: Instruction) -> Fn:
    put, get = setter(ins.operands[0], 4), getter(ins.operands[1], "b64")
    return lambda b, i: put(b, i, (get(b, i) & np.uint64(COUNT)).astype(np.uint32))


class Poll:
    """mbarrier.{try_wait,test_wait}{.parity} p, [a], state or parity{, limit}: tests whether lanes' phases are
    complete.
    """

    def __init__(self, ins: Instruction) -> None:
        target = ins.operands[0].items[0] if isinstance(ins.operands[0], Vec) else ins.operands[0]
        assert isinstance(ins.operands[1], Mem)
        self.ins, self.put, self.where = ins, setter(target, 0), address(ins.operands[1], "shared")
        self.parity = "parity" in ins.mods
        self.phase = getter(ins.operands[2], "u32" if self.parity or isinstance(ins.operands[2], Imm) else "u64")

    def test(self, b: Batch, idx: Lanes) -> tuple[Array, Array]:
        """(whether the phase is complete, index of the word) per lane."""
        lanes, at = _lanes_and_addresses(self.where, b, idx)
        index = _word_indices(b, lanes, at, self.ins)
        asked = broadcast(b, idx, self.phase(b, idx)).astype(np.uint64)
        asked = asked & np.uint64(1) if self.parity else asked >> np.uint64(63)
        return (b.shared.view(np.uint64)[index] >> np.uint64(63)) != asked, index


def _test(ins: Instruction) -> Fn:
    poll = Poll(ins)

    def run(b: Batch, i: Lanes) -> None:
        ready, index = poll.test(b, i)
        poll.put(b, i, ready)
        if b.races is not None:
            b.races.clocks.leave_mbarrier(index[ready], b.all_lanes(i)[ready])
        if not ready.all():
            finish_arrivals(b)  # a loop of test_wait must end

    return run


def arrive_after_copies(ins: Instruction) -> Fn:
    """cp.async.mbarrier.arrive{.noinc}.shared.b64 [a]: arrives when this thread's earlier cp.async are complete; they
    are completed here.
    """
    assert isinstance(ins.operands[0], Mem)
    where = address(ins.operands[0], "shared")
    arrivals = 1 if "noinc" in ins.mods else 0  # without .noinc the pending count is first raised by one

    def run(b: Batch, i: Lanes) -> None:
        lanes, at = _lanes_and_addresses(where, b, i)
        index = _word_indices(b, lanes, at, ins)
        b.copies.wait(lanes, None)
        if b.races is not None and not arrivals:
            b.races.clocks.arrive_mbarrier(index, lanes)
        if arrivals:
            _apply_counts(
                b, lanes, index, np.ones(len(lanes), dtype=np.int64), np.zeros(len(lanes), dtype=np.int64), ins
            )

    return run
