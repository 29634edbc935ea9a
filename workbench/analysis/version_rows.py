"""Versions as rows of numbers: time, energy and cost of each in one row. Modelled, measured and recorded numbers have
columns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.analysis.call_times import time_columns
from workbench.records import Proposal, Version


def version_rows(versions: Sequence[Version]) -> list[dict[str, object]]:
    """One row per version, by column; None is unknown.

    Times are in seconds: `measured_s` of the kernels, `call_s` of a whole call from an idle GPU, host time included,
    and both of torch eager (`eager_s`, `eager_call_s`) and torch.compile (`compiled_s`, `compiled_call_s`). Energies
    are in joules of one call, dollars in `cost_usd`. `device` is the GPU whose times they are. Of the measured energy
    `measured_j` is corrected for the duty cycle and is the sum of `measured_active_j` and `measured_idle_j`;
    `measured_uncorrected_j` is not corrected. `tokens_in`, `tokens_out` and `cost_usd` are of the model calls of the
    version's proposal.
    """
    return [
        {
            "version": version.number,
            "parent": version.parent,
            "title": version.proposal.title,
            "by": version.proposal.by,
            **_time_columns(version),
            **_energy_columns(version),
            **_cost_columns(version.proposal),
            "decision": version.standing,
            "device": version.trials[-1].outcome.device if version.trials else None,
        }
        for version in versions
    ]


def _time_columns(version: Version) -> dict[str, object]:
    found = version.trials[-1].verdict if version.trials else None
    time_s = found.time_s if found else None
    return {
        "correct": found.correct if found else None,
        "modelled_s": time_s if found and found.time_provenance == "modelled" else None,
        "modelled_low_s": found.time_interval[0] if found and found.time_interval else None,
        "modelled_high_s": found.time_interval[1] if found and found.time_interval else None,
        "measured_s": time_s if found and found.time_provenance == "measured" else None,
        **time_columns(version.trials[-1].outcome if version.trials else None),
        "recorded_s": found.recorded.seconds if found and found.recorded else None,
        "of_bound": found.fraction_of_bound if found else None,
        "speedup": found.speedup if found else None,
    }


def _energy_columns(version: Version) -> dict[str, object]:
    measured = version.energy
    modelled = version.trials[-1].verdict.energy if version.trials else None
    return {
        "modelled_j": modelled.joules if modelled else None,
        "modelled_low_j": modelled.low_joules if modelled else None,
        "modelled_high_j": modelled.high_joules if modelled else None,
        "measured_j": measured.joules_per_call if measured else None,
        "measured_low_j": measured.low_joules if measured else None,
        "measured_high_j": measured.high_joules if measured else None,
        "measured_active_j": measured.active_joules if measured else None,
        "measured_idle_j": measured.idle_joules if measured else None,
        "measured_uncorrected_j": measured.uncorrected_joules if measured else None,
    }


def _cost_columns(proposal: Proposal) -> dict[str, object]:
    return {
        "tokens_in": proposal.tokens_in,
        "tokens_out": proposal.tokens_out,
        "cost_usd": proposal.cost_usd,
    }
