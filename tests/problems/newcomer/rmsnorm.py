import torch


class RMSNorm(torch.nn.Module):
    """Gemma style: weight is an offset from one, kept in fp32, input bf16."""

    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.randn(dim) * 0.1)

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        output = self._norm(x.float())
        output = output * (1.0 + self.weight.float())
        return output.type_as(x)


Model = RMSNorm


def get_init_inputs():
    return [2304]


def get_inputs():
    return [torch.randn(2, 4096, 2304, dtype=torch.bfloat16)]
