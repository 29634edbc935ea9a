"""Colours #rrggbb: a shade between two, and the ink that reads on a ground."""

from __future__ import annotations


def blend(share: float, full: str, none: str) -> str:
    """The colour at `share` (0 to 1) of the way from `none` to `full`, all #rrggbb."""
    parts = [(int(full[n : n + 2], 16), int(none[n : n + 2], 16)) for n in (1, 3, 5)]
    return "#" + "".join(f"{round(b + (a - b) * min(max(share, 0.0), 1.0)):02x}" for a, b in parts)


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours #rrggbb, from 1 to 21."""
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of sRGB."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    return sum(
        weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
        for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
    )


def ink_on(ground: str) -> str:
    """Black or white, whichever reads better on an opaque ground #rrggbb: a contrast of 4.5 at least."""
    return max("#000000", "#ffffff", key=lambda ink: contrast(ink, ground))
