"""The one model of times without a GPU: terms (terms.py), what the regression learnt from measured kernels
(features.py, regression.py), estimates with intervals (estimate.py), and what kernels that were measured on other
devices say of those (measured.py, refinement.py).
"""

from workbench.analysis.time_model.estimate import (
    FITTED_ON,
    FittedModel,
    TimeComparison,
    TimeEstimate,
    compare_measured,
    compare_times,
    describe_fit,
    describe_refinement,
    estimate_time,
    find_refinement,
    fitted_model,
    predict_gain,
)

__all__ = [
    "FITTED_ON",
    "FittedModel",
    "TimeComparison",
    "TimeEstimate",
    "compare_measured",
    "compare_times",
    "describe_fit",
    "describe_refinement",
    "estimate_time",
    "find_refinement",
    "fitted_model",
    "predict_gain",
]
