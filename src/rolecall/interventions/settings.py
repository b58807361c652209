"""The knobs of `[interventions.<role>]`; without a table nothing of a role is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rolecall.algorithms.loss import Loss
from rolecall.errors import ConfigError, nearest

ApplyTo = Literal["update", "gradient"]
DampingMean = Literal["after", "before"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Intervention:
    """What is done about one role. Each part is off by default; equations stand in `formulas.py`.

    `kl_anchor`: coefficient of a KL to the policy before training, in this role's loss alone. `damping`: how much of
    the role's pull is taken away while it keeps its direction, in [0, 1]; `damping_window`: optimizer steps that the
    direction is a mean over; `damping_floor`: the least that is left; `damping_ema`: whether that mean is of the
    gradients `after` damping, as published, or `before` it, so that strong damping does not hold the mean back when the
    role turns. `balance_mass`: the role pulls as hard
    as the median of its policy's roles; always on the gradient, where the roles of a policy are weighed against each
    other. `average_copies`: copies side by side pull like one. `lr_scale`: the role's learning rate, as a multiple of
    its policy's; always on the update.

    `apply_to`: what damping and averaging scale, the role's part of the AdamW `update`, or its `gradient` before
    clipping, as published. AdamW does not notice a scale that the whole gradient has: in a policy of one role
    `gradient` does next to nothing.

    >>> Intervention(damping=0.3).scales
    True
    """

    kl_anchor: float = 0.0
    damping: float = 0.0
    damping_window: int = 128
    damping_floor: float = 0.1
    damping_ema: DampingMean = "after"
    balance_mass: bool = False
    average_copies: bool = False
    lr_scale: float = 1.0
    apply_to: ApplyTo = "update"

    def __post_init__(self) -> None:
        for name, wanted, right in (
            ("kl_anchor", "0 (off) or a finite number above it", 0.0 <= self.kl_anchor < float("inf")),
            ("damping", "a share in [0, 1]", 0.0 <= self.damping <= 1.0),
            ("damping_window", "2 optimizer steps or more", self.damping_window >= 2),
            ("damping_floor", "a share in [0, 1]", 0.0 <= self.damping_floor <= 1.0),
            ("damping_ema", "'after' or 'before'", self.damping_ema in get_args(DampingMean)),
            (
                "lr_scale",
                "a finite multiple above 0 (train_roles leaves a role out)",
                0.0 < self.lr_scale < float("inf"),
            ),
            ("apply_to", "'update' or 'gradient'", self.apply_to in get_args(ApplyTo)),
        ):
            if not right:
                raise ConfigError(f"interventions: {name} is {getattr(self, name)!r}; wanted {wanted}")
        if self.damping == 1.0 and self.damping_floor == 0.0:
            raise ConfigError(
                "interventions: damping = 1 with damping_floor = 0 freezes a role that keeps its direction, and frozen "
                "weights keep the direction of their gradient; set damping_floor above 0, or damping below 1"
            )

    @property
    def scales(self) -> bool:
        """Whether any part multiplies the role's gradient or update at `apply_to`."""
        return self.damping > 0.0 or self.average_copies

    @property
    def on_update(self) -> bool:
        """Whether the role's part of the update is scaled."""
        return self.lr_scale != 1.0 or (self.scales and self.apply_to == "update")

    @property
    def acts(self) -> bool:
        """Whether it acts on the gradient or the update (an anchor is part of the loss)."""
        return self.scales or self.balance_mass or self.on_update

    @property
    def idle(self) -> str | None:
        """A setting that says something which nothing reads."""
        unsaid = Intervention()
        if self.damping == 0.0:
            for name in ("damping_window", "damping_floor", "damping_ema"):
                if getattr(self, name) != getattr(unsaid, name):
                    return name
        return "apply_to" if self.apply_to != unsaid.apply_to and not self.scales else None


def check_interventions(
    table: Mapping[str, Intervention],
    *,
    roles: Mapping[str, str],
    train_roles: Collection[str],
    loss: Loss,
    plain_bfloat16: Collection[str] = (),
) -> None:
    """`ConfigError` for a table that names no trained role, or asks for what has no meaning. `roles`: every role and
    its policy; `plain_bfloat16`: policies whose weights are kept in bfloat16."""
    for role, one in table.items():
        where = f"interventions.{role}"
        if role not in roles:
            raise ConfigError(f"[{where}]: the workflow has no such role{nearest(role, roles)}")
        if role not in train_roles:
            raise ConfigError(f"[{where}]: role {role!r} is not trained, so there is nothing to act on; leave it out")
        if (idle := one.idle) is not None:
            needs = "damping above 0" if idle.startswith("damping") else "damping or average_copies"
            raise ConfigError(f"{where}.{idle} is set and nothing reads it; it needs {needs}")
        policy = roles[role]
        sharers = [other for other in train_roles if roles[other] == policy]
        if one.balance_mass and len(sharers) < 2:
            raise ConfigError(
                f"{where}.balance_mass: policy {policy!r} trains no other role, so there is nothing to balance with; "
                "leave it out (gradients of different policies are not comparable)"
            )
        if one.balance_mass and one.average_copies and one.apply_to == "gradient":
            raise ConfigError(
                f"{where} averages copies on the gradient and balances the role, which sets the norm of its gradient "
                "whatever it was; leave one of the two out, or set apply_to = 'update'"
            )
        if one.on_update and policy in plain_bfloat16:
            raise ConfigError(
                f"{where} scales the update of policy {policy!r}, whose weights are kept in bfloat16, where most of a "
                "scaled update is rounded away; set learner.precision = 'bfloat16', or apply_to = 'gradient'"
            )
        if one.kl_anchor and (loss.kl_against != "base" or role in loss.kl_by_role):
            raise ConfigError(
                f"{where}.kl_anchor and the algorithm's loss both say what role {role!r} is anchored to "
                f"(loss.kl_against = {loss.kl_against!r}, loss.kl_by_role = {dict(loss.kl_by_role)}); keep one of them"
            )


def anchored(loss: Loss, table: Mapping[str, Intervention]) -> Loss:
    """I1 of the workflow study (arXiv 2605.24202): L_role + kl_anchor * KL(pi || pi before training) for the roles that
    have an anchor, by the estimator of the loss (k3: exp(d) - d - 1, d = log pi_base - log pi). Others are unchanged.

    >>> anchored(Loss(), {"voter": Intervention(kl_anchor=0.01)}).kl("voter")
    0.01
    """
    anchors = {role: one.kl_anchor for role, one in table.items() if one.kl_anchor}
    return replace(loss, kl_by_role={**loss.kl_by_role, **anchors}) if anchors else loss
