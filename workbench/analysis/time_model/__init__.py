"""The one model of times without a GPU: terms (terms.py), what the regression learnt from measured kernels
(features.py, regression.py), and estimates with intervals (estimate.py).
"""

from workbench.analysis.time_model.estimate import (
    FITTED_ON,
    FittedModel,
    TimeComparison,
    TimeEstimate,
    compare_times,
    describe_fit,
    estimate_time,
    fitted_model,
    predict_gain,
)

__all__ = [
    "FITTED_ON",
    "FittedModel",
    "TimeComparison",
    "TimeEstimate",
    "compare_times",
    "describe_fit",
    "estimate_time",
    "fitted_model",
    "predict_gain",
]
