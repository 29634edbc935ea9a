"""A search with one seed makes the same choices where the linear algebra is rounded in another way."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WALK = """
from workbench.landscapes import landscapes
from workbench.policies.search import load_strategy, walk_landscape
place = landscapes()["layer_norm"]
print([walk_landscape(place, load_strategy(name), seed, 25) for name in ("tree", "greedy") for seed in range(4)])
"""


def walk(**environment: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", WALK], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return found.stdout


@pytest.fixture(scope="module")
def here() -> str:
    return walk()


# cores that every processor of the kind can stand in for
@pytest.mark.few(1)
@pytest.mark.parametrize("core", ["Nehalem", "Haswell"])
def test_a_search_makes_the_same_choices_on_other_processors(here: str, core: str) -> None:
    assert len(here) > 1000
    assert walk(OPENBLAS_CORETYPE=core, NPY_DISABLE_CPU_FEATURES="AVX512F AVX512CD AVX512_SKX") == here
