"""Rules of the partial evaluator, each shown on a few lines of a library module."""

from __future__ import annotations

import textwrap
from typing import ClassVar

import pytest

from workbench.codegen.launch import Hook
from workbench.codegen.specialise.builder import WRITTEN, Builder
from workbench.codegen.specialise.file import format_source
from workbench.codegen.specialise.inline import inline_forwards
from workbench.codegen.specialise.library import SpecialiseError, parse_module
from workbench.codegen.specialise.values import Symbol
from workbench.records import record

HEAD = (
    "import cutlass\nfrom workbench.kernels.host import call\nfrom workbench.kernels.static import Many, "
    "Static, bind, dtype\n"
)


@record
class Config:
    """A configuration like those of the kernels."""

    CONSTANTS: ClassVar[dict[str, str]] = {"tile": "rows of a CTA"}
    tile: int = 64
    element: str = "f16"
    fused: bool = False
    levels: tuple[object, ...] = ()
    epilogue: object = None


@record
class Level:
    """A nested part of a configuration."""

    name: str
    start: float


def write(source: str, *, cfg: Config | None = None, many: dict[str, tuple[str, ...]] | None = None) -> str:
    """Return the text of `main` and of everything that it reaches, without imports."""
    module = parse_module("workbench.kernels.sample", HEAD + textwrap.dedent(source))
    builder = Builder()
    symbols = {role: tuple(Symbol(name=item, base=item) for item in items) for role, items in (many or {}).items()}
    builder.function(module, "main", static={"cfg": cfg or Config()}, many=symbols, nodes={})
    return format_source("\n\n\n".join([*builder.constant_lines(), *builder.values, *builder.definitions]))


def test_a_static_branch_is_folded_with_its_comment() -> None:
    source = """
    def main(cfg: Static, a):
        # a tail
        if cutlass.const_expr(cfg.fused):
            a = a + 1
        elif cutlass.const_expr(cfg.tile > 32):
            a = a * 2
        else:
            a = a * 3
        return a
    """
    assert write(source) == "def main(a):\n    # a tail\n    a = a * 2\n    return a\n"
    assert "a + 1" in write(source, cfg=Config(fused=True))


def test_a_test_of_run_time_keeps_its_dynamic_part() -> None:
    source = """
    def main(cfg: Static, a, wide: cutlass.Constexpr):
        if cutlass.const_expr(wide and not cfg.fused):
            a = a + 1
        return a
    """
    assert "if cutlass.const_expr(wide):" in write(source)
    assert "if" not in write(source, cfg=Config(fused=True))


def test_documented_fields_become_constants_and_types_their_names() -> None:
    source = """
    def main(cfg: Static, a):
        return dtype(cfg.element)(a) + cfg.tile * 2
    """
    assert write(source) == ("TILE = 64  # rows of a CTA\n\n\ndef main(a):\n    return cutlass.Float16(a) + TILE * 2\n")


def test_tuples_of_operands_are_spread() -> None:
    source = """
    def main(cfg: Static, inputs: Many, out):
        parts = tuple(x.load() for x in inputs)
        for n, (x, part) in enumerate(zip(inputs, parts, strict=True)):
            x.store(n, part)
        return helper(cfg, parts, out)

    def helper(cfg: Static, parts: Many, out):
        return out(*parts, len(parts))
    """
    assert write(source, many={"inputs": ("x", "bias")}) == textwrap.dedent(
        """\
        def helper(x_part, bias_part, out):
            return out(x_part, bias_part, 2)


        def main(x, bias, out):
            x_part = x.load()
            bias_part = bias.load()
            x.store(0, x_part)
            bias.store(1, bias_part)
            return helper(x_part, bias_part, out)
        """
    )


def test_state_of_several_values_is_carried_by_name() -> None:
    source = """
    def main(cfg: Static, inputs: Many, out):
        state = start(cfg, inputs)
        for i in cutlass.range(4):
            state = step(cfg, state, i)
        first, second = state
        return first + second

    def start(cfg: Static, inputs: Many):
        sums = tuple(x + 0 for x in inputs)
        return sums

    def step(cfg: Static, state: Many, i):
        state = tuple(value + i for value in state)
        return state
    """
    text = write(source, many={"inputs": ("x", "y")})
    assert "x_sum, y_sum = start(x, y)" in text
    assert "x_sum, y_sum = step(x_sum, y_sum, i)" in text
    assert "first, second = x_sum, y_sum" in text


def test_hooks_are_written_once_and_get_the_names() -> None:
    source = """
    def main(cfg: Static, operands: Many, total):
        return cfg.epilogue(total, operands)
    """
    hook = Hook(name="epilogue", source="def epilogue(total, bias):\n    return relu(total + bias)\n")
    text = write(source, cfg=Config(epilogue=hook), many={"operands": ("bias",)})
    assert "return epilogue(total, bias)" in text
    assert text.count("def relu(") == text.count("def epilogue(") == 1


def test_loops_over_the_configuration_are_unrolled() -> None:
    source = """
    def main(cfg: Static, a):
        for level in cfg.levels:
            a = reduce(level, a)
        return a

    def reduce(level: Static, a):
        return a + level.start
    """
    text = write(source, cfg=Config(levels=(Level(name="max", start=-1.0), Level(name="sum", start=0.5))))
    assert "a = reduce_max(a)" in text and "a = reduce_sum(a)" in text
    assert "return a + -1.0" in text and "return a + 0.5" in text


def test_launches_give_operands_their_parameters() -> None:
    source = """
    def launch(cfg: Static, inputs: Many, out, stream, width: cutlass.Constexpr):
        return inputs[0] + out + width

    def main(cfg: Static, inputs: Many, out):
        call(bind(launch, cfg), (*(x.dtype for x in inputs), 4), (tuple(flat(x) for x in inputs), flat(out)), (4,))

    def flat(tensor):
        return tensor.view(-1)
    """
    text = write(source, many={"inputs": ("x", "y")})
    assert "def launch(x, y, out, stream, width: cutlass.Constexpr):" in text
    assert "call(launch, (x.dtype, y.dtype, 4), (flat(x), flat(y), flat(out)), (4,))" in text


def test_values_that_a_folded_branch_alone_used_are_left_out() -> None:
    source = """
    def main(cfg: Static, a):
        half = a // 2
        if cutlass.const_expr(cfg.fused):
            a = a + half
        return a
    """
    assert "half" not in write(source)
    assert "half = a // 2" in write(source, cfg=Config(fused=True))


def test_an_operand_called_like_a_local_gets_another_name() -> None:
    source = """
    def main(cfg: Static, inputs: Many):
        row = 0
        return inputs[0] + row
    """
    assert write(source, many={"inputs": ("row",)}) == "def main(row_in):\n    row = 0\n    return row_in + row\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return cfg", "a Config cannot be written"),
        ("return unknown(a)", "unknown is not defined"),
        ("return other(a, a)", "level of other is Static, its value is not"),
    ],
)
def test_what_cannot_be_written_is_said_with_its_place(body: str, said: str) -> None:
    source = f"def other(level: Static, a):\n    return a\n\n\ndef main(cfg: Static, a):\n    {body}\n"
    with pytest.raises(SpecialiseError, match=said):
        write(source)


FORWARDS = (
    'def find_end(bounds):\n    """The end."""\n    return bounds\n',
    "@cute.jit\ndef level(a, b, w: cutlass.Constexpr):\n    return reduce_pass(a, w)\n",
    "def reduce_pass(a, w):\n    return a[0] + w\n",
    "def width():\n    return 4\n",
    "def cast(v: cutlass.Int32):\n    return v\n",
    "def referred(a):\n    return a\n",
)


def test_functions_that_only_forward_are_inlined() -> None:
    definitions = [*FORWARDS, "def use(a, c):\n    x = level(find_end(a + 1), c, width())  # why\n    return cast(x)\n"]
    model = (
        "class ModelNew:\n    f = referred\n    def forward(self, x):\n        return use(find_end(find_end(x)), 1)\n"
    )
    texts, written = inline_forwards(definitions, model)
    assert [text.split("(")[0].split()[-1] for text in texts] == ["reduce_pass", "cast", "referred", "use"]
    assert "x = reduce_pass(a + 1, 4)  # why\n    return cast(x)\n" in texts[-1]
    assert "return use(x, 1)\n" in written


def test_an_argument_with_an_effect_is_not_lost_by_inlining() -> None:
    definitions = ["def first(a, b):\n    return a\n", "def use(a):\n    return first(a, store(a))\n"]
    assert inline_forwards(definitions, "class ModelNew:\n    pass\n")[0] == definitions


def test_functions_that_call_an_attribute_of_their_own_name_stay_apart() -> None:
    library = "def log(v):\n    return cute.math.log(v)\n\n\ndef sqrt(v):\n    return cute.math.sqrt(v)\n\n\n"
    texts = write(library + "from cutlass import cute\n\n\ndef main(cfg: Static, a):\n    return log(a) + sqrt(a)\n")
    assert "cute.math.log(" in texts and "cute.math.sqrt(" in texts and "log(a) + sqrt(a)" in texts


def test_equal_functions_are_written_once_even_if_their_docstring_has_their_name() -> None:
    body = '    """Make a call."""\n    return v + 1\n\n\n'
    texts = write(
        f"def call(v):\n{body}def call_again(v):\n{body}def main(cfg: Static, a):\n    return call(call_again(a))\n"
    )
    assert texts.count("return v + 1") == 1 and "call_again(call_again(a))" in texts


CASES = """
def scale(cfg: Static, a):
    return a * cfg.tile if cutlass.const_expr(cfg.fused) else a


def pick(cfg: Static, names: Static, a):
    for n in range(2):
        a = a + names[n] + (1 if cutlass.const_expr(cfg.tile > 64 * (n + 1)) else 0)
    return a


def main(cfg: Static, a):
    return scale(cfg, a) + pick(cfg, (cfg.tile // 2, 3), a)
"""


def test_a_function_that_was_written_before_is_the_same_as_one_written_anew() -> None:
    cases = [Config(tile=tile, fused=fused) for tile in (32, 64, 96, 128, 160) for fused in (False, True)]
    WRITTEN.clear()
    after_others = [write(CASES, cfg=cfg) for cfg in [*cases, *reversed(cases)]]
    for cfg, text in zip([*cases, *reversed(cases)], after_others, strict=True):
        WRITTEN.clear()
        assert write(CASES, cfg=cfg) == text


def test_what_does_not_depend_on_a_value_is_written_once() -> None:
    WRITTEN.clear()
    source = "def main(cfg: Static, a):\n    return a * cfg.tile\n"
    module = parse_module("workbench.kernels.sample", HEAD + source)
    texts = []
    for tile in (32, 64):
        builder = Builder()
        builder.function(module, "main", static={"cfg": Config(tile=tile)}, many={}, nodes={})
        texts.append((builder.definitions, builder.constant_lines()))
    assert texts[0][0] == texts[1][0] and "TILE = 64  # rows of a CTA" in texts[1][1]
    assert [len(kept) for kept in WRITTEN.values()] == [1]


def test_equal_functions_with_other_unused_parameters_are_each_called_without_them() -> None:
    source = """
    def main(cfg: Static, few: Many, more: Many):
        return width(cfg, few) + width(cfg, more)

    def width(cfg: Static, tensors: Many):
        if cutlass.const_expr(cfg.fused):
            return len(tensors)
        return 1
    """
    text = write(source, many={"few": ("a",), "more": ("a", "b")})
    assert text.count("def width") == 1 and "return width() + width()" in text
