"""`count` of foreign_kernels.py: one case on the emulator at full size, a few CTAs of each launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from foreign_cases import Arguments, Case
from full_size import SAMPLE, describe_builds, describe_launches

from workbench.emulator.hook import emulated
from workbench.wire import to_plain

ARCH, LIMIT_S = "sm_90a", 60.0


def start() -> Callable[[Case], dict[str, Any]]:
    """Nothing to set up."""
    return count


def count(case: Case) -> dict[str, Any]:
    """Work, launches and builds of a case."""
    work = case.work()
    with (
        emulated(
            arch=ARCH,
            device="H200",
            cuda=True,
            strict=False,
            sample=SAMPLE,
            follow=True,
            limit_s=LIMIT_S,
            skip_repeats=True,
        ) as emulation,
        torch.no_grad(),
    ):
        made = case.make(Arguments(emulation))
        before = len(emulation.launches)
        made.call()
        launches, modules = emulation.launches[before:], emulation.modules
    if not launches:
        raise ValueError("the call launched no kernel")
    return {
        "work": to_plain(work),
        "launches": describe_launches(launches),
        "builds": describe_builds(modules, ARCH),
    }
