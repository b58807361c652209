"""Microbatches with log-probabilities given by hand, and losses written out by autograd, for tests of objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from learner_helpers import (
    learner_of,
    model_spec,
)
from rolecall.algorithms.loss import Loss
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.learner.logprobs import TokenScores
from rolecall.learner.objective import Objective, References, Tallies, TokenLoss, measure
from rolecall.learner.packing import Microbatch, Weighted, pack
from rolecall.records import Sample

Tiny = Callable[..., str]
UNCLIPPED = LearnerConfig(lr=1e-3, max_grad_norm=1e9)
CPU = torch.device("cpu")


def log(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


def microbatch(samples: Sequence[Sample]) -> Microbatch:
    """One microbatch of all samples, each token with the weight 1 / tokens."""
    total = sum(sample.num_trained for sample in samples)
    rows = [Weighted(sample=s, weights=(1.0 / total,) * len(s.spans), number=i) for i, s in enumerate(samples)]
    [batch] = pack(rows, 10**6, device=CPU)["solver"]
    return batch


def evaluate(
    loss: Loss,
    samples: Sequence[Sample],
    now: Tensor,
    *,
    entropies: Tensor | None = None,
    last: Tensor | None = None,
    against: str = "sampled",
) -> tuple[TokenLoss, Tensor, dict[str, float]]:
    """The loss of tokens with the log-probabilities `now`; its gradient by log-probability, unweighted; the metrics."""
    batch, logprobs = microbatch(samples), now.clone().requires_grad_()
    scores = TokenScores(logprobs, torch.zeros_like(now) if entropies is None else entropies)
    objective, references, tallies = Objective(loss=loss, ratio_against=against), References(last_N=last), Tallies()
    made = objective(batch, scores, references)
    made.loss_N.sum().backward()
    measure(tallies, batch, scores, made, references, objective, share=1.0, version=None)
    assert logprobs.grad is not None
    return made, logprobs.grad, tallies.policy.means() | tallies.roles.means()


def learner_with(tiny_model: Tiny, loss: Loss, **knobs: object) -> Learner:
    return learner_of(model_spec("team", tiny_model()), replace(UNCLIPPED, **knobs), loss)  # type: ignore[arg-type]


def logits_of(learner: Learner, sample: Sample) -> Tensor:
    """Log-probabilities of the whole vocabulary before each trained token, at the temperature. [T, V]"""
    places = [p - 1 for span in sample.spans for p in range(span.start, span.stop)]
    logits: Tensor = learner.module.model(input_ids=torch.tensor([sample.token_ids])).logits[0]
    return (logits[places] / sample.temperature).log_softmax(-1)


def targets_of(sample: Sample) -> Tensor:
    return torch.tensor([sample.token_ids[p] for span in sample.spans for p in range(span.start, span.stop)])


def advantages_of(sample: Sample) -> Tensor:
    return torch.tensor([span.advantage for span in sample.spans for _ in range(span.start, span.stop)])


def autograd(learner: Learner, value: Tensor) -> dict[str, Tensor]:
    learner.module.model.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in learner.module.model.named_parameters() if p.grad is not None}
