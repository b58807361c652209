"""Small samples, learners on tiny models and an engine in plain sight, for tests of learner, policies and dynamics."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rolecall.algorithms.loss import Loss
from rolecall.engines.specs import LoraSpec, PolicySpec
from rolecall.errors import EngineError
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.learner.modules import assign
from rolecall.policies.build import Policy, build_policies
from rolecall.records import Completion, CreditUnit, Key, Sample, Span, Stop, Turn

VOCAB = 261
SMALL_LORA = LoraSpec(rank=4, alpha=8.0)


def model_spec(name: str, folder: str) -> PolicySpec:
    return PolicySpec(name=name, kind="model", model=folder)


def adapter_spec(name: str, folder: str, lora: LoraSpec = SMALL_LORA) -> PolicySpec:
    return PolicySpec(name=name, kind="adapter", model=folder, lora=lora)


def policies_of(
    specs: Sequence[PolicySpec], config: LearnerConfig | None = None, loss: Loss | None = None
) -> dict[str, Policy]:
    torch.set_num_threads(1)
    return build_policies(specs, config or LearnerConfig(lr=1e-3), loss, device="cpu")


def learner_of(spec: PolicySpec, config: LearnerConfig | None = None, loss: Loss | None = None) -> Learner:
    learner = policies_of([spec], config, loss)[spec.name].learner
    assert learner is not None
    return learner


def make_turn(
    turn_id: str,
    prompt: Sequence[int],
    completion: Sequence[int],
    *,
    role: str = "solver",
    copy: int = 0,
    call: int = 0,
    policy: str = "team",
    logprob: float = -1.0,
    version: int = 0,
) -> Turn:
    done = Completion(
        token_ids=tuple(completion),
        logprobs=(logprob,) * len(completion),
        versions=(version,) * len(completion),
        stop=Stop.EOS,
    )
    return Turn(
        id=turn_id,
        key=Key(role, copy, call),
        policy=policy,
        messages=(),
        prompt_ids=tuple(prompt),
        completion=done,
        text="",
    )


def make_unit(
    turn_ids: Sequence[str], advantage: float, *, role: str = "solver", episode: str = "e", policy: str = "team"
) -> CreditUnit:
    return CreditUnit(
        id=f"{episode}/{'+'.join(turn_ids)}",
        role=role,
        policy=policy,
        task_id="t",
        episode_id=episode,
        turn_ids=tuple(turn_ids),
        peers="",
        reward=0.0,
        advantage=advantage,
    )


def make_sample(
    prompt: Sequence[int],
    completion: Sequence[int],
    advantage: float,
    *,
    role: str = "solver",
    policy: str = "team",
    episode: str = "",
    copy: int = 0,
    temperature: float = 1.0,
    logprobs: Sequence[float] | None = None,
    version: int = 0,
) -> Sample:
    start, size = len(prompt), len(prompt) + len(completion)
    return Sample(
        policy=policy,
        role=role,
        copy=copy,
        token_ids=(*prompt, *completion),
        logprobs=(*((0.0,) * start), *(logprobs or (-2.0,) * len(completion))),
        spans=(
            Span(
                turn_id=f"{episode}{prompt}{completion}", start=start, stop=size, advantage=advantage, version=version
            ),
        ),
        temperature=temperature,
        episode_id=episode,
    )


def random_samples(
    num: int, *, roles: Sequence[str] = ("solver",), policy: str = "team", seed: int = 0
) -> list[Sample]:
    """Samples of unequal lengths with advantages of both signs, roles in turn."""
    draw = random.Random(seed)
    return [
        make_sample(
            [draw.randrange(VOCAB) for _ in range(draw.randint(2, 9))],
            [draw.randrange(VOCAB) for _ in range(draw.randint(1, 8))],
            draw.choice((-1.0, 0.7, 1.3)),
            role=roles[i % len(roles)],
            policy=policy,
            episode=f"e{i}",
        )
        for i in range(num)
    ]


def on_policy(learner: Learner, samples: Sequence[Sample]) -> list[Sample]:
    """The samples with the learner's own log-probabilities in place of the sampled ones."""
    from dataclasses import replace

    fresh = []
    for sample in samples:
        logprobs = [0.0] * len(sample.token_ids)
        for span in sample.spans:
            prompt, completion = sample.token_ids[: span.start], sample.token_ids[span.start : span.stop]
            logprobs[span.start : span.stop] = learner.score([(prompt, completion)], sample.temperature)[0]
        fresh.append(replace(sample, logprobs=tuple(logprobs)))
    return fresh


def gradient(learner: Learner, samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """The gradient that an update would hand to the optimiser, before clipping; the weights stay."""
    held: dict[str, torch.Tensor] = {}

    def instead_of_step(*_: Any, **__: Any) -> None:
        for name, parameter in learner.parameters.items():
            held[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()

    real, learner.optimizer.step = learner.optimizer.step, instead_of_step  # type: ignore[method-assign]
    clip = learner.config.max_grad_norm
    assert clip >= 1e6, "tests of gradients use a learner that does not clip"
    try:
        learner.update(samples)
    finally:
        learner.optimizer.step = real  # type: ignore[method-assign]
        learner.optimizer_steps = 0
    return held


def relative_error(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> float:
    """||left - right|| / ||right|| over all tensors."""
    top = sum(float((left[name] - right[name]).double().square().sum()) for name in right)
    return float((top / sum(float(right[name].double().square().sum()) for name in right)) ** 0.5)


def snapshot(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learner.parameters.items()}


def identical(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


class PlainEngine:
    """An engine that keeps weights of its own and scores with them; tests break its `load` in various ways."""

    def __init__(self, specs: Sequence[PolicySpec]) -> None:
        self.policies = policies_of(specs)
        self.versions = dict.fromkeys(self.policies, 0)
        self.loads: list[tuple[str, int]] = []

    def _learner(self, policy: str) -> Learner:
        learner = self.policies[policy].learner
        if learner is None:
            raise EngineError(f"policy {policy!r} is frozen")
        return learner

    async def generate(self, requests: Any) -> Any:
        raise NotImplementedError

    async def load(self, policy: str, version: int, weights: Mapping[str, Any]) -> None:
        self.take(policy, weights)
        self.versions[policy] = version
        self.loads.append((policy, version))

    def take(self, policy: str, weights: Mapping[str, Any]) -> None:
        learner = self._learner(policy)
        own = learner.parameters
        assign(own, {name: weights[name] for name in own})

    async def score(self, policy: str, sequences: Any, temperature: float = 1.0) -> list[list[float]]:
        return self._learner(policy).score(sequences, temperature)

    def version(self, policy: str) -> int:
        return self.versions[policy]

    async def close(self) -> None: ...
