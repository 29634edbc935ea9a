"""scan: both schedules and other axes against torch on the emulator; all options; recognition; rejections."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from emitted import found, run_on

from workbench.language import check, parse
from workbench.proposers.ladders import Context, ladder


def expected(x: torch.Tensor, *, op: str = "sum", axis: int = -1, exclusive: int = 0, reverse: int = 0) -> torch.Tensor:
    x = x.double().flip(axis) if reverse else x.double()
    whole = {
        "sum": lambda: x.cumsum(axis),
        "prod": lambda: x.cumprod(axis),
        "max": lambda: x.cummax(axis).values,
        "min": lambda: x.cummin(axis).values,
        "logsumexp": lambda: x.logcumsumexp(axis),
    }[op]()
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), {"sum": 0.0, "prod": 1.0, "max": -torch.inf}[op])
        whole = torch.cat((first, whole if exclusive == 2 else whole.narrow(axis, 0, x.shape[axis] - 1)), axis)
    return whole.flip(axis) if reverse else whole


OPTIONS: list[dict[str, Any]] = [
    {},
    {"reverse": 1, "exclusive": 1},
    {"exclusive": 2},
    {"op": "max"},
    {"op": "prod", "exclusive": 1, "reverse": 1},
    {"op": "prod", "exclusive": 2},
]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("schedule", "options"),
    [("rows", options) for options in OPTIONS]
    + [("lookback", options) for options in OPTIONS[::2]]
    + [pytest.param("lookback", options, marks=pytest.mark.slow) for options in OPTIONS[1::2]],
    ids=str,
)
def test_against_torch(schedule: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    arguments = "".join(f", {key}={value}" for key, value in options.items())
    text = f"scan(x{arguments}) .threads(64) .per_thread(8) .schedule({schedule})"
    x = (
        torch.randn(2, 1300) if schedule == "rows" else torch.randn(2, 2, 517)
    )  # several tiles of a row; rows that start anywhere
    x = 1 + x / 100 if options.get("op") == "prod" else x
    torch.testing.assert_close(run_on(text, (x,), ("x",)).double(), expected(x, **options), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("op", ["min", "logsumexp"])
@pytest.mark.parametrize("settings", ["axis=0) .threads(32)", "axis=last) .threads(32) .per_thread(8)"])
def test_minima_and_exponentials(op: str, settings: str) -> None:
    """Rows of -inf, inf and NaN too: equal infinities have no difference, and NaN stays."""
    torch.manual_seed(0)
    x = torch.randn(5, 300) * 30
    x[:2, :200], x[2, 100], x[3, 200] = -torch.inf, torch.inf, torch.nan
    got = run_on(f"scan(x, op={op}, {settings}", (x,), ("x",)).double()
    wanted = expected(x, op=op, axis=0 if "axis=0" in settings else -1)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.slow
def test_masked_half_and_columns() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(4, 640), torch.rand(4, 640) > 0.5
    torch.testing.assert_close(
        run_on("scan(mul(x, mask)) .threads(64) .per_thread(8)", (x, mask), ("x", "mask")),
        (x * mask).cumsum(1),
        rtol=1e-5,
        atol=1e-4,
    )
    half = (x / 8).half()
    torch.testing.assert_close(
        run_on("scan(x) .threads(64) .per_thread(8)", (half.t().contiguous().t(),), ("x",)).double(),
        half.double().cumsum(1),
        rtol=1e-3,
        atol=1e-3,
    )
    cube = torch.randn(3, 37, 50)
    torch.testing.assert_close(run_on("scan(x, axis=1)", (cube,), ("x",)), cube.cumsum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        run_on("scan(x, axis=0, exclusive=1, reverse=1)", (cube,), ("x",)).double(),
        expected(cube, axis=0, exclusive=1, reverse=1),
        rtol=1e-5,
        atol=1e-5,
    )


def test_one_element_and_none() -> None:
    assert run_on("scan(x)", (torch.tensor([2.5]),), ("x",)).tolist() == [2.5]
    assert run_on("scan(x)", (torch.zeros(3, 0),), ("x",)).shape == (3, 0)
    assert run_on("scan(x, op=prod, exclusive=2)", (torch.zeros(3, 0),), ("x",)).tolist() == [[1.0]] * 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("scan(x, op=mean)", "op=mean"),
        ("scan(x, axis=first)", "axis=first"),
        ("scan(x, exclusive=3)", "exclusive=3"),
        ("scan(x, exclusive=2, reverse=1)", "total after the last"),
        ("scan(x, y)", "takes one expression"),
        ("scan(mull(x, m))", "no such function"),
        ("scan(x, axis=1) .schedule(rows)", "is for the last axis"),
        ("scan(x) .schedule(columns)", "schedule=columns"),
        ("scan(x, dim=1)", "no such argument"),
    ],
)
def test_rejections(text: str, reason: str) -> None:
    assert any(reason in str(item) for item in check(parse(text)))


ZEROS = "torch.zeros_like(x.select(1, 0).unsqueeze(1))"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("torch.cumsum(x, 1)", {"op": "sum", "axis": "last"}),
        ("torch.cumsum(x, 0)", {"op": "sum", "axis": 0}),
        ("torch.cumprod(x, -1)", {"op": "prod", "axis": "last"}),
        ("torch.cummax(x, 1)[0]", {"op": "max", "axis": "last"}),
        ("torch.cumsum(x.flip(1), 1).flip(1)", {"op": "sum", "axis": "last", "reverse": 1}),
        ("torch.cumsum(x, 1) - x", {"op": "sum", "axis": "last", "exclusive": 1}),
        (f"torch.cumsum(torch.cat(({ZEROS}, x), dim=1)[:-1], dim=1)", {"op": "sum", "axis": "last", "exclusive": 2}),
        (f"torch.cumsum(torch.cat(({ZEROS}, x), dim=1)[:, :-1], dim=1)", {"op": "sum", "axis": "last", "exclusive": 1}),
        (f"torch.cat(({ZEROS}, torch.cumsum(x, 1)[:, :-1]), dim=1)", {"op": "sum", "axis": "last", "exclusive": 1}),
    ],
)
def test_recognised(body: str, named: dict[str, object]) -> None:
    computation = found(body, x="20, 24")
    assert computation is not None and computation.kind == "scan" and dict(computation.operation.named) == named


def test_what_kernelbench_calls_exclusive_drops_a_row() -> None:
    computation = found(f"torch.cumsum(torch.cat(({ZEROS}, x), dim=1)[:-1], dim=1)", x="20, 24")
    assert dict(computation.operands) == {"x": "x[:-1]"}
    masked = found("torch.cumsum(x * m, dim=1)", x="20, 24", m="torch.ones(20, 24).bool()")
    assert masked.operation.positional[0].name == "mul" and dict(masked.operands) == {"x": "x", "mask": "m"}


@pytest.mark.parametrize(
    "body",
    [
        "torch.cumsum(x.flip(0), 1).flip(1)",
        "torch.cumsum(x.flip(0, 1), 1).flip(0, 1)",
        "torch.cumsum(x, 1, dtype=torch.float64)",
        "torch.cumsum(x, 1) - 2 * x",
        "torch.cumsum(x.long(), 1)",
        "torch.cumsum(x * x, 1)",
        f"torch.cumsum(torch.cat(({ZEROS} + 1, x), dim=1), dim=1)",
        f"torch.cumprod(torch.cat(({ZEROS}, x), dim=1), dim=1)",
        f"torch.cumsum(torch.cat((x, {ZEROS}), dim=1)[:, :-1], dim=1)",
        "torch.cummax(x, 1)[1]",
        f"torch.cat(({ZEROS}, torch.cumsum(x, 0)[:, :-1]), dim=1)",
    ],
)
def test_other_computations_are_not_taken_for_it(body: str) -> None:
    computation = found(body, x="20, 24")
    assert computation is None or computation.kind != "scan"


def test_few_long_rows_start_with_look_back() -> None:
    schedules = []
    for rows, columns in ((32768, 32768), (8, 1 << 20)):
        computation, facts = found(
            "torch.cumsum(x, 1)", full=f"rows = {rows}\ncolumns = {columns}", x="rows, columns", facts=True
        )
        schedules.append(
            str(
                ladder(Context(found=computation, precision="fp32", arch="sm_90a", facts=facts))[0]
                .settings[-1]
                .positional[0]
            )
        )
    assert schedules == ["rows", "lookback"]
