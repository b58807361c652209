"""Each role's own gradient within a policy's update, exactly.

Microbatches hold one role. After a role's last microbatch its accumulated gradient moves into one flat float32 buffer,
and the accumulators start again from zero; at the end the buffers are added up and written back. So the role gradients
add up to the policy's gradient by construction. Cost: one buffer of the trained parameters for each role, and one pass
over them; a policy with one role in the step keeps its gradient where it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class RoleGradients:
    """Collects the gradients of `roles`, in this order, over one optimizer step."""

    def __init__(self, parameters: Sequence[nn.Parameter], roles: Sequence[str]) -> None:
        self.parameters = list(parameters)
        self.roles = list(roles)
        self.buffers: dict[str, Tensor] = {}
        self._touched: set[int] = set()

    def take(self, role: str) -> None:
        """Call after the last backward pass of `role`: its gradient is what has accumulated since the last call."""
        if role not in self.roles or role in self.buffers:
            raise ValueError(f"role {role!r} is not one of {self.roles}, or its gradient was taken already")
        if len(self.roles) == 1:
            return
        grads = [parameter.grad for parameter in self.parameters]
        self._touched |= {index for index, grad in enumerate(grads) if grad is not None}
        self.buffers[role] = torch.cat(
            [
                torch.zeros(parameter.numel(), dtype=torch.float32, device=parameter.device)
                if grad is None
                else grad.detach().reshape(-1).float()
                for parameter, grad in zip(self.parameters, grads, strict=True)
            ]
        )
        for parameter in self.parameters:
            parameter.grad = None

    def finish(self) -> list[list[float]]:
        """Write the sum back into the parameters' gradients; returns the inner products of the roles, [role][role]."""
        if len(self.roles) == 1:
            grads = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            squares = [grad.detach().float().square().sum(dtype=torch.float64) for grad in grads]
            return [[float(torch.stack(squares).sum()) if squares else 0.0]]
        buffers = [self.buffers[role] for role in self.roles if role in self.buffers]
        gram = [[0.0] * len(buffers) for _ in buffers]
        for i, left in enumerate(buffers):
            for j in range(i, len(buffers)):
                gram[i][j] = gram[j][i] = inner_product(left, buffers[j])
        total = buffers[0].clone()
        for buffer in buffers[1:]:
            total += buffer
        offset = 0
        for index, parameter in enumerate(self.parameters):
            size = parameter.numel()
            if index in self._touched:
                parameter.grad = total[offset : offset + size].view_as(parameter).to(parameter.dtype)
            offset += size
        return gram


def inner_product(left: Tensor, right: Tensor, chunk: int = 1 << 24) -> float:
    """<left, right> of two flat float32 vectors: pairwise float32 sums within chunks, float64 across them."""
    total = torch.zeros((), dtype=torch.float64, device=left.device)
    for start in range(0, left.numel(), chunk):
        total += torch.dot(left[start : start + chunk], right[start : start + chunk]).double()
    return float(total)
