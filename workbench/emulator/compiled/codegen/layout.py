"""The layout of the memory that compiled code works on; offsets in bytes.

A context belongs to one operating-system thread. A warp record holds one warp's lanes, with its registers after the
fixed part. Vectors over the 32 lanes of a warp have lane n at offset n * size.
"""

from __future__ import annotations

LANES = 32
FULL = 0xFFFF_FFFF  # the mask of all lanes
NEVER = 1 << 30  # the next block of a warp that cannot run

# ---- context ---------------------------------------------------------------------------------------
HELPER_TABLE = 0  # addresses of the helpers that blocks call, 64 of them
BLOCKS, KINDS, SIZES = 512, 520, 528  # per block: function, what it ends with (see END_*), instructions
TABLE, TABLE_COUNT, RECENT = 536, 544, 552  # allocations (ENTRY_*), their number, the last used one
COUNTING, COUNTS, GUARDED, ROWS = (
    560,
    568,
    576,
    584,
)  # whether memory is counted; lanes per block; lanes per guarded instruction; memory rows
FAULT, STEP_LIMIT = 592, 600
SHARED_LIMIT, LOCAL_STRIDE, PARAMS, SYMBOLS = 608, 616, 624, 632
BLOCK_X, BLOCK_Y, BLOCK_Z, GRID_X, GRID_Y, GRID_Z = 640, 648, 656, 664, 672, 680
THREADS, CTA_WARPS, DYNAMIC_SHARED, SMS = 688, 696, 704, 720
GROUP, LOCKSTEP = 728, 736  # CTAs that run at the same time, and whether their warps run in lockstep
WARPS, WARP_STRIDE, CTAS = 744, 752, 760
SHARED_BYTES, SHARED, WRITTEN, LOCAL = 768, 776, 784, 792
STEPS = 800
LOOPS = 816  # numpy's inner loops: (function, data) each
LOOP_ARGUMENTS, LOOP_COUNT, LOOP_STEPS = 928, 944, 952
ADDRESS, DATA, EXTRA, TEMP = (
    1024,
    1280,
    3328,
    5376,
)  # vectors that blocks and helpers pass to each other; TEMP is for helpers alone
BASE = 18_432  # addresses to which an access adds its offset
CONTEXT_BYTES = 20_480
ELEMENT = 256  # bytes from one vector in DATA or EXTRA to the next

# ---- one allocation of global memory ---------------------------------------------------------------
ENTRY_START, ENTRY_END, ENTRY_WRITTEN, ENTRY_WRITABLE, ENTRY_BYTES = 0, 8, 16, 24, 32

# ---- a warp ----------------------------------------------------------------------------------------
PC = 0  # 32-bit block number of each lane; stale for the lanes of MASK while UNIFORM holds
ALIVE, PARKED, LOW, MASK, UNIFORM = (
    128,
    136,
    144,
    152,
    160,
)  # masks; the block to run next; its lanes; whether no other lanes can run
CTA, WARP_SHARED, WARP_WRITTEN, WARP_LOCAL, WARP_INDEX = 168, 176, 184, 192, 200
BARRIER = 208  # 8-bit number of the barrier that a parked lane waits at
CTAID_X, CTAID_Y, CTAID_Z, SMID = 240, 248, 256, 264
RESTING = 272  # whether the warp has spun for long, so that others get a turn
TID_X, TID_Y, TID_Z = 320, 448, 576
REGISTERS = 704

# ---- a CTA -----------------------------------------------------------------------------------------
ARRIVED, EXPECTED, FIRST_WARP, CTA_BYTES = 0, 128, 256, 264
BARRIERS = 16

# ---- ends of a block -------------------------------------------------------------------------------
END_BARRIER = 1

# ---- reasons to stop -------------------------------------------------------------------------------
GAVE_UP, TOO_LONG = 1, 2  # GAVE_UP: the interpreter runs the launch and writes the fault's message

# ---- a memory row of counters ----------------------------------------------------------------------
ROW_BYTES = 32  # bytes, requests, units, ideal
