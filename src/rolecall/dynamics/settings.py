"""The knobs of the dynamics; each default is the recommendation."""

from __future__ import annotations

from dataclasses import dataclass, field

from rolecall.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmSettings:
    """When an alarm is raised. A figure must stay past its bound for `patience` steps (kinds that are rare and sharp
    need one step), and must come well back for as many before the alarm can be raised again.

    `window`: steps that "usual" is taken from. `agree`: share of one verdict from which a verifier counts as always
    saying it, while the share of right answers among those it judged is at least `mixed` and at most 1 - `mixed`.
    `false_alarm`: share of right answers called wrong, over as many of the last steps as hold `right_judged` of them.
    `captured`: share of a policy's gradient mass that one role may take. `entropy_left`: share of the entropy of the
    first steps that must be left. `norm_jump`, `kl_jump`: multiples of the usual value; a KL below `kl_floor` nats a
    token never counts as a jump. `clipped`, `truncated`, `unparsed`: shares of tokens or turns. `moved`: share of the
    weights with a gradient that an update must change. `mismatch`, `mismatch_bfloat16`: mean difference of a
    log-probability between engine and learner, in nats. `chi2`: chi-squared of a token against the sampling policy.
    `aligned`: share of the number of copies that their amplification may reach. `leaked`: by how much the share of a
    role's turns that a classifier knows for its own may fall. `confused`: share of turns in another role's format and
    not in its own. `same_plans`: share of plans that may be one plan for all copies. `copied`: share of wrong answers
    that a correcting role may hand back, over as many of the last steps as hold `wrong_given` of them.

    >>> AlarmSettings().patience
    5
    """

    patience: int = 5
    window: int = 20
    agree: float = 0.98
    mixed: float = 0.1
    false_alarm: float = 0.5
    right_judged: int = 20
    captured: float = 0.9
    entropy_left: float = 0.05
    norm_jump: float = 10.0
    kl_jump: float = 10.0
    kl_floor: float = 0.01
    clipped: float = 0.3
    truncated: float = 0.5
    unparsed: float = 0.5
    moved: float = 0.2
    mismatch: float = 1e-3
    mismatch_bfloat16: float = 0.05
    chi2: float = 1.0
    aligned: float = 0.95
    leaked: float = 0.2
    confused: float = 0.2
    same_plans: float = 0.95
    copied: float = 0.95
    wrong_given: int = 20

    def __post_init__(self) -> None:
        if self.patience < 1 or self.window < 3:
            raise ConfigError(
                f"dynamics.alarms.patience ({self.patience}) must be at least 1 and dynamics.alarms.window "
                f"({self.window}) at least 3"
            )
        for name in ("right_judged", "wrong_given"):
            if getattr(self, name) < 1:
                raise ConfigError(f"dynamics.alarms.{name} is {getattr(self, name)}; wanted 1 answer or more")
        for name in (
            "agree", "false_alarm", "captured", "clipped", "truncated", "unparsed",
            "aligned", "leaked", "confused", "same_plans", "copied",
        ):  # fmt: skip
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ConfigError(f"dynamics.alarms.{name} is {getattr(self, name)}; wanted a share in (0, 1]")
        if self.norm_jump <= 1.0 or self.kl_jump <= 1.0:
            raise ConfigError(
                f"dynamics.alarms.norm_jump ({self.norm_jump}) and kl_jump ({self.kl_jump}) are multiples of what is "
                "usual; wanted more than 1"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class DynamicsSettings:
    """What is measured of each role beside the training itself; nothing of it changes a weight.

    `gradients`: gradients by role, their cosines and shares, the update applied, persistence. They are exact and need
    flat float32 buffers of the trained parameters (two a role, and one for the weights before the update); of a policy
    with more than `max_parameters` trained parameters each role's gradient is kept as a count-sketch, within whose
    bound its cosines are (`sketch.py`). `persistence_decay`: of the running mean of a role's gradient, by optimizer
    step.

    `probe_every_steps`: KL to the base and to the last version on a fixed probe set, at step 1 and every so many steps
    (0: never). The set is the first `probe_turns` turns a role that the run sees, spread over the step, and at most
    `probe_positions` tokens of them; fewer where those times the vocabulary would exceed `max_probe_logits`.

    `copies_every_steps`: amplification of the copies of a role with its control, at step 1 and every so many steps (0:
    never). Costs one more forward and backward pass over the roles that have copies, in the steps in which it is due.

    `leakage_turns`: turns a role in a step, spread over it, that the classifier of roles is asked about (0: none);
    `leakage_reference`: turns a role of the first steps that it is fitted on.

    >>> DynamicsSettings().probe_every_steps
    5
    """

    gradients: bool = True
    max_parameters: int = 2**27
    persistence_decay: float = 0.9
    probe_every_steps: int = 5
    probe_turns: int = 8
    probe_positions: int = 128
    max_probe_logits: int = 2**25
    copies_every_steps: int = 20
    leakage_turns: int = 64
    leakage_reference: int = 256
    alarms: AlarmSettings = field(default_factory=AlarmSettings)

    def __post_init__(self) -> None:
        if not 0.0 <= self.persistence_decay < 1.0:
            raise ConfigError(f"dynamics.persistence_decay is {self.persistence_decay}; wanted 0 or more and below 1")
        for name in ("probe_every_steps", "copies_every_steps", "max_parameters", "leakage_turns"):
            if getattr(self, name) < 0:
                raise ConfigError(f"dynamics.{name} is {getattr(self, name)}; wanted 0 or more")
        for name in ("probe_turns", "probe_positions", "max_probe_logits", "leakage_reference"):
            if getattr(self, name) < 1:
                raise ConfigError(f"dynamics.{name} is {getattr(self, name)}; wanted 1 or more")

    def probe_due(self, step: int) -> bool:
        """Whether the KL on the probe set is measured in this step."""
        return _due(self.probe_every_steps, step)

    def copies_due(self, step: int) -> bool:
        """Whether the amplification of copies is measured in this step."""
        return self.gradients and _due(self.copies_every_steps, step)


def _due(every: int, step: int) -> bool:
    return every > 0 and step > 0 and (step == 1 or step % every == 0)
