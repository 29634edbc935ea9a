"""Parse functions for arguments. They raise `argparse.ArgumentTypeError` with the reason."""

from __future__ import annotations

import argparse
import re

from workbench.records import Scalar

SIZE_NAME = re.compile(r"[^\W\d]\w*(\[\d+\])?")  # `n`, or `shape[0]`


def parse_tie(text: str) -> tuple[str, ...]:
    """Parse names of sizes that always have one value: `a=b`, `a=b=c`."""
    names = tuple(part.strip() for part in text.split("="))
    if len(names) < 2 or not all(map(SIZE_NAME.fullmatch, names)):
        raise argparse.ArgumentTypeError(f"{text!r} ties nothing; write the names of two sizes: --tie x_1=b_0")
    return names


def parse_setting(text: str) -> tuple[str, Scalar]:
    """Parse `name=value` with a number, true or false."""
    name, equals, value = text.partition("=")
    if not equals or not SIZE_NAME.fullmatch(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    raise argparse.ArgumentTypeError(f"{value!r} is not a number, true or false")


def parse_size(text: str) -> tuple[int, ...]:
    """Parse sizes such as `4096,4096,4096`."""
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: whole numbers over 0, as in 4096,4096,4096")
    return tuple(int(part) for part in parts)


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parse numbers such as `0,0.125,1`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 0,0.125,1") from None


def parse_indices(text: str) -> list[int]:
    """Parse numbers such as `1,3` or `2-4`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.strip().isdigit() or (dash and not last.strip().isdigit()):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of hunk numbers such as 1,3 or 2-4")
        found += range(int(first), int(last or first) + 1)
    return found


def parse_steps(text: str) -> int:
    """Parse a number of refinements: 0, 1, 2, ..."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps (0, 1, 2, ...)")
    return int(text)


def parse_jobs(text: str) -> int:
    """Parse a number of processes: 1, 2, ..."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of candidates at a time (1, 2, ...)")
    return int(text)


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names such as `speed,memory`."""
    return tuple(filter(None, text.split(",")))
