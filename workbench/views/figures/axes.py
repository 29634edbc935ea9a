"""The axes of a static picture: where a value stands, and which numbers stand at an axis, as plotly's layout says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

PREFIXES = (
    ("P", 1e15),
    ("T", 1e12),
    ("G", 1e9),
    ("M", 1e6),
    ("k", 1e3),
    ("", 1.0),
    ("m", 1e-3),
    ("µ", 1e-6),
    ("n", 1e-9),
)
DECADES = 3.5  # a longer logarithmic axis has numbers at powers of ten only
MARGIN = 0.05  # of the range, on each side of an axis


class Axis:
    """An axis between two pixels, with its name in a layout, what the layout says, and the values drawn on it."""

    def __init__(self, name: str, spec: Mapping[str, Any], values: Iterable[Any], ends: tuple[float, float]) -> None:
        self.name, self.spec, (self.start, self.end) = name, spec, ends
        self.is_log = spec.get("type") == "log"
        self.names = list(dict.fromkeys(values)) if spec.get("type") == "category" else []
        low, high = spec.get("range") or self._fit(values)
        self.low, self.high = (high, low) if spec.get("autorange") == "reversed" else (low, high)

    def _fit(self, values: Iterable[Any]) -> tuple[float, float]:
        if self.names:
            return -0.5, len(self.names) - 0.5
        scaled = [self._scale(value) for value in values if value is not None and (value > 0 or not self.is_log)]
        low, high = min(scaled, default=0.0), max(scaled, default=1.0)
        margin = MARGIN * (high - low) or 0.5 * abs(high) or 0.5
        return low - margin, high + margin

    def _scale(self, value: Any) -> float:
        if isinstance(value, str):
            return self.names.index(value)
        return math.log10(max(value, 1e-300)) if self.is_log else value

    def place(self, value: Any, offset: float = 0.0) -> float:
        """The pixel of a value; values outside the range stand at its edge. `offset` is in categories."""
        share = (self._scale(value) + offset - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self) -> list[tuple[Any, str]]:
        """The values at the axis and how they are written."""
        if self.spec.get("visible") is False or self.spec.get("showticklabels") is False:
            return []
        if "tickvals" in self.spec:
            return list(zip(self.spec["tickvals"], self.spec["ticktext"], strict=True))
        if self.names:
            return [(name, name) for name in self.names]
        low, high = sorted((self.low, self.high))
        values = _log_steps(low, high) if self.is_log else round_steps(low, high, self._count())
        return [(value, self._write(value)) for value in values]

    def _count(self) -> int:
        """How many numbers have room."""
        return min(7, max(2, int(abs(self.end - self.start) / (50 if "x" in self.name else 22))))

    def _write(self, value: float) -> str:
        form, suffix = self.spec.get("tickformat", ""), self.spec.get("ticksuffix", "")
        if form.endswith("%"):
            return f"{value:.0%}"
        if form != "~s" or value == 0:
            return f"{value:.10g}{suffix}"
        unit, scale = next(((u, s) for u, s in PREFIXES if abs(value) >= s * (1 - 1e-9)), PREFIXES[-1])
        return f"{value / scale:.4g}{' ' * bool(suffix)}{unit}{suffix}"


def round_steps(low: float, high: float, count: int = 7) -> list[float]:
    """About `count` round numbers from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    return [step * n for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _log_steps(low: float, high: float) -> list[float]:
    """Powers of ten, with 2 and 5 times them if they are few, in a range of logarithms."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    factors = (1, 2, 5) if high - low <= DECADES else (1,)
    found = [factor * 10.0**power for power in powers for factor in factors]
    inside = [value for value in found if low - 1e-9 <= math.log10(value) <= high + 1e-9]
    return inside[:: max(1, round(len(inside) / 10))]
