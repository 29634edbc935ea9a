"""Mixes 64-bit integers, for hashes that stay the same between versions of Python, of NumPy and of every library.

The mixing function is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014). Sums of mixed values are hashes of
multisets: they do not depend on an order. Two different structures get one hash with a probability near 2**-64.
"""

from __future__ import annotations

import hashlib

import numpy
from numpy.typing import NDArray

Hashes = NDArray[numpy.uint64]

ALL = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(value: int) -> int:
    """The mixed value of one integer of 64 bits."""
    value = (value + _GOLDEN) & ALL
    value = ((value ^ (value >> 30)) * _FIRST) & ALL
    value = ((value ^ (value >> 27)) * _SECOND) & ALL
    return value ^ (value >> 31)


def mix_pair(one: int, other: int) -> int:
    """The mixed value of an ordered pair."""
    return mix((mix(one) + other) & ALL)


def mix_all(values: Hashes) -> Hashes:
    """`mix` of each element of an array."""
    mixed = values + numpy.uint64(_GOLDEN)
    mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(_FIRST)
    mixed = (mixed ^ (mixed >> numpy.uint64(27))) * numpy.uint64(_SECOND)
    return mixed ^ (mixed >> numpy.uint64(31))


def mix_pairs(ones: Hashes, others: Hashes) -> Hashes:
    """`mix_pair` of each element of two arrays."""
    return mix_all(mix_all(ones) + others)


def sum_runs(values: Hashes, starts: NDArray[numpy.int64]) -> Hashes:
    """Sums, modulo 2**64, of runs of an array: run i goes from starts[i] to starts[i + 1]."""
    sums = numpy.zeros(len(values) + 1, numpy.uint64)
    numpy.cumsum(values, out=sums[1:])
    return sums[starts[1:]] - sums[starts[:-1]]


def hash_text(text: str) -> int:
    """64 bits of BLAKE2b of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
