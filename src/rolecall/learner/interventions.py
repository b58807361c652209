"""Interventions where they act: between "the gradient is whole" and "clip", and after the optimizer step.

On the gradient: g = sum of s_r g_r, and AdamW goes on with that. AdamW divides by the size that gradients have, so a
scale that all of g has is undone. On the update: with h = sum of s_r g_r (and g = sum of g_r, which AdamW still sees)

    m' <- beta1 m' + (1 - beta1) h,   v' <- beta2 v' + (1 - beta2) h^2
    U = n m'^ / (sqrt(max(v^, v'^)) + eps)        instead of        u = m^ / (sqrt(v^) + eps)

n is the largest `lr_scale` of the policy's roles (1 for those without), and every s_r is taken relative to it. v is the
second moment of the unscaled gradient, so that a scale is not undone. v' counts only where it is larger: where roles
pull against each other, their sum and with it v are far smaller than each of them, and scaling one of them would else
move a weight without bound. So U = u when every s_r = 1; U = s u when all roles have the scale s; and U is never larger
than n times what AdamW could do. Weight decay belongs to the policy and is not scaled.

Memory, float32 and flat over the trained parameters: one buffer a damped role (its mean); two for scaled updates, none
where a policy of one role has nothing but an `lr_scale`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rolecall.dynamics.role_gradients import RoleGradients, flat_gradients, inner_product, vector_norm
from rolecall.interventions.formulas import (
    balance_scales,
    coherence,
    copy_shares,
    damping_scale,
    mean_weight,
)
from rolecall.interventions.settings import Intervention
from rolecall.learner.objective import Tally
from rolecall.records import Sample


class Interventions:
    """The interventions on one policy and their state. Each optimizer step: `weights` on its samples, `before_clip` on
    its whole gradient, `after_step` once AdamW has moved the weights. Without a table every call leaves all as it is.

    `roles`: the trained roles of the policy.
    """

    def __init__(
        self,
        table: Mapping[str, Intervention],
        roles: Sequence[str],
        parameters: Sequence[nn.Parameter],
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self.table = {role: one for role, one in table.items() if one.acts}
        self.parameters, self.optimizer = list(parameters), optimizer
        rates = {role: table[role].lr_scale if role in table else 1.0 for role in [*roles, *table]}
        self.rate = max(rates.values(), default=1.0)  # n
        self.on_update = any(one.on_update for one in self.table.values())
        common = len(set(rates.values())) == 1 and not any(
            one.scales and one.apply_to == "update" for one in self.table.values()
        )
        self.only_rate = self.on_update and common
        self.means: dict[str, Tensor] = {}  # of each damped role's gradients
        self.first: Tensor | None = None  # m'
        self.second: Tensor | None = None  # v'
        self._shares: dict[int, float] = {}  # 1 / N of each sample of the update, by id
        self._copies: dict[str, float] = {}  # mean 1 / N by role, in this optimizer step
        self._wanted: Tensor | None = None  # h, before clipping

    @property
    def needs_gradients(self) -> bool:
        """Whether each role's own gradient must be kept until the optimizer step."""
        return bool(self.table)

    def begin(self, samples: Sequence[Sample]) -> None:
        """Call with all samples of an update, before they are dealt to optimizer steps."""
        if any(one.average_copies for one in self.table.values()):
            shares = copy_shares(samples)
            self._shares = {id(sample): share for sample, share in zip(samples, shares, strict=True)}

    def weights(self, samples: Sequence[Sample], weights: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
        """The token weights of an optimizer step; those of copies that are averaged on the gradient are divided."""
        self._copies = {}
        for role, one in self.table.items():
            own = [self._shares[id(sample)] for sample in samples if sample.role == role] if one.average_copies else []
            if own:
                self._copies[role] = math.fsum(own) / len(own)
        divided = {role for role in self._copies if self.table[role].apply_to == "gradient"}
        return [
            tuple(weight * self._shares[id(sample)] for weight in row) if sample.role in divided else row
            for sample, row in zip(samples, weights, strict=True)
        ]

    @torch.no_grad()
    def before_clip(self, gradients: RoleGradients, figures: Tally) -> float:
        """Scale the roles' gradients and update the means; returns the norm of what is then to be clipped. `figures`
        gains `interventions/<role>/...`."""
        if not self.table:
            return gradients.norm
        flat = {role: gradients.flat(role) for role in gradients.roles}  # before any of them is scaled where it lies
        balanced = self._balance(flat, figures)
        on_gradient = dict(balanced)
        on_update = dict.fromkeys(gradients.roles, 1.0 / self.rate)
        for role in (role for role in gradients.roles if role in self.table):
            one, copies = self.table[role], self._copies.get(role, 1.0)
            damped = self._damp(role, flat[role], figures) if one.damping > 0.0 else 1.0
            on_update[role] *= one.lr_scale
            if one.apply_to == "gradient":  # where copies are averaged in the weights of tokens
                on_gradient[role] = on_gradient.get(role, 1.0) * damped
            else:
                on_update[role] *= damped * copies
            if one.average_copies:
                figures.add(f"interventions/{role}/copies", 1.0 / copies, 1.0)
            figures.add(f"interventions/{role}/scale", balanced.get(role, 1.0) * damped * copies * one.lr_scale, 1.0)
        norm = self._scale_gradients(flat, gradients.norm, on_gradient)
        if self.on_update and not self.only_rate:
            self._wanted = flat_gradients(self.parameters)
            for role, scale in on_update.items():
                if scale != 1.0:
                    self._wanted.add_(flat[role], alpha=(scale - 1.0) * on_gradient.get(role, 1.0))
        return norm

    @torch.no_grad()
    def after_step(self, clip: float) -> None:
        """Replace AdamW's update by the wanted one. `clip`: what clipping has multiplied the gradient by."""
        if not self.on_update:
            return
        if self._wanted is not None:
            self._wanted.mul_(clip)
        if self._wanted is not None and self.first is None:
            self.first, self.second = torch.zeros_like(self._wanted), torch.zeros_like(self._wanted)
        places = {id(parameter): where for parameter, where in self._slices()}
        for group in self.optimizer.param_groups:
            (beta1, beta2), eps, rate = group["betas"], group["eps"], float(group["lr"])
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.optimizer.state[parameter]
                steps = float(state["step"])
                one, two = 1.0 - beta1**steps, 1.0 - beta2**steps
                made = state["exp_avg"] / one / (state["exp_avg_sq"] / two).sqrt().add_(eps)
                if self._wanted is None or self.first is None or self.second is None:
                    parameter.add_(made, alpha=rate * (1.0 - self.rate))
                    continue
                where = places[id(parameter)]
                wanted, first, second = (t[where].view_as(parameter) for t in (self._wanted, self.first, self.second))
                first.lerp_(wanted, 1.0 - beta1)
                second.mul_(beta2).addcmul_(wanted, wanted, value=1.0 - beta2)
                size = torch.maximum(state["exp_avg_sq"], second).div_(two).sqrt_().add_(eps)
                parameter.add_(made, alpha=rate).sub_(first / one / size, alpha=rate * self.rate)
        self._wanted = None

    def state_dict(self) -> dict[str, Any]:
        return {"means": dict(self.means), "first": self.first, "second": self.second}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        device = self.parameters[0].device
        self.means = {role: tensor.to(device, copy=True) for role, tensor in state["means"].items()}
        moments = (state["first"], state["second"])
        self.first, self.second = (None if one is None else one.to(device, copy=True) for one in moments)

    def _balance(self, flat: Mapping[str, Tensor], figures: Tally) -> dict[str, float]:
        """The scales of the roles that are balanced, over all roles that have a gradient in this step."""
        wanted = [role for role in flat if role in self.table and self.table[role].balance_mass]
        if not wanted:
            return {}
        scales = balance_scales({role: vector_norm(gradient) for role, gradient in flat.items()})
        for role in wanted:
            figures.add(f"interventions/{role}/mass_scale", scales[role], 1.0)
        return {role: scales[role] for role in wanted}

    def _damp(self, role: str, gradient: Tensor, figures: Tally) -> float:
        """The damping of one role's gradient, after which its mean takes the gradient in; the first one starts it."""
        one, mean = self.table[role], self.means.get(role)
        if mean is None:
            self.means[role] = gradient.clone()
            return 1.0
        c = coherence(inner_product(gradient, mean), vector_norm(gradient), vector_norm(mean))
        s = damping_scale(c, one.damping, one.damping_floor)
        weight = mean_weight(one.damping_window)
        mean.mul_(1.0 - weight).add_(gradient, alpha=weight * (s if one.damping_ema == "after" else 1.0))
        for name, figure in (("coherence", c), ("damping", s), ("mean_norm", vector_norm(mean))):
            figures.add(f"interventions/{role}/{name}", figure, 1.0)
        return s

    def _scale_gradients(self, flat: Mapping[str, Tensor], norm: float, scales: Mapping[str, float]) -> float:
        """g <- sum of s_r g_r, and its norm; `norm` is what it was."""
        changed = {role: scale for role, scale in scales.items() if scale != 1.0}
        if not changed:
            return norm
        if len(flat) == 1:
            (scale,) = changed.values()
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(scale)
            return norm * scale
        for role, scale in changed.items():
            for parameter, where in self._slices():
                if parameter.grad is not None:
                    parameter.grad.add_(flat[role][where].view_as(parameter), alpha=scale - 1.0)
        return vector_norm(flat_gradients(self.parameters))

    def _slices(self) -> Iterator[tuple[nn.Parameter, slice]]:
        offset = 0
        for parameter in self.parameters:
            yield parameter, slice(offset, offset + parameter.numel())
            offset += parameter.numel()
