"""The one model of times without a GPU: terms (terms.py), what the regression learnt from measured kernels
(features.py, regression.py), and estimates with intervals (estimate.py).
"""

from workbench.analysis.time_model.estimate import (
    FittedModel,
    TimeComparison,
    TimeEstimate,
    compare_times,
    estimate_time,
    fitted_model,
    predict_gain,
)

__all__ = [
    "FittedModel",
    "TimeComparison",
    "TimeEstimate",
    "compare_times",
    "estimate_time",
    "fitted_model",
    "predict_gain",
]
