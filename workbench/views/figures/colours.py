"""Functions on colours #rrggbb: blending, contrast and readable ink."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def blend(share: float, full: str, none: str) -> str:
    """The colour at `share` (0 to 1) of the way from `none` to `full`, all #rrggbb."""
    parts = [(int(full[n : n + 2], 16), int(none[n : n + 2], 16)) for n in (1, 3, 5)]
    return "#" + "".join(f"{round(b + (a - b) * min(max(share, 0.0), 1.0)):02x}" for a, b in parts)


def contrast(one: str, other: str) -> float:
    """The WCAG contrast ratio of two colours #rrggbb, from 1 to 21."""
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """The relative luminance of an sRGB colour, from 0 to 1."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    return sum(
        weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
        for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
    )


def readable_ink(ground: str) -> str:
    """Black or white, whichever has more contrast (at least 4.5) on an opaque ground #rrggbb."""
    return max("#000000", "#ffffff", key=lambda ink: contrast(ink, ground))


def pick(scale: Sequence[tuple[float, str]], share: float) -> str:
    """The colour of a scale of (place from 0 to 1, colour) at `share`."""
    share = min(max(share, 0.0), 1.0)
    (low, first), (high, last) = next(pair for pair in itertools.pairwise(scale) if share <= pair[1][0])
    return blend((share - low) / (high - low), last, first)
