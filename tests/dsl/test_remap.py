"""pad, flip, roll and interpolate: programs, and modules through the planner's first version, against torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from emitted import found, run_on
from test_row_recognition import computes, problem

from workbench.language import Binding, check, parse
from workbench.language.ranks import check_ranks

Reference = Callable[[torch.Tensor], torch.Tensor]
PROGRAMS: tuple[tuple[str, torch.dtype, Reference], ...] = (
    (
        "pad(x, axes=(-3, -1), before=(1, -2), after=(0, 3), value=-1)",
        torch.float32,
        lambda x: F.pad(x, (-2, 3, 0, 0, 1, 0), value=-1),
    ),
    (
        "pad(x, axes=(-2, -1), before=(8, 2), after=(3, 15), mode=reflect)",
        torch.float16,
        lambda x: F.pad(x, (2, 15, 8, 3), mode="reflect"),
    ),
    (
        "pad(x, axes=(-2, -1), before=(9, 2), after=(3, 16), mode=circular)",
        torch.float32,
        lambda x: F.pad(x, (2, 16, 9, 3), mode="circular"),
    ),
    ("pad(x, axes=-2, before=2, after=1, value=7) .vector(8)", torch.int64, lambda x: F.pad(x, (0, 0, 2, 1), value=7)),
    ("flip(x, axes=(-4, -3, -1))", torch.bool, lambda x: x.flip(0, 1, 3)),
    ("flip(x, axes=-3) .vector(4) .unroll(8) >> mul(2) >> cast(f32)", torch.bfloat16, lambda x: x.flip(1).float() * 2),
    ("roll(x, axes=(-4, -2), shifts=(1, -11)) .vector(4)", torch.float32, lambda x: x.roll((1, -11), (0, 2))),
    ("interpolate(x, axes=(-2, -1), scale=(1.5, 3))", torch.float32, lambda x: F.interpolate(x, scale_factor=(1.5, 3))),
    (
        "interpolate(x, axes=(-2, -1), size=(7, 33), mode=nearest_exact)",
        torch.float32,
        lambda x: F.interpolate(x, size=(7, 33), mode="nearest-exact"),
    ),
    (
        "interpolate(x, axes=(-2, -1), size=(7, 33), mode=linear, align_corners=1)",
        torch.bfloat16,
        lambda x: F.interpolate(x, size=(7, 33), mode="bilinear", align_corners=True),
    ),
    (
        "interpolate(x, axes=-1, scale=2.5, mode=linear) >> abs()",
        torch.float32,
        lambda x: F.interpolate(x[0], scale_factor=2.5, mode="linear").abs()[None],
    ),
)


@pytest.mark.few(4)
@pytest.mark.parametrize(("text", "dtype", "reference"), PROGRAMS, ids=[text for text, _, _ in PROGRAMS])
def test_against_torch(text: str, dtype: torch.dtype, reference: Reference) -> None:
    torch.manual_seed(0)
    x = (torch.randn(1 if "axes=-1" in text else 2, 3, 9, 16) * 3).to(dtype)
    got, wanted = run_on(text, (x,), ("x",)), reference(x)
    torch.testing.assert_close(got, wanted, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


def test_three_axes_and_empty_tensors() -> None:
    x = torch.randn(1, 1, 3, 9, 16)
    wanted = F.interpolate(x, size=(5, 4, 17), mode="trilinear")
    got = run_on("interpolate(x, axes=(-3, -2, -1), size=(5, 4, 17), mode=linear)", (x,), ("x",))
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    padded = "pad(x, axes=-2, before=1, after=1, value=3)"
    assert torch.equal(run_on(padded, (x[..., :0, :],), ("x",)), F.pad(x[..., :0, :], (0, 0, 1, 1), value=3))
    assert run_on("flip(x, axes=-1)", (x[:0],), ("x",)).shape == (0, 1, 3, 9, 16)


IMAGE, TWO = ("torch.randn(2, 3, n, d)",), ("torch.randn(2, 3, n, d)",) * 2
MODULES = (
    (
        "F.relu(F.pad(x, (-1, 2, 1, -1), value=1.5))",
        IMAGE,
        "pass",
        "pad(x, axes=(-2, -1), before=(1, -1), after=(-1, 2), value=1.5)",
    ),
    ("torch.flip(x, (-1, 2)) * y", TWO, "pass", "flip(x, axes=(-2, -1)) .arch(sm_90a)"),
    ("x + torch.roll(x, (1, -2), (1, 3))", IMAGE, "pass", "roll(x, axes=(-3, -1), shifts=(1, -2))"),
    (
        "self.m(x).exp()",
        IMAGE,
        "self.m = nn.CircularPad2d((1, 2, 0, 1))",
        "pad(x, axes=(-2, -1), before=(0, 1), after=(1, 2), mode=circular)",
    ),
    (
        "F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 3), mode='bilinear')",
        IMAGE,
        "pass",
        "interpolate(x, axes=(-2, -1), scale=(2, 3), mode=linear)",
    ),
    ("self.m(x)", IMAGE, "self.m = nn.Upsample(size=(20, 17))", "interpolate(x, axes=(-2, -1), size=(20, 17))"),
    (
        "F.softmax(F.pad(x.relu(), (1, 0, 0, 0), mode='replicate').flip(-1), -1)",
        IMAGE,
        "pass",
        "|> h3 = flip(h2, axes=-1)",
    ),
    ("F.pad(x > 0, (3, 3)).float() * 2", IMAGE, "pass", ">> cast(bool) |> h2 = pad(h1, axes=-1, before=3, after=3)"),
    ("torch.roll(x, x.shape[1] // 2, 1)", ("torch.randn(n, d)",), "pass", "roll(x, axes=-1, shifts=10)"),
)


@pytest.mark.few(3)
@pytest.mark.parametrize(("forward", "inputs", "init", "said"), MODULES, ids=[case[0] for case in MODULES])
def test_modules(forward: str, inputs: tuple[str, ...], init: str, said: str) -> None:
    assert said in computes(problem(forward, inputs, init), "sm_80" if "roll" in forward else "sm_90a")


@pytest.mark.parametrize(
    ("pads", "padding"), [("(2, 2, 1, 1)", (1, 2)), ("(1, 2, 1, 1)", None), ("(1, 1, 1, 1), mode='reflect'", None)]
)
def test_a_pad_before_a_convolution_is_its_padding_if_it_is_the_same_at_both_ends(
    pads: str, padding: tuple[int, int] | None
) -> None:
    init = "        self.conv = nn.Conv2d(3, 4, 3)"
    made = found(f"self.conv(nn.functional.pad(x, {pads}))", init=init, x="2, 3, 9, 9")
    calls = [piece.named.operation for piece in made.pieces] or [made.operation]
    assert [call.name for call in calls] == (["conv"] if padding else ["pad", "conv"])
    assert dict(calls[-1].named).get("padding") == padding


@pytest.mark.parametrize(
    "body",
    [
        "nn.functional.interpolate(x, scale_factor=2, mode='bicubic')",
        "nn.functional.interpolate(x, size=(x.shape[2] * 3 // 2, 9))",
        "torch.roll(x, 3)",
    ],
)
def test_what_the_language_does_not_have_is_not_recognised(body: str) -> None:
    assert found(body, full="n = 9", x="torch.randn(2, 3, n, 9)") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("pad(x, axes=(1, 2), before=(1, 1))", "axes=(1, 2): which axes are read elsewhere"),
        ("pad(x, axes=(-1, -2), before=(1, 1))", "axes=(-1, -2): which axes"),
        ("pad(x, axes=(-2, -1), before=1)", "before=1: how many elements each axis gets in front"),
        ("interpolate(x, axes=-1)", "one of size and scale"),
        ("interpolate(x, axes=-2, scale=2, mode=linear)", "linear interpolation is along the last axes"),
        ("interpolate(x, axes=-1, scale=2, align_corners=1)", "only linear interpolation aligns corners"),
        ("flip(x, axes=-1) >> mul(t, along=n)", "its tensors have the result's shape"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))


def test_axes_that_a_tensor_does_not_have_are_rejected() -> None:
    binding = Binding(init_source="", forward_arguments=("x",), axes=(("x", 2),))
    (found,) = check_ranks(parse("flip(x, axes=(-3, -1))"), binding)
    assert str(found) == "axes=(-3, -1): x has 2 axes in this problem; legal: -2 to -1"


def test_too_wide_a_reflection_is_refused() -> None:
    with pytest.raises(ValueError, match="x has 4 elements on axis -1; reflect padding takes at most 3"):
        run_on("pad(x, axes=-1, before=1, after=4, mode=reflect)", (torch.randn(2, 4),), ("x",))
