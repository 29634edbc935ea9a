"""What the tensormap proxy knows: descriptors in global memory that a kernel edits, and what each CTA saw of them; instructions in tensormap.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.emulator.ptx import Instruction

if TYPE_CHECKING:
    from workbench.emulator.state import Batch


class TensorMaps:
    """Descriptors in global memory that this launch has edited, and what each CTA saw when it last acquired one."""

    def __init__(self) -> None:
        self.released: dict[int, bool] = {}  # address -> whether the last edit was released
        self.acquired: dict[tuple[int, int], bytes] = {}  # (CTA, address) -> the descriptor

    @property
    def used(self) -> bool:
        """Whether there is anything to check."""
        return bool(self.released or self.acquired)

    def check(self, b: Batch, ins: Instruction, lane: int, where: int, raw: bytes) -> None:
        """Fault where TMA would be given a descriptor that its cache need not know."""
        seen = self.acquired.get((int(b.cta[lane]), where))
        edited = where in self.released
        if not edited and seen is None:
            return  # the host's
        if edited and not self.released[where]:
            raise b.fault("tensormap_fence_missing", "a TMA copy uses a descriptor in global memory that was edited but not released", ins.line, lane, where,
                          hint="after the edit: cpasync.fence_tma_desc_release, or edit it in shared memory and publish it with cp_fence_tma_desc_release")  # fmt: skip
        if seen != raw:
            how = "that this CTA did not acquire" if seen is None else "that changed since this CTA acquired it"
            raise b.fault("tensormap_fence_missing", f"a TMA copy uses a descriptor in global memory {how}", ins.line, lane, where,
                          hint="cpasync.fence_tma_desc_acquire(pointer) between the edit of the descriptor and its use")  # fmt: skip
