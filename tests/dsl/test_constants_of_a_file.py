"""Modules whose forward reads tensors that are neither inputs nor parameters: refused in words, or planned."""

from __future__ import annotations

import pytest

from workbench import problems
from workbench.problems import inspection
from workbench.proposers.recognition import Unrecognised, recognise

FILE = """import torch

{head}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.W = torch.ones(128, 128)

    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.rand({shape})]
"""


@pytest.mark.parametrize(
    ("head", "body", "shape"),
    [
        ("W = torch.randn(128, 128)", "torch.relu(x @ W)", "256, 128"),
        ("", "torch.relu(x @ self.W)", "256, 128"),
        ("MEAN = torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)", "(x - MEAN) / 2", "4, 3, 32, 32"),
        ("W = torch.randn(128, 128)", "W + 0", "4, 4"),
    ],
)
def test_a_tensor_of_the_file_is_no_input_of_a_kernel(head: str, body: str, shape: str) -> None:
    facts = inspection.inspect(problems.load(FILE.format(head=head, body=body, shape=shape)))
    with pytest.raises(Unrecognised, match="no kernel for"):
        recognise(facts)
