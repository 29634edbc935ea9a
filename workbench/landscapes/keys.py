"""Keys of landscapes: problems that compute the same have one key, programs with the same code have one text."""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType

from workbench.language import Call, Program, format_program, parse
from workbench.language.ir import setting
from workbench.language.operations.gemm.sm90 import config_of
from workbench.problems import with_settings
from workbench.records import Problem
from workbench.wire import content_hash

KEPT = 1 << 14  # cached texts: more than the landscapes of 46 problems have

_parsed = functools.lru_cache(maxsize=KEPT)(parse)


def problem_key(problem: Problem) -> str:
    """16 hex digits: a hash of the problem's code with its settings written into it, its precision and its mode.

    Its name, origin, comments and docstring do not matter.
    """
    tree = ast.parse(with_settings(problem.source, problem.settings))
    if tree.body and isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant):
        del tree.body[0]
    return content_hash("\n".join((ast.unparse(tree), problem.precision, problem.mode)))[:16]


def settings_of(text: str) -> dict[str, tuple[object, ...]]:
    """Settings of a program by name. Those of a later stage carry the stage's number (`tile 2`)."""
    return {
        call.name if number == 1 else f"{call.name} {number}": call.positional
        for number, stage in enumerate(_parsed(text).stages, 1)
        for call in stage.settings
    }


def format_value(value: tuple[object, ...]) -> str:
    """A setting's value as people write it: 128x256x64, along_n 8, pingpong; "yes" if it has no value."""
    return ("x" if all(isinstance(part, int) for part in value) else " ").join(map(str, value)) if value else "yes"


@functools.lru_cache(maxsize=KEPT)
def strip_settings(text: str) -> str:
    """The operations, epilogues and results of a program as text, without its settings."""
    return str(tuple((stage.operation, stage.epilogues, stage.result) for stage in _parsed(text).stages))


def distance(one: dict[str, tuple[object, ...]], other: dict[str, tuple[object, ...]]) -> float:
    """Distance of two sets of settings: 1 for each that differs, plus 0.1 for each factor of 2 between its numbers."""
    total = 0.0
    for name in {*one, *other}:
        here, there = one.get(name), other.get(name)
        if here != there:
            total += 1 + 0.1 * sum(
                abs(math.log2(a / b))
                for a, b in zip(here or (), there or (), strict=False)
                if isinstance(a, (int, float)) and isinstance(b, (int, float)) and a > 0 and b > 0
            )
    return total


def with_arch(text: str, arch: str) -> str:
    """The program's text with the architecture written into each stage that leaves it out."""
    stages = [
        stage
        if any(call.name == "arch" for call in stage.settings)
        else dataclasses.replace(stage, settings=(Call(name="arch", positional=(arch,)), *stage.settings))
        for stage in parse(text).stages
    ]
    return format_program(Program(stages=tuple(stages)))


def all_settings(text: str) -> dict[str, tuple[object, ...]]:
    """Settings of a program, with the defaults that a Hopper gemm leaves out.

    These are tile, cluster, stages, raster, splitk and store.
    """
    found = settings_of(text)
    stage = _parsed(text).stages[0]
    if stage.operation.name != "gemm" or setting(stage, "schedule") is None:
        return found
    config = config_of(stage)
    filled: dict[str, tuple[object, ...]] = {
        "tile": config.tile,
        "cluster": config.cluster,
        "stages": (config.stages,),
        "raster": (config.raster, config.band),
        "splitk": (config.split_k, "cluster") if config.in_cluster else (config.split_k,),
        "store": (config.store, config.buffers) if config.store_buffers else (config.store,),
    }
    return found | filled


@functools.lru_cache(maxsize=KEPT)
def format_settings(text: str) -> Mapping[str, str]:
    """`all_settings` as people write them: setting -> value."""
    return MappingProxyType({name: format_value(value) for name, value in all_settings(text).items()})
