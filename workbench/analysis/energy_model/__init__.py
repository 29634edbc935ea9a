"""The model of energy without a GPU: joules of a call from what it executes (counts.py) and coefficients that were
fitted to kernels measured on a GPU (model.py).
"""

from workbench.analysis.energy_model.counts import UNITS, count_events
from workbench.analysis.energy_model.model import (
    FITTED,
    UNFITTED,
    Coefficient,
    EnergyModel,
    describe_fit,
    estimate_energy,
    load_model,
)

__all__ = [
    "FITTED",
    "UNFITTED",
    "UNITS",
    "Coefficient",
    "EnergyModel",
    "count_events",
    "describe_fit",
    "estimate_energy",
    "load_model",
]
