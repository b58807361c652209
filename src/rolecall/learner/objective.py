"""What one microbatch adds to the loss, and the figures that say how it went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rolecall.algorithms.loss import Loss
from rolecall.learner import losses
from rolecall.learner.logprobs import TokenScores
from rolecall.learner.packing import Microbatch


@dataclass(frozen=True, kw_only=True, slots=True)
class References:
    """Log-probabilities of a microbatch's tokens under other weights, where the loss asks for them. [N]"""

    base_N: Tensor | None = None  # before training
    last_N: Tensor | None = None  # at the start of the update; None: no optimizer step was made since

    def last(self, logprobs_N: Tensor) -> Tensor:
        """Log-probabilities at the start of the update: the present ones while no optimizer step was made."""
        return logprobs_N.detach() if self.last_N is None else self.last_N


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLoss:
    """What a loss made of the tokens of a microbatch. [N]"""

    loss_N: Tensor  # before the token's weight
    ratio_N: Tensor  # the importance ratio that was used
    mastered_N: Tensor | None = None  # bool: tokens without a surrogate, where the loss has the mask
    correction_N: Tensor | None = None  # pi_prox / pi_behav before its cap, where the loss has a correction


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """Which loss, and to which log-probabilities its ratios are taken: `sampled` or `last` (always `last` where the
    loss has a correction, which stands for the rest of the way to what was sampled)."""

    loss: Loss
    ratio_against: str = "sampled"

    def needs_base(self, role: str | None = None) -> bool:
        """Whether a role's loss (None: any role's) asks for log-probabilities of the policy before training."""
        if self.loss.kl_against != "base":
            return False
        return any((self.loss.kl_coef, *self.loss.kl_by_role.values())) if role is None else self.loss.kl(role) > 0.0

    def needs_last(self, num_parts: int) -> bool:
        """Whether log-probabilities at the start of the update must be kept: only later parts differ from them."""
        anchored = self.loss.kl_against == "last" and any((self.loss.kl_coef, *self.loss.kl_by_role.values()))
        return num_parts > 1 and (self.ratio_against == "last" or self.corrects or anchored)

    @property
    def corrects(self) -> bool:
        return self.loss.correction != "none"

    def is_idle(self, role: str, advantages: Iterable[float]) -> bool:
        """Whether every term of the loss is 0, whatever the weights."""
        return self.loss.entropy_coef == 0 and self.loss.kl(role) == 0 and all(a == 0.0 for a in advantages)

    def __call__(self, batch: Microbatch, scores: TokenScores, references: References) -> TokenLoss:
        """L = (1 - I) w * surrogate + kl(role) * KL estimate - entropy_coef * entropy, for every token; I is the mask
        of mastered tokens and w the correction, 0 and 1 where the loss has none."""
        loss, logprobs_N = self.loss, scores.logprobs_N
        last_N = references.last(logprobs_N)
        ratio_N = self._ratio(batch, logprobs_N, last_N)
        if loss.clipped:
            bounds = (loss.clip_low, loss.clip_high, loss.dual_clip)
            loss_N = losses.clipped_surrogate(ratio_N, batch.advantages_N, *bounds)
        else:
            loss_N = losses.plain_surrogate(ratio_N, batch.advantages_N)
        correction_N = mastered_N = None
        if self.corrects:
            correction_N = self._correction(batch, last_N)
            loss_N = self.applied(correction_N) * loss_N
        if loss.mask_mastered:
            mastered_N = losses.mastered_positive(
                logprobs_N,
                scores.entropies_N,
                batch.advantages_N,
                batch.turns_N,
                batch.num_turns,
                loss.mastered_tau,
                loss.mastered_sigma,
            )
            loss_N = loss_N.masked_fill(mastered_N, 0.0)
        if loss.kl(batch.role) > 0.0:
            loss_N = loss_N + loss.kl(batch.role) * self.kl(batch, logprobs_N, references)
        if loss.entropy_coef != 0.0:
            loss_N = loss_N - loss.entropy_coef * scores.entropies_N
        return TokenLoss(loss_N=loss_N, ratio_N=ratio_N, mastered_N=mastered_N, correction_N=correction_N)

    def _ratio(self, batch: Microbatch, logprobs_N: Tensor, last_N: Tensor) -> Tensor:
        old_N = last_N if self.corrects or self.ratio_against == "last" else batch.sampled_N
        if self.loss.ratio == "turn":
            return losses.turn_ratio(logprobs_N, old_N, batch.turns_N, batch.num_turns)
        if self.loss.ratio == "token":
            return losses.token_ratio(logprobs_N, old_N)
        return losses.unit_ratio(logprobs_N)

    def _correction(self, batch: Microbatch, last_N: Tensor) -> Tensor:
        """pi_prox / pi_behav, by turn where the ratio is (so that the two multiply to one ratio by turn). [N]"""
        if self.loss.ratio == "turn":
            return losses.turn_ratio(last_N, batch.sampled_N, batch.turns_N, batch.num_turns)
        return losses.token_ratio(last_N, batch.sampled_N)

    def applied(self, correction_N: Tensor) -> Tensor:
        """The correction as it multiplies the surrogate, after its cap. [N]"""
        cut = losses.truncated_weight if self.loss.correction == "truncated" else losses.dropped_weight
        return cut(correction_N, self.loss.cap)

    def kl(self, batch: Microbatch, logprobs_N: Tensor, references: References) -> Tensor:
        """The configured estimate of the KL to the configured reference. [N]"""
        if self.loss.kl_against == "last":
            return losses.kl_estimate(logprobs_N, references.last(logprobs_N), self.loss.kl_estimator)
        assert references.base_N is not None
        return losses.kl_estimate(logprobs_N, references.base_N, self.loss.kl_estimator)


@dataclass(slots=True)
class Tally:
    """Weighted means and maxima of per-token figures over the microbatches of an update."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    masses: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    maxima: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, total: float, mass: float) -> None:
        self.sums[name] += total
        self.masses[name] += mass

    def peak(self, name: str, value: float) -> None:
        self.maxima[name] = max(value, self.maxima.get(name, value))

    def means(self) -> dict[str, float]:
        return {name: total / self.masses[name] for name, total in self.sums.items() if self.masses[name] > 0} | (
            self.maxima
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Tallies:
    """Per-token figures of one policy, and the same by role under `dynamics/<role>/...`."""

    policy: Tally = field(default_factory=Tally)
    roles: Tally = field(default_factory=Tally)


@torch.no_grad()
def measure(
    tallies: Tallies,
    batch: Microbatch,
    scores: TokenScores,
    made: TokenLoss,
    references: References,
    objective: Objective,
    *,
    share: float,
    version: int | None,
) -> None:
    """Add a microbatch's figures to the tallies. Tokens stand for `1 / share` tokens each, so that a probed share of
    the units with advantage 0 leaves the means unbiased. `version`: the learner's, for the mismatch with the engine,
    which is measured only on tokens sampled under it; None when the weights have moved since.
    """
    loss, count, mass = objective.loss, len(batch.targets_N), len(batch.targets_N) / share
    tally, logprobs_N, ratio_N = tallies.policy, scores.logprobs_N.detach(), made.ratio_N.detach()
    means = {
        "entropy": scores.entropies_N,
        "ratio_mean": ratio_N,
        "log_ratio": logprobs_N - batch.sampled_N,
        "chi2": losses.token_ratio(logprobs_N, batch.sampled_N).square() - 1.0,
        "kl_sampled": losses.kl_estimate(logprobs_N, batch.sampled_N, "k3"),
    }
    if loss.clipped:
        bounds = (loss.clip_low, loss.clip_high, loss.dual_clip)
        means["clip_fraction"] = losses.is_clipped(ratio_N, batch.advantages_N, *bounds)
    if loss.kl(batch.role) > 0.0:
        means["kl"] = objective.kl(batch, logprobs_N, references)
    if made.mastered_N is not None:
        means["mastered_share"] = made.mastered_N
    if made.correction_N is not None:
        means["correction_mean"] = objective.applied(made.correction_N)
        means["correction_capped"] = made.correction_N > loss.cap
        tally.peak("correction_max", float(made.correction_N.max()))
    values = torch.stack([value.float().mean() for value in means.values()]).tolist()
    for name, value in zip(means, values, strict=True):
        tally.add(name, value * mass, mass)
        tallies.roles.add(f"dynamics/{batch.role}/{name}", value * mass, mass)
    tally.peak("ratio_max_deviation", float((ratio_N - 1.0).abs().max()))
    if version is None:
        return
    fresh_N = batch.versions_N == version
    num_fresh = int(fresh_N.sum())
    tally.add("stale_share", (count - num_fresh) / share, mass)
    if num_fresh:
        gaps = (logprobs_N - batch.sampled_N)[fresh_N].abs()
        tally.add("mismatch", float(gaps.sum()) / share, num_fresh / share)
        tally.peak("mismatch_max", float(gaps.max()))
