"""Which loss an algorithm asks of the learner: settings only, no arithmetic and no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rolecall.errors import ConfigError, nearest

RATIOS = ("token", "turn", "one")
AGGREGATES = ("token_mean", "sequence_mean")
KL_ESTIMATORS = ("k1", "k2", "k3")
KL_ANCHORS = ("base", "last")
CORRECTIONS = ("none", "decoupled", "truncated")
TRUNCATED_CAP = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """The policy loss of one policy.

    `ratio`: importance ratio by token, by turn (exponential of the mean log-ratio), or one (the gradient is that of
    REINFORCE). With `clipped` the surrogate is min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A), bounded by
    `dual_clip` * A where A < 0 (None: no bound). `aggregate`: the mean over tokens of the optimizer step, or over turns
    of each turn's mean. `kl_coef` anchors every role to `kl_against`; `kl_by_role` replaces it for the roles it names.

    `zero_advantage_in_denominator` says whether units whose advantage is 0 count there (false: the dynamic sampling of
    DAPO, by which groups without spread leave the loss). `probe_share` is the share of such units that is computed all
    the same, so that KL, entropy and mismatch are measured without bias.

    `mask_mastered`: no policy gradient on tokens with A > 0 and a probability of at least `mastered_tau`, in turns
    whose mean entropy is below `mastered_sigma` nats (UloRL). `correction` weighs the surrogate by how likely the
    policy at the start of the update finds what was sampled, and takes ratios to that policy: `decoupled` (AReaL)
    leaves tokens above `correction_cap` out, none by default; `truncated` cuts their weight to it, 2 by default.

    >>> Loss(kl_coef=0.01, kl_by_role={"verifier": 0.1}).kl("verifier")
    0.1
    """

    ratio: str = "token"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float | None = 3.0
    aggregate: str = "token_mean"
    kl_coef: float = 0.0
    kl_estimator: str = "k3"
    kl_against: str = "base"
    kl_by_role: Mapping[str, float] = field(default_factory=dict)
    entropy_coef: float = 0.0
    zero_advantage_in_denominator: bool = True
    probe_share: float = 0.05
    clipped: bool = True
    mask_mastered: bool = False
    mastered_tau: float = 0.99
    mastered_sigma: float = 0.2
    correction: str = "none"
    correction_cap: float | None = None

    def __post_init__(self) -> None:
        _one_of("ratio", self.ratio, RATIOS)
        _one_of("aggregate", self.aggregate, AGGREGATES)
        _one_of("kl_estimator", self.kl_estimator, KL_ESTIMATORS)
        _one_of("kl_against", self.kl_against, KL_ANCHORS)
        _number("clip_low", self.clip_low, 0.0, 1.0, "[0, 1]: the ratio's lower bound is 1 - clip_low")
        _number("clip_high", self.clip_high, 0.0, math.inf, "0 or more: the ratio's upper bound is 1 + clip_high")
        _number("probe_share", self.probe_share, 0.0, 1.0, "a share in [0, 1]")
        _number("kl_coef", self.kl_coef, 0.0, math.inf, "0 (off) or more")
        _number("entropy_coef", self.entropy_coef, -math.inf, math.inf, "a finite number")
        for role, coefficient in self.kl_by_role.items():
            _number(f"kl_by_role.{role}", coefficient, 0.0, math.inf, "0 (off) or more")
        if self.dual_clip is not None:
            wanted = f"a number above 1 + clip_high = {1 + self.clip_high:g}, or none to switch it off"
            _number("dual_clip", self.dual_clip, 1.0 + self.clip_high, math.inf, wanted)
        for name in ("zero_advantage_in_denominator", "clipped", "mask_mastered"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"loss.{name} is {getattr(self, name)!r}; wanted true or false")
        self._check_mastered()
        self._check_correction()

    def _check_mastered(self) -> None:
        _number("mastered_tau", self.mastered_tau, 0.0, 1.0, "a probability in [0, 1]")
        _number("mastered_sigma", self.mastered_sigma, 0.0, math.inf, "nats a token, 0 (never) or more")
        if self.mask_mastered and self.ratio == "turn":
            raise ConfigError(
                "loss.mask_mastered leaves single tokens out, and loss.ratio = 'turn' gives all tokens of a turn one "
                "gradient; use ratio = 'one' or 'token'"
            )

    def _check_correction(self) -> None:
        _one_of("correction", self.correction, CORRECTIONS)
        if self.correction_cap is not None:
            if self.correction == "none":
                raise ConfigError(
                    f"loss.correction_cap is {self.correction_cap!r} and loss.correction is 'none', so nothing reads "
                    "it; set correction to 'decoupled' or 'truncated', or leave the cap out"
                )
            _number("correction_cap", self.correction_cap, 1.0, math.inf, "1 or more: equal policies weigh 1")
        if self.correction == "decoupled" and not self.clipped and self.ratio != "one":
            raise ConfigError(
                "loss.correction = 'decoupled' parts the policy of the clip from the one that sampled, and "
                f"clipped = false leaves no clip (ratio = {self.ratio!r}); set clipped = true, or take correction = "
                "'truncated'"
            )

    @property
    def cap(self) -> float:
        """The largest weight that the correction lets through as it is."""
        if self.correction_cap is not None:
            return self.correction_cap
        return TRUNCATED_CAP if self.correction == "truncated" else math.inf

    def kl(self, role: str) -> float:
        """The KL coefficient that holds for `role`."""
        return self.kl_by_role.get(role, self.kl_coef)

    @property
    def advantage_only(self) -> bool:
        """Whether every term of the loss is 0 where the advantage is 0: such units need no forward pass."""
        return self.kl_coef == 0 and self.entropy_coef == 0 and not any(self.kl_by_role.values())


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(f"loss.{name} is {value!r}; wanted one of {', '.join(known)}{nearest(str(value), known)}")


def _number(name: str, value: float, low: float, high: float, wanted: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"loss.{name} is {value!r}; wanted {wanted}")
