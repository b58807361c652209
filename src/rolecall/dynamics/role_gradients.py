"""Each role's own gradient within a policy's update, exactly or as a sketch.

Microbatches hold one role. After a role's last microbatch its accumulated gradient moves into one flat float32 buffer,
and the accumulators start again from zero; at the end the buffers are added up and written back. So the role gradients
add up to the policy's gradient by construction. Cost: one buffer of the trained parameters for each role, and one pass
over them; a policy with one role in the step keeps its gradient where it is. With `keep=False` nothing is kept but the
sum, which is formed in the same order: the gradient is the same bit for bit. With a `sketch` besides, each role's own
gradient is kept as its sketch and its norm: norms are exact then, and inner products within the bound of the sketch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from rolecall.dynamics.sketch import CountSketch


class RoleGradients:
    """Collects the gradients of `roles`, in this order, over one optimizer step."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        roles: Sequence[str],
        *,
        keep: bool = True,
        sketch: CountSketch | None = None,
    ) -> None:
        self.parameters = list(parameters)
        self.roles = list(roles)
        self.keep = keep
        self.sketch = None if keep else sketch
        self.norm = 0.0  # of the sum; known after `finish`
        self.buffers: dict[str, Tensor] = {}
        self.sketches: dict[str, Tensor] = {}
        self._norms: dict[str, float] = {}  # of the roles that are sketched
        self._taken: list[str] = []
        self._total: Tensor | None = None
        self._touched: set[int] = set()

    def take(self, role: str) -> None:
        """Call after the last backward pass of `role`: its gradient is what has accumulated since the last call."""
        if role not in self.roles or role in self._taken:
            raise ValueError(f"role {role!r} is not one of {self.roles}, or its gradient was taken already")
        self._taken.append(role)
        if len(self.roles) == 1:
            return
        self._touched |= {index for index, parameter in enumerate(self.parameters) if parameter.grad is not None}
        buffer = take_gradients(self.parameters)
        if self.keep:
            self.buffers[role] = buffer
        if self.sketch is not None:
            self.sketches[role] = self.sketch(buffer)
            self._norms[role] = vector_norm(buffer)
        if self._total is None:
            self._total = buffer.clone() if self.keep else buffer
        else:
            self._total += buffer

    def finish(self) -> list[list[float]]:
        """Write the sum back into the parameters' gradients; returns the inner products of the roles, [role][role], or
        nothing when no role's own gradient is kept."""
        if len(self.roles) == 1:
            grads = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            squares = [grad.detach().float().square().sum(dtype=torch.float64) for grad in grads]
            energy = float(torch.stack(squares).sum()) if squares else 0.0
            self.norm = math.sqrt(energy)
            return [[energy]] if self.keep or self.sketch is not None else []
        assert self._total is not None
        total, offset = self._total, 0
        for index, parameter in enumerate(self.parameters):
            size = parameter.numel()
            if index in self._touched:
                parameter.grad = total[offset : offset + size].view_as(parameter).to(parameter.dtype)
            offset += size
        self.norm = vector_norm(total)
        kept = self.buffers or self.sketches
        gram = [[0.0] * len(kept) for _ in kept]
        for i, left in enumerate(kept):
            for j, right in enumerate(list(kept)[i:], i):
                gram[i][j] = gram[j][i] = self._inner(left, right)
        return gram

    def _inner(self, left: str, right: str) -> float:
        """<g_left, g_right>; of sketches as they have it, but no more than the exact norms allow."""
        if left in self.buffers:
            return inner_product(self.buffers[left], self.buffers[right])
        most = self._norms[left] * self._norms[right]
        if left == right:
            return most
        return max(-most, min(most, inner_product(self.sketches[left], self.sketches[right])))

    def flat(self, role: str) -> Tensor:
        """The role's gradient as one flat float32 vector; after `finish`, and before the gradient is clipped."""
        return self.buffers[role] if role in self.buffers else flat_gradients(self.parameters)


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """One flat float32 copy of all tensors, end to end."""
    return torch.cat([tensor.detach().reshape(-1).float() for tensor in tensors])


def flat_gradients(parameters: Iterable[nn.Parameter]) -> Tensor:
    """One flat float32 copy of the accumulated gradients, 0 where a parameter has none."""
    return flatten(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters)


def take_gradients(parameters: Sequence[nn.Parameter]) -> Tensor:
    """`flat_gradients`, after which the accumulators start again from zero."""
    flat = flat_gradients(parameters)
    for parameter in parameters:
        parameter.grad = None
    return flat


def vector_norm(flat: Tensor) -> float:
    """The Euclidean norm of a flat float32 vector, as exact as `inner_product`."""
    return math.sqrt(inner_product(flat, flat))


def inner_product(left: Tensor, right: Tensor, chunk: int = 1 << 18) -> float:
    """<left, right> of two flat float32 vectors: float32 sums within chunks, float64 across them.

    The chunks are short because a float32 sum on a CPU is not pairwise: over 2^24 numbers in one piece it was off by
    6e-5 of the whole for noise and by 9e-4 for equal numbers, in chunks of 2^18 by 1e-7 and 2e-5.
    """
    total = torch.zeros((), dtype=torch.float64, device=left.device)
    for start in range(0, left.numel(), chunk):
        total += torch.dot(left[start : start + chunk], right[start : start + chunk]).double()
    return float(total)
