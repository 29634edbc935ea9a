"""Large tensors that torch allocates while a few CTAs run at full size: zeros whose memory is mapped on first use."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.emulator.host.dlpack import EMPTY
from workbench.problems.loading import lazy_zeros
from workbench.records import TensorSpec

SMALL_BYTES = 16 << 20  # torch allocates smaller tensors itself
_ZEROS = ("aten::zeros", "aten::zeros_like", "aten::new_zeros")


class LazyAllocations(TorchDispatchMode):  # type: ignore[misc]
    """Replaces large results of torch.empty, torch.zeros and their relatives on the CPU by `lazy_zeros`.

    So a problem may be larger than this machine's memory.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: see `AllocationWatch`."""
        return False

    def __torch_dispatch__(
        self,
        function: torch._ops.OpOverload,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        options = kwargs or {}
        if function._schema.name in (*EMPTY, *_ZEROS):
            meta = function(*args, **{**options, "device": "meta", "pin_memory": False})
            like = args[0] if args else None
            on_cpu = torch.device(options.get("device") or getattr(like, "device", "cpu")).type == "cpu"
            if on_cpu and meta.untyped_storage().nbytes() >= SMALL_BYTES:
                dtype = str(meta.dtype).removeprefix("torch.")
                return lazy_zeros(TensorSpec(name="", shape=tuple(meta.shape), dtype=dtype, strides=meta.stride()))
        return function(*args, **options)
