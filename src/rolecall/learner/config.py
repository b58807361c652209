"""The knobs of a learner; each default is the recommendation. Which loss it minimises is `algorithms.loss.Loss`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from rolecall.algorithms.loss import Loss
from rolecall.errors import ConfigError, nearest

RatioAgainst = Literal["sampled", "last"]
Schedule = Literal["constant", "cosine", "linear"]
Precision = Literal["float32", "bfloat16", "bfloat16_plain"]
OnFailure = Literal["skip", "stop"]
OptimizerSteps = Literal["one", "fixed_minibatch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerConfig:
    """How one policy is optimised.

    `precision`: `float32`; `bfloat16` computes in bfloat16 and keeps trained weights, gradients and moments in float32
    (frozen base weights of adapters are bfloat16); `bfloat16_plain` keeps all of them in bfloat16, where updates
    smaller than about 1/256 of a weight are lost. `schedule_steps`: optimizer steps over which `cosine` and `linear`
    go from `lr` to `min_lr_ratio * lr` (0: a run sets it to its own length). `microbatch_tokens` bounds rows times the
    longest row. A step whose loss or gradient is not finite, or which runs out of memory, is skipped and counted, or
    stops the run (`on_nonfinite`).
    Weight decay leaves out vectors (norms, biases).
    `ratio_against`: importance ratios are taken to the log-probabilities as sampled, or to the learner's own at the
    start of the update (`last`, which `Loss.correction` implies). `skip_zero_advantage` spares the computation of
    samples whose every loss term is 0, but for the share that `Loss.probe_share` names. `role_weights` multiplies the
    loss of a role and leaves every denominator as it is.
    `optimizer_steps`: `one` makes `minibatches` optimizer steps in a training step, one as it comes, however many
    trajectories there are; `fixed_minibatch` as many as they fill minibatches of `minibatch_sequences`, rounded to the
    nearest and at least one, so that a policy whose role has three copies makes three to another's one (the workflow
    study, arXiv 2605.24202). Nobody knows beforehand how many that makes, so `warmup_steps` and `schedule_steps` then
    count training steps, and policies with more optimizer steps follow the same schedule.

    >>> LearnerConfig().lr
    1e-05
    """

    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    schedule: Schedule = "constant"
    schedule_steps: int = 0
    min_lr_ratio: float = 0.0
    minibatches: int = 1
    optimizer_steps: OptimizerSteps = "one"
    minibatch_sequences: int = 512
    microbatch_tokens: int = 16384
    precision: Precision = "float32"
    gradient_checkpointing: bool = False
    on_nonfinite: OnFailure = "stop"
    ratio_against: RatioAgainst = "sampled"
    skip_zero_advantage: bool = True
    role_weights: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("learner.schedule", self.schedule, get_args(Schedule))
        _one_of("learner.precision", self.precision, get_args(Precision))
        _one_of("learner.optimizer_steps", self.optimizer_steps, get_args(OptimizerSteps))
        _one_of("learner.on_nonfinite", self.on_nonfinite, get_args(OnFailure))
        _one_of("learner.ratio_against", self.ratio_against, get_args(RatioAgainst))
        for role, weight in self.role_weights.items():
            if not 0.0 <= weight < float("inf"):
                raise ConfigError(f"learner.role_weights.{role} is {weight}; wanted 0 or a finite number above it")
        if not (0 < self.lr < math.inf and self.max_grad_norm > 0):
            raise ConfigError(
                f"learner.lr ({self.lr}) and learner.max_grad_norm ({self.max_grad_norm}) must be above 0"
            )
        for name, least in (("warmup_steps", 0), ("schedule_steps", 0), ("weight_decay", 0.0), ("eps", 0.0)):
            if not least <= getattr(self, name) < math.inf:
                raise ConfigError(f"learner.{name} is {getattr(self, name)}; wanted {least} or more")
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ConfigError(f"learner.betas are {list(self.betas)}; wanted two numbers in [0, 1)")
        if not 0.0 <= self.min_lr_ratio <= 1.0:
            raise ConfigError(f"learner.min_lr_ratio is {self.min_lr_ratio}; wanted a share of lr in [0, 1]")
        for name in ("minibatches", "minibatch_sequences", "microbatch_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"learner.{name} is {getattr(self, name)}; wanted at least 1")
        if self.optimizer_steps == "fixed_minibatch" and self.minibatches != 1:
            raise ConfigError(
                f"learner.minibatches = {self.minibatches} and learner.optimizer_steps = 'fixed_minibatch' contradict "
                "each other: set the size, learner.minibatch_sequences, and leave minibatches out"
            )
        if self.schedule != "constant" and 0 < self.schedule_steps <= self.warmup_steps:
            raise ConfigError(
                f"learner.schedule is {self.schedule!r} over {self.schedule_steps} steps with "
                f"{self.warmup_steps} of warm-up; set learner.schedule_steps to the optimizer steps of the whole run "
                "(under fixed_minibatch its training steps)"
            )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}{nearest(str(value), allowed)}")


def check_loss_roles(loss: Loss, config: LearnerConfig, roles: Collection[str]) -> None:
    """`ConfigError` when a table by role names a role that does not exist."""
    for table, names in (("loss.kl_by_role", loss.kl_by_role), ("learner.role_weights", config.role_weights)):
        for name in names:
            if name not in roles:
                raise ConfigError(f"{table} names the unknown role {name!r}{nearest(name, roles)}")
