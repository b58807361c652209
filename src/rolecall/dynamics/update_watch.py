"""What an optimizer step does along each role's gradient: the update that reached the weights, and persistence.

Only reads: weights, gradients and random numbers are as they would be without it. Memory: one flat float32 buffer a
role for its running mean, and one for the weights before the optimizer step while it lasts. Above `max_parameters` the
running means and the gradients that they are compared with are sketches (`sketch.py`), a few megabytes a role.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rolecall.dynamics.formulas import ratio
from rolecall.dynamics.role_gradients import RoleGradients, flat_gradients, flatten, inner_product, vector_norm
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.dynamics.sketch import CountSketch


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """One optimizer step as it reached the weights, delta = after - before. `moved`: the share of the weights with a
    gradient that changed at all; `along`: -<g_r, delta> by role."""

    update_norm: float = 0.0
    weight_norm: float = 0.0
    moved: float = 0.0
    along: Mapping[str, float] = field(default_factory=dict)


class UpdateWatch:
    """Watches the optimizer steps of one policy. `seconds` is what it has cost since it was last set to 0, and
    `copies_seconds` what passes over the copies of roles have."""

    def __init__(self, parameters: Sequence[nn.Parameter], settings: DynamicsSettings | None = None) -> None:
        self.settings = settings = settings or DynamicsSettings()
        self.parameters = list(parameters)
        self.gradients = settings.gradients
        size = sum(parameter.numel() for parameter in self.parameters)
        self.exact = settings.gradients and size <= settings.max_parameters
        self.sketch = CountSketch() if settings.gradients and not self.exact else None
        self.decay = settings.persistence_decay
        self.means: dict[str, Tensor] = {}
        self.seconds = self.copies_seconds = 0.0
        self.clock: Callable[[], float] = time.perf_counter
        self._held: Tensor | None = None
        self._vectors: dict[str, Tensor] = {}  # of the roles of this optimizer step: gradients, or their sketches

    def collect(self, roles: Sequence[str], *, keep: bool = False) -> RoleGradients:
        """Where the gradients of an optimizer step are collected; `keep`: somebody needs each role's own."""
        return RoleGradients(self.parameters, roles, keep=self.exact or keep, sketch=self.sketch)

    @torch.no_grad()
    def before_step(self, gradients: RoleGradients) -> dict[str, float]:
        """Call once the gradient is whole and not clipped yet. Returns the persistence of each role that has a past:
        the cosine of its gradient with the running mean of its earlier ones."""
        if not self.gradients:
            return {}
        with self.timed():
            self._vectors, self._held = self._compared(gradients), flatten(self.parameters)
            found: dict[str, float] = {}
            for role, gradient in self._vectors.items():
                mean = self.means.get(role)
                if mean is None:
                    self.means[role] = gradient.clone()
                    continue
                norms = inner_product(gradient, gradient) * inner_product(mean, mean)
                found[role] = ratio(inner_product(gradient, mean), math.sqrt(norms))
                mean.lerp_(gradient, 1.0 - self.decay)
            return found

    @torch.no_grad()
    def after_step(self) -> Applied | None:
        """Call after the optimizer step, with the gradients still there; None when there is nothing to compare with."""
        if self._held is None:
            return None
        with self.timed():
            before, vectors = self._held, self._vectors
            self._held, self._vectors = None, {}
            weight_norm = vector_norm(before)
            delta = flatten(self.parameters).sub_(before)
            asked = flat_gradients(self.parameters).ne_(0)
            asked_all = int(torch.count_nonzero(asked))
            moved = int(torch.count_nonzero(asked.mul_(delta)))
            short = delta if self.sketch is None else self.sketch(delta)
            return Applied(
                update_norm=vector_norm(delta),
                weight_norm=weight_norm,
                moved=ratio(moved, asked_all),
                along={role: -inner_product(vector, short) for role, vector in vectors.items()},
            )

    def _compared(self, gradients: RoleGradients) -> dict[str, Tensor]:
        """The roles' gradients before they are scaled or clipped, or their sketches."""
        if self.sketch is not None:
            return {
                role: gradients.sketches[role] if role in gradients.sketches else self.sketch(gradients.flat(role))
                for role in gradients.roles
            }
        if len(gradients.roles) == 1:  # clipping will scale the gradient where it is
            gradients.buffers = {role: gradients.flat(role) for role in gradients.roles}
        return {role: gradients.flat(role) for role in gradients.roles}

    @contextmanager
    def timed_copies(self) -> Iterator[None]:
        begun = self.clock()
        try:
            yield
        finally:
            self.copies_seconds += self.clock() - begun

    @contextmanager
    def timed(self) -> Iterator[None]:
        begun = self.clock()
        try:
            yield
        finally:
            self.seconds += self.clock() - begun

    def state_dict(self) -> dict[str, Any]:
        """The running means: what a resumed run needs in order to go on with the same figures."""
        return {"means": dict(self.means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Running means of another form (a sketch where there were none, or the other way round) begin again."""
        device, size = self.parameters[0].device, sum(parameter.numel() for parameter in self.parameters)
        wanted = 0 if not self.gradients else size if self.sketch is None else self.sketch.width
        kept = {role: mean for role, mean in state["means"].items() if mean.numel() == wanted}
        self.means = {role: mean.to(device, copy=True) for role, mean in kept.items()}
