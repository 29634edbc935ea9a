"""Modules like those of KernelBench's level 2, layers in sequence, at its sizes.

Name -> (__init__, forward, inputs, sizes).
"""

from __future__ import annotations

from workbench.records import Problem

CONV = "self.conv = nn.Conv{d}d(channels, filters, 3)"
UP = "self.conv = nn.ConvTranspose{d}d(channels, filters, {kernel}, stride=2, padding=1, output_padding=1)"
LINEAR = "self.linear = nn.Linear(channels, filters)"
VECTOR = "self.{name} = nn.Parameter(torch.randn(filters, {ones}))"
PLANE, CUBE, ROWS = (
    "torch.rand(batch, channels, size, size)",
    "torch.rand(batch, channels, depth, size, size)",
    "torch.rand(batch, channels)",
)


def conv(d: int) -> str:
    """Return the text of the convolution of most modules."""
    return CONV.format(d=d)


def up(d: int, kernel: int = 3) -> str:
    """Return the text of the transposed convolution of most modules."""
    return UP.format(d=d, kernel=kernel)


def vector(name: str, d: int) -> str:
    """Return the text of a parameter with one value per filter."""
    return VECTOR.format(name=name, ones=", ".join(["1"] * d))


MODULES: dict[str, tuple[str, str, str, str]] = {
    "01 conv relu bias": (
        f"{conv(2)}; {vector('b', 2)}",
        "torch.relu(self.conv(x)) + self.b",
        PLANE,
        "batch, channels, filters, size = 128, 64, 128, 128",
    ),
    "02 convtranspose bias clamp scale clamp divide": (
        f"{up(2)}; {vector('b', 2)}",
        "torch.clamp(torch.clamp(self.conv(x) + self.b, min=0.0, max=1.0) * 2.0, min=0.0, max=1.0) / 2.0",
        PLANE,
        "batch, channels, filters, size = 128, 64, 64, 128",
    ),
    "04 conv mish mish": (
        conv(2),
        "F.mish(F.mish(self.conv(x)))",
        PLANE,
        "batch, channels, filters, size = 64, 64, 128, 256",
    ),
    "05 convtranspose subtract tanh": (
        f"{up(2, 4)}; {vector('b', 2)}",
        "torch.tanh(self.conv(x) - self.b)",
        PLANE,
        "batch, channels, filters, size = 32, 64, 64, 256",
    ),
    "07 conv3d relu leaky gelu sigmoid bias": (
        f"{conv(3)}; {vector('b', 3)}",
        "torch.sigmoid(F.gelu(F.leaky_relu(torch.relu(self.conv(x)), negative_slope=0.01))) + self.b",
        CUBE,
        "batch, channels, filters, depth, size = 64, 8, 32, 32, 64",
    ),
    "08 conv3d divide pool mean bias sum": (
        f"{conv(3)}; self.pool = nn.MaxPool3d(2); self.mean = nn.AdaptiveAvgPool3d(1); {vector('b', 3)}",
        "torch.sum(self.mean(self.pool(self.conv(x) / 2.0)) + self.b, dim=1)",
        CUBE,
        "batch, channels, filters, depth, size = 128, 8, 16, 16, 64",
    ),
    "16 convtranspose mish add hardtanh scale": (
        up(2),
        "F.hardtanh(F.mish(self.conv(x)) + 0.5, min_val=-1, max_val=1) * 2",
        PLANE,
        "batch, channels, filters, size = 128, 64, 64, 128",
    ),
    "17 conv instance norm divide": (
        f"{conv(2)}; self.norm = nn.InstanceNorm2d(filters)",
        "self.norm(self.conv(x)) / 2.0",
        PLANE,
        "batch, channels, filters, size = 128, 64, 128, 128",
    ),
    "20 convtranspose3d residuals": (
        f"{up(3)}; {vector('b', 3)}",
        "y = self.conv(x); z = y.clone().detach(); ((y + self.b + z) * z) + z",
        CUBE,
        "batch, channels, filters, depth, size = 16, 32, 64, 16, 32",
    ),
    "21 conv add scale sigmoid group norm": (
        f"{conv(2)}; {vector('b', 2)}; {vector('s', 2)}; self.norm = nn.GroupNorm(8, filters)",
        "self.norm(torch.sigmoid((self.conv(x) + self.b) * self.s))",
        PLANE,
        "batch, channels, filters, size = 128, 8, 32, 256",
    ),
    "23 conv3d group norm mean": (
        f"{conv(3)}; self.norm = nn.GroupNorm(8, filters)",
        "self.norm(self.conv(x)).mean(dim=[1, 2, 3, 4])",
        CUBE,
        "batch, channels, filters, depth, size = 128, 3, 24, 24, 32",
    ),
    "25 conv min tanh tanh": (
        conv(2),
        "torch.tanh(torch.tanh(torch.min(self.conv(x), dim=1, keepdim=True)[0]))",
        PLANE,
        "batch, channels, filters, size = 128, 16, 64, 256",
    ),
    "26 convtranspose3d add hardswish": (
        up(3),
        "z = self.conv(x) + y; z * F.hardswish(z)",
        f"{CUBE}, torch.rand(batch, filters, 2 * depth, 2 * size, 2 * size)",
        "batch, channels, filters, depth, size = 128, 32, 64, 16, 16",
    ),
    "28 linear instance norm add multiply": (
        f"{LINEAR}; self.norm = nn.InstanceNorm2d(filters)",
        "(self.norm(self.linear(x).unsqueeze(1).unsqueeze(1)).squeeze(1).squeeze(1) + y) * y",
        f"{ROWS}, torch.rand(batch, filters)",
        "batch, channels, filters = 1024, 8192, 8192",
    ),
    "30 linear group norm hardtanh": (
        f"{LINEAR}; self.norm = nn.GroupNorm(16, filters)",
        "F.hardtanh(self.norm(self.linear(x)), -2.0, 2.0)",
        ROWS,
        "batch, channels, filters = 1024, 8192, 8192",
    ),
    "35 conv subtract hardswish pool mish": (
        f"{conv(2)}; self.pool = nn.MaxPool2d(2)",
        "F.mish(self.pool(F.hardswish(self.conv(x) - 0.5)))",
        PLANE,
        "batch, channels, filters, size = 128, 64, 128, 128",
    ),
    "38 pool convtranspose3d clamp softmax scale": (
        f"self.pool = nn.AvgPool3d(2); {up(3)}; {vector('s', 3)}",
        "y = torch.clamp(self.conv(self.pool(x)), 0.0, 1.0); torch.softmax(y.view(y.shape[0], y.shape[1], "
        "-1), dim=2).view(y.shape) * self.s",
        CUBE,
        "batch, channels, filters, depth, size = 32, 32, 64, 32, 64",
    ),
    "41 linear batch norm gelu relu": (
        f"{LINEAR}; self.norm = nn.BatchNorm1d(filters)",
        "torch.relu(F.gelu(self.norm(self.linear(x))))",
        ROWS,
        "batch, channels, filters = 16384, 4096, 4096",
    ),
    "46 conv subtract tanh subtract pool": (
        f"{conv(2)}; self.pool = nn.AvgPool2d(2)",
        "self.pool(torch.tanh(self.conv(x) - 0.5) - 0.2)",
        PLANE,
        "batch, channels, filters, size = 128, 64, 128, 128",
    ),
    "48 conv3d scale tanh multiply sigmoid": (
        f"{conv(3)}; {vector('s', 3)}; {vector('b', 3)}",
        "torch.sigmoid(torch.tanh(self.conv(x) * self.s) * self.b)",
        CUBE,
        "batch, channels, filters, depth, size = 128, 3, 16, 16, 64",
    ),
    "51 linear subtract mean logsumexp gelu residual": (
        f"{LINEAR}; self.s = nn.Parameter(torch.randn(filters))",
        "F.gelu(torch.logsumexp(torch.mean(self.linear(x) - self.s, dim=1, keepdim=True), dim=1, "
        "keepdim=True)) + x.clone().detach()",
        ROWS,
        "batch, channels, filters = 2048, 8192, 8192",
    ),
    "52 conv mish by hand batch norm": (
        f"{conv(2)}; self.norm = nn.BatchNorm2d(filters)",
        "y = self.conv(x); self.norm(torch.multiply(torch.tanh(F.softplus(y)), y))",
        PLANE,
        "batch, channels, filters, size = 64, 64, 128, 128",
    ),
    "55 linear pool sum scale": (
        f"{LINEAR}; self.pool = nn.MaxPool1d(2)",
        "torch.sum(self.pool(self.linear(x).unsqueeze(1)).squeeze(1), dim=1) * 0.5",
        ROWS,
        "batch, channels, filters = 128, 32768, 32768",
    ),
    "57 conv relu hardswish by hand": (
        conv(2),
        "y = torch.relu(self.conv(x)); y * torch.clamp((y + 3) / 6, 0, 1)",
        PLANE,
        "batch, channels, filters, size = 128, 8, 64, 128",
    ),
    "65 conv pool sigmoid sum": (
        f"{conv(2)}; self.pool = nn.AvgPool2d(4)",
        "torch.sum(torch.sigmoid(self.pool(self.conv(x))), dim=[1, 2, 3])",
        PLANE,
        "batch, channels, filters, size = 128, 8, 64, 384",
    ),
    "67 conv gelu global mean": (
        conv(2),
        "F.adaptive_avg_pool2d(F.gelu(self.conv(x)), 1).squeeze(-1).squeeze(-1)",
        PLANE,
        "batch, channels, filters, size = 128, 8, 64, 256",
    ),
    "73 conv batch norm scale": (
        f"{conv(2)}; self.norm = nn.BatchNorm2d(filters)",
        "self.norm(self.conv(x)) * 2.0",
        PLANE,
        "batch, channels, filters, size = 128, 8, 64, 128",
    ),
    "82 conv tanh scale bias pool": (
        f"{conv(2)}; {vector('b', 2)}; self.pool = nn.MaxPool2d(4)",
        "self.pool(torch.tanh(self.conv(x)) * 2.0 + self.b)",
        PLANE,
        "batch, channels, filters, size = 128, 8, 64, 256",
    ),
    "87 conv subtract subtract mish": (
        conv(2),
        "F.mish(self.conv(x) - 0.5 - 0.2)",
        PLANE,
        "batch, channels, filters, size = 128, 8, 64, 256",
    ),
    "88 linear group norm swish multiply swish": (
        f"{LINEAR}; self.norm = nn.GroupNorm(groups, filters); self.s = nn.Parameter(torch.randn(filters))",
        "y = self.norm(self.linear(x)); y = y * torch.sigmoid(y) * self.s; y * torch.sigmoid(y)",
        ROWS,
        "batch, channels, filters, groups = 1024, 8192, 8192, 256",
    ),
    "97 linear batch norm bias divide swish": (
        f"{LINEAR}; self.norm = nn.BatchNorm1d(filters); self.b = nn.Parameter(torch.randn(1))",
        "y = (self.norm(self.linear(x)) + self.b) / 1.0; y * torch.sigmoid(y)",
        ROWS,
        "batch, channels, filters = 1024, 8192, 8192",
    ),
    "99 linear gelu softmax": (
        LINEAR,
        "F.softmax(F.gelu(self.linear(x)), dim=1)",
        ROWS,
        "batch, channels, filters = 1024, 8192, 8192",
    ),
    "MLP": (
        "self.a = nn.Linear(channels, hidden); self.b = nn.Linear(hidden, filters)",
        "self.b(torch.relu(self.a(x)))",
        ROWS,
        "batch, channels, hidden, filters = 1024, 4096, 8192, 4096",
    ),
    "MLP of three": (
        "self.a = nn.Linear(channels, hidden); self.b = nn.Linear(hidden, hidden); self.c = nn.Linear(hidden, filters)",
        "self.c(torch.relu(self.b(torch.relu(self.a(x)))))",
        ROWS,
        "batch, channels, hidden, filters = 1024, 4096, 8192, 4096",
    ),
    "linear of batches": (
        LINEAR,
        "F.gelu(self.linear(x))",
        "torch.rand(batch, length, channels)",
        "batch, length, channels, filters = 32, 512, 1024, 4096",
    ),
    "MLP of batches, residual": (
        "self.a = nn.Linear(channels, hidden); self.b = nn.Linear(hidden, channels); self.norm = "
        "nn.LayerNorm(channels)",
        "x + self.b(F.gelu(self.a(self.norm(x))))",
        "torch.rand(batch, length, channels)",
        "batch, length, channels, hidden, filters = 32, 512, 1024, 4096, 16",
    ),
}


def problem(name: str, **sizes: int) -> Problem:
    """Return the module as a KernelBench file, with some sizes replaced."""
    init, forward, inputs, given = MODULES[name]
    names, values = (side.strip().split(", ") for side in given.split("="))
    *before, last = forward.split("; ")
    lines = "\n".join(f"{key} = {sizes.get(key, value)}" for key, value in zip(names, values, strict=True))
    arguments = "x, y" if inputs.count("torch.rand") == 2 else "x"
    body = "\n".join([*(f"        {line}" for line in before), f"        return {last}"])
    source = f"""import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, {", ".join(names)}):
        super().__init__()
{chr(10).join(f"        {line}" for line in init.split("; "))}

    def forward(self, {arguments}):
{body}


{lines}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{", ".join(names)}]
"""
    return Problem(name=name, source=source)
