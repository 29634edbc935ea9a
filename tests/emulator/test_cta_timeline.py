"""CTAs followed in time and through the caches: latencies add up along dependences, barriers wait for the slowest,
caches hold what they hold.
"""

from __future__ import annotations

import numpy as np
import pytest
from engines import HEAD, START, aligned
from hypothesis import given
from hypothesis import strategies as st

from workbench.emulator.execution.launch import DeviceLimits, GlobalMemory, GridRequest
from workbench.emulator.execution.machine import Machine, pick_spread
from workbench.emulator.ptx import instruction_table
from workbench.emulator.timing import cache_model, cta_timeline
from workbench.emulator.timing.cache_model import OWNER, AddressMap, Cache
from workbench.emulator.timing.traffic import Memory
from workbench.records import Launch


def launch(body: str, *, threads: int = 32, ctas: int = 1, sample: int | None = None, words: int = 1 << 16) -> Launch:
    data, memory = aligned(words), GlobalMemory()
    memory.register(data.ctypes.data, data.nbytes, "data")
    request = GridRequest(
        entry="k",
        grid=(ctas, 1, 1),
        block=(threads, 1, 1),
        params=(data.ctypes.data.to_bytes(8, "little"), (0).to_bytes(4, "little")),
        sample=sample,
        follow=True,
    )
    return Machine(HEAD + START + body + "ret;\n}\n", DeviceLimits()).run(request, memory)


def cycles(body: str, **options: int) -> float:
    made = launch(body, **options).paced
    assert made is not None
    return made.cycles


LOAD = "ld.global.b32 %r10, [%rd3];\n"


def test_a_chain_takes_its_latencies_and_independent_instructions_overlap() -> None:
    def chain(length: int) -> str:
        return "mov.b32 %f1, 0f3F800000;\n" + "fma.rn.f32 %f1, %f1, %f1, %f1;\n" * length

    def apart(length: int) -> str:
        return "mov.b32 %f1, 0f3F800000;\n" + "".join(
            f"fma.rn.f32 %f{n % 64 + 2}, %f1, %f1, %f1;\n" for n in range(length)
        )

    assert cycles(chain(128)) - cycles(chain(64)) == 64 * instruction_table.FLOAT
    assert cycles(apart(128)) - cycles(apart(64)) == 64


def test_loads_wait_for_l2_once_and_hit_in_l1_afterwards() -> None:
    used = LOAD + "add.s32 %r11, %r10, 1;\n"
    first, again = cycles(used), cycles(used + "bar.sync 0;\n" + used.replace("%r1", "%r2"))
    assert first > cta_timeline.BEYOND
    assert again - first == pytest.approx(cta_timeline.L1_HIT + cta_timeline.BARRIER, abs=10)
    both = launch(LOAD + "ld.global.b32 %r12, [%rd3+4096];\nadd.s32 %r11, %r10, %r12;\n").paced
    assert (
        both is not None
        and both.cycles == pytest.approx(first, abs=10)
        and both.l1_missed == 8
        and both.l1_lines == 2
        and both.l1_requests == 2
    )


def test_a_warp_waits_at_the_line_that_uses_the_value() -> None:
    made = launch(".loc 1 7 1\n" + LOAD + ".loc 1 8 1\nadd.s32 %r11, %r10, 1;\n").paced
    assert made is not None and made.stalls[0] == (8, pytest.approx(cta_timeline.BEYOND, abs=2))


def test_a_barrier_waits_for_the_slowest_warp() -> None:
    slow = (
        "setp.gt.u32 %p1, %r2, 31;\n@%p1 bra L1;\n"
        + LOAD
        + "add.s32 %r11, %r10, 1;\nst.global.b32 [%rd3], %r11;\nL1:\nbar.sync 0;\n"
    )
    assert cycles(slow, threads=64) >= cta_timeline.BEYOND + cta_timeline.BARRIER


def test_turns_of_a_plain_loop_overlap_in_fours() -> None:
    loop = (
        "mov.u32 %r20, 0;\nL1:\nld.global.b32 %r10, [%rd3];\nadd.s32 %r21, %r21, %r10;\n"
        "add.s64 %rd3, %rd3, 4096;\nadd.s32 %r20, %r20, 1;\nsetp.lt.u32 %p1, %r20, TURNS;\n"
        "@%p1 bra L1;\n"
    )
    four, sixteen = (
        cycles(loop.replace("TURNS", str(n)).replace("mov.u32 %r20", "mov.u32 %r21, 0;\nmov.u32 %r20")) for n in (4, 16)
    )
    assert four < 1.3 * cta_timeline.BEYOND + 60 and sixteen == pytest.approx(4 * four, rel=0.2)


def test_a_sample_stands_for_the_grid_and_the_whole_is_unchanged_by_following() -> None:
    body = LOAD + "add.s32 %r11, %r10, 1;\nst.global.b32 [%rd3], %r11;\n"
    whole, some = launch(body, ctas=64, threads=64), launch(body, ctas=64, threads=64, sample=4)
    assert some.total == whole.total and some.sampled == 4 and whole.sampled is None
    assert whole.paced is not None and some.paced is not None and whole.paced.cycles == some.paced.cycles


@given(st.integers(1, 10**6), st.integers(1, 50))
def test_a_sample_is_spread_and_without_repeats(count: int, some: int) -> None:
    chosen = pick_spread(count, some)
    assert len(set(chosen.tolist())) == len(chosen) <= max(some, 1) and chosen.min() >= 0 and chosen.max() < count
    assert len(chosen) == count if some >= count else len(chosen) >= some // 2


@given(st.lists(st.integers(0, 63), min_size=1, max_size=200), st.integers(1, 32))
def test_a_cache_never_forgets_early_within_half_its_size_and_never_remembers_what_was_not_there(
    lines: list[int], capacity: int
) -> None:
    cache, brought = cache_model.Cache(1, capacity * cache_model.LINE), set()
    for line in lines:
        (missed,) = cache.load(np.array([4 * line], dtype=np.int64))
        assert missed or line in brought
        brought.add(line)
    again = cache.load(np.array([4 * lines[-1]], dtype=np.int64))
    assert not again[0]


def test_sectors_of_a_line_are_filled_one_by_one() -> None:
    cache = cache_model.Cache(2, 1 << 16)
    keys, parts = cache_model.sector_keys(np.array([0, 1]), np.array([0, 0]), 16)
    assert parts == 1 and cache.load(np.unique(keys)).tolist() == [True, True]
    other, _ = cache_model.sector_keys(np.array([0]), np.array([32]), 16)
    assert cache.load(other).tolist() == [True] and cache.load(other).tolist() == [False]
    crossing, parts = cache_model.sector_keys(np.array([0]), np.array([24]), 16)
    assert parts == 2 and cache.load(np.unique(crossing)).tolist() == [False, False]


def test_where_the_host_has_a_tensor_does_not_matter() -> None:
    here, there = (
        cache_model.AddressMap([1 << 20, 5 << 20], [1000, 4096]),
        cache_model.AddressMap([(7 << 21) + 64, (9 << 21) + 192], [1000, 4096]),
    )
    offsets = np.array([0, 4, 996, 512])
    for n in range(2):
        assert (here.map(here.starts[n] + offsets) == there.map(there.starts[n] + offsets)).all() and (
            here.map(here.starts[n]) % 512 == 0
        )
    assert here.map(here.starts[1]) - here.map(here.starts[0]) == 1024


def test_skipped_loads_stay_with_their_cta() -> None:
    """Rows that are not aligned load 3 and 1 sectors of two CTAs, then 2 and 2: such periods are no pairs."""
    second = 1 << OWNER
    for one, two, paired in (
        ([0, 1, 2, second], [4, 5, second + 4, second + 5], False),
        ([0, 1, second, second + 1], [4, 5, second + 4, second + 5], True),
    ):
        memory = Memory(Cache(2, 1 << 14), Cache(2, 1 << 16), AddressMap((), ()))
        marks = []
        for keys in (one, two):
            marks.append(memory.take_mark())
            memory._load_from_l2(np.array(keys), False)
        memory.extrapolate(marks, 100)
        assert memory.l2_missed == (8 + 4 * 100 if paired else 8 + 8 * 100 // 2)
        assert len(memory.beyond) > 2 if paired else memory.untouched
