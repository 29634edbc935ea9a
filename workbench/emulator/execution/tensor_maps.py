"""The tensormap proxy's state: descriptors in global memory that a kernel edits, and the version that each CTA
acquired.

The instructions are in isa/sm90/tensormap.py.
"""

from __future__ import annotations

EDITED_HINT = (
    "after the edit: cpasync.fence_tma_desc_release, or edit it in shared memory and publish it with"
    " cp_fence_tma_desc_release"
)
STALE_HINT = "cpasync.fence_tma_desc_acquire(pointer) between the edit of the descriptor and its use"


class TensorMaps:
    """Descriptors in global memory that this launch has edited, and the bytes that each CTA saw when it last acquired
    one.
    """

    def __init__(self) -> None:
        self.released: dict[int, bool] = {}  # address -> whether the last edit was released
        self.acquired: dict[tuple[int, int], bytes] = {}  # (CTA, address) -> the descriptor

    @property
    def has_edits(self) -> bool:
        """Whether anything must be checked."""
        return bool(self.released or self.acquired)

    def find_problem(self, cta: int, where: int, raw: bytes) -> tuple[str, str] | None:
        """(message, hint) if TMA may use an outdated descriptor, else None."""
        seen = self.acquired.get((cta, where))
        edited = where in self.released
        if not edited and seen is None:
            return None  # the host wrote it
        if edited and not self.released[where]:
            return "a TMA copy uses a descriptor in global memory that was edited but not released", EDITED_HINT
        if seen != raw:
            how = "that this CTA did not acquire" if seen is None else "that changed since this CTA acquired it"
            return f"a TMA copy uses a descriptor in global memory {how}", STALE_HINT
        return None
