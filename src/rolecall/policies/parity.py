"""The proof that the engine samples from the trained weights: a canary at the start, a probe after each publish."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.engines.base import Engine
from rolecall.errors import ParityError
from rolecall.learner.learner import Learner
from rolecall.policies.build import Policy
from rolecall.policies.canary import CANARY_VERSION, Perturbation
from rolecall.policies.publish import Publisher

Sequences = Sequence[tuple[Sequence[int], Sequence[int]]]
Scores = list[list[float]]

BOUNDS = {"float32": 1e-4, "bfloat16": 0.25}
"""Largest difference of a log-probability between engine and learner, by the coarser of their two dtypes; of one below
-8 in proportion more, for rounding grows with the logits."""

BOUND_SIZE = 8.0

NOISE_FLOOR = {"float32": 2e-6, "bfloat16": 2e-2}
"""The least that counts as noise of a log-probability, relative to its size, however well the two agreed at first."""


CLOSER_LOOKS = (0.5, 2.0, 8.0, 32.0)
"""Sizes of change, in units of a tensor's own, at which a group is looked at by itself until its change shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParityReport:
    """`max_abs_diff`: of log-probabilities, engine against learner, over the fixed prompts. `visible`: tokens at which
    the new weights differ from the old by more than noise. `blind`: groups whose change the prompts cannot show, alone
    and at any size that was tried."""

    max_abs_diff: float
    visible: int = 0
    blind: tuple[str, ...] = ()


class Parity:
    """Compares log-probabilities of fixed sequences, `(prompt ids, completion ids)`, at a fixed temperature."""

    def __init__(
        self,
        engine: Engine,
        publisher: Publisher,
        policies: Mapping[str, Policy],
        sequences: Sequences,
        *,
        temperature: float = 1.0,
        bounds: Mapping[str, float] = BOUNDS,
        seed: int = 0,
    ) -> None:
        self.engine = engine
        self.publisher = publisher
        self.policies = policies
        self.sequences = sequences
        self.temperature = temperature
        self.bounds = bounds
        self.seed = seed
        self._old: dict[str, Scores] = {}  # the learner's scores when the engine was last seen to follow a change
        self._noise: dict[str, float] = {}

    async def canary(self) -> dict[str, ParityReport]:
        """Publish a large change of each trained policy in turn, see the engine follow it in every group of tensors and
        leave the other policies alone, and publish the real weights back. `ParityError` otherwise."""
        await self.publisher.start()
        reports: dict[str, ParityReport] = {}
        for name, policy in self.policies.items():
            if policy.learner is not None:
                reports[name] = await self._canary(policy, policy.learner)
        return reports

    async def probe(self, policy: Policy) -> ParityReport:
        """Engine against learner on the weights just published. `ParityError` when they differ by more than the bound,
        or when the engine is nearer to the old weights wherever the two differ by more than noise."""
        learner = policy.learner
        if learner is None:
            return ParityReport(max_abs_diff=0.0)
        new, seen = self._learner(learner), await self._engine(policy.name)
        difference, bound = max_difference(seen, new), self._bound(policy)
        noise = self._noise.setdefault(policy.name, self._noise_of(policy, relative_difference(seen, new)))
        old = self._old.setdefault(policy.name, new)
        visible = wrong = 0
        for s, n, o in zip(flat(seen), flat(new), flat(old), strict=True):
            if abs(n - o) > noise * max(1.0, abs(n)):  # rounding grows with the logits, which grow in training
                visible += 1
                wrong += abs(s - n) >= abs(s - o)
        if wrong:
            raise ParityError(
                f"policy {policy.name!r} version {policy.version}: at {wrong} of {visible} tokens where new and old "
                f"weights differ by more than {noise:.1e} of their size, the engine is nearer to the old; its largest "
                f"difference from the new is {difference:.2e}. The engine did not load what was published"
            )
        if not relative_difference(seen, new, BOUND_SIZE) <= bound:
            raise ParityError(
                f"policy {policy.name!r} version {policy.version}: engine and learner log-probabilities differ by "
                f"{difference:.2e}, wanted at most {bound:g} (of one below -{BOUND_SIZE:g} in proportion more). The "
                "engine does not sample from the published weights"
            )
        if visible:
            self._old[policy.name] = new
        return ParityReport(max_abs_diff=difference, visible=visible)

    async def check_slot(self, policy: Policy, slot: str, wanted: Scores) -> float:
        """The largest difference between the engine's scores under the policy `slot` and `wanted`, those that the
        learner of `policy` gave when the version in the slot was its own; `ParityError` above the bound."""
        seen, wanted, bound = await self._engine(slot), wanted * self._num_replicas, self._bound(policy)
        difference = max_difference(seen, wanted)
        if not relative_difference(seen, wanted, BOUND_SIZE) <= bound:
            raise ParityError(
                f"policy {slot!r}: log-probabilities of the earlier version that was just loaded differ by "
                f"{difference:.2e} from those that policy {policy.name!r} had then, wanted at most {bound:g}. The "
                "engine plays another partner than the one that was drawn"
            )
        return difference

    def check_sampled(self, policy: Policy, mismatch: float | None) -> None:
        """`ParityError` when the tokens that were just sampled disagree with the learner: `mismatch` is the mean
        absolute difference of their log-probabilities (None: nothing was measured). It must stay below ten times the
        probe's bound in float32, and below that bound in bfloat16, where single tokens differ widely."""
        if mismatch is None:
            return
        dtype = self._dtype(policy)
        bound = self.bounds[dtype] * (10 if dtype == "float32" else 1)
        if not mismatch <= bound:
            raise ParityError(
                f"policy {policy.name!r} version {policy.version}: log-probabilities of the tokens just sampled differ "
                f"from the learner's by {mismatch:.2e} on average, wanted at most {bound:g}. The engine samples from "
                "another distribution (weights, temperature or truncation) than the one that is trained"
            )

    async def _canary(self, policy: Policy, learner: Learner) -> ParityReport:
        name, bound = policy.name, self._bound(policy)
        real = self._learner(learner)
        before = {other: await self._engine(other) for other in self.policies if other != name}
        change = Perturbation(learner, self.seed)
        with change.applied():
            wanted = self._learner(learner)
            await self.engine.load(name, CANARY_VERSION, learner.module.export())
        seen = await self._engine(name)
        without: dict[str, Scores] = {}
        for group in change.groups:
            with change.applied(without=(group,)):
                without[group] = self._learner(learner)
        for other, scores in before.items():
            if (moved := max_difference(await self._engine(other), scores)) > bound:
                raise ParityError(f"loading policy {name!r} changed policy {other!r} in the engine, by {moved:.2e}")
        if not relative_difference(seen, wanted) <= bound:
            raise ParityError(self._diagnosis(name, seen, wanted, real, without, bound))
        hidden = [group for group, scores in without.items() if relative_difference(scores, wanted) <= 4 * bound]
        blind = tuple([group for group in hidden if not await self._shows_alone(name, learner, change, group, bound)])
        await self.publisher.send(policy, policy.version)
        seen = await self._engine(name)
        difference = max_difference(seen, real)
        if not relative_difference(seen, real, BOUND_SIZE) <= bound:
            raise ParityError(
                f"policy {name!r}: after a canary and the real weights again, engine and learner log-probabilities "
                f"differ by {difference:.2e}, wanted at most {bound:g}"
            )
        self._old[name] = real
        self._noise[name] = self._noise_of(policy, relative_difference(seen, real))
        return ParityReport(max_abs_diff=difference, visible=len(flat(real)), blind=blind)

    async def _shows_alone(self, name: str, learner: Learner, change: Perturbation, group: str, bound: float) -> bool:
        """Publish a change of one group that was lost among those of all, larger each time until the learner's scores
        show it, and see the engine follow: `ParityError` when it is nearer to the scores without it at most tokens
        where the two differ. False when no size shows it."""
        together = change.beside(group)
        for size in CLOSER_LOOKS:
            with change.applied(only=together, without=(group,), size=size):
                old = self._learner(learner)
            with change.applied(only=together, size=size):
                new = self._learner(learner)
                if not 2 * bound < relative_difference(old, new) < float("inf"):
                    continue
                await self.engine.load(name, CANARY_VERSION, learner.module.export())
            seen = await self._engine(name)
            rows = zip(flat(seen), flat(old), flat(new), strict=True)
            apart = [(s, o, n) for s, o, n in rows if abs(o - n) > 2 * bound * max(1.0, abs(n))]
            if 2 * sum(abs(s - n) >= abs(s - o) for s, o, n in apart) > len(apart):
                raise ParityError(
                    f"policy {name!r}: the engine does not follow a change of {' and '.join(together)} by {size:g} "
                    f"times their size: at most of the {len(apart)} tokens that differ, its scores are the old ones"
                )
            return True
        return False

    def _diagnosis(
        self, name: str, seen: Scores, wanted: Scores, real: Scores, without: Mapping[str, Scores], bound: float
    ) -> str:
        """What the engine did instead of loading the canary, as far as the scores tell."""
        text = (
            f"policy {name!r}: the engine does not follow a large change of the weights; log-probabilities differ by "
            f"{max_difference(seen, wanted):.2e}, wanted at most {bound:g}"
        )
        if relative_difference(seen, real) <= bound:
            return f"{text}. It still has the weights from before: its load() does nothing for this policy"
        stale = [group for group, scores in without.items() if relative_difference(seen, scores) <= bound]
        if stale:
            return f"{text}. It kept the old tensors of the group {stale[0]!r}"
        return f"{text}. It loaded other weights, or into another policy"

    def _learner(self, learner: Learner) -> Scores:
        """The learner's scores, once for each replica of the engine."""
        return learner.score(self.sequences, self.temperature) * self._num_replicas

    async def _engine(self, name: str) -> Scores:
        """The scores of every replica's copy of the weights, in the order of the replicas."""
        if self._num_replicas == 1:
            return await self.engine.score(name, self.sequences, self.temperature)
        engine: Any = self.engine
        replicas = await asyncio.gather(
            *(engine.score_on(replica, name, self.sequences, self.temperature) for replica in range(self._num_replicas))
        )
        return [row for scores in replicas for row in scores]

    @property
    def _num_replicas(self) -> int:
        """Copies of the weights in the engine: engines with several have `num_replicas` and `score_on`."""
        return int(getattr(self.engine, "num_replicas", 1))

    def _bound(self, policy: Policy) -> float:
        return self.bounds[self._dtype(policy)]

    def _noise_of(self, policy: Policy, difference: float) -> float:
        """What counts as noise, relative to the size of a log-probability of more than 1."""
        return 8 * max(difference, NOISE_FLOOR[self._dtype(policy)])

    def _dtype(self, policy: Policy) -> str:
        assert policy.learner is not None
        coarse = policy.spec.dtype != "float32" or policy.learner.config.precision != "float32"
        return "bfloat16" if coarse else "float32"


def probe_sequences(
    vocab_size: int, num: int = 4, length: int = 16, seed: int = 0
) -> list[tuple[list[int], list[int]]]:
    """Fixed sequences of random tokens, half prompt and half completion, of unequal lengths."""
    draw = random.Random(seed)
    return [
        (
            [draw.randrange(vocab_size) for _ in range(length // 2 + i)],
            [draw.randrange(vocab_size) for _ in range(length)],
        )
        for i in range(num)
    ]


def flat(scores: Scores) -> list[float]:
    return [value for row in scores for value in row]


def max_difference(left: Scores, right: Scores) -> float:
    """The largest |left - right|; inf when a value is not finite, so that it can never pass for small."""
    differences = [abs(a - b) for a, b in zip(flat(left), flat(right), strict=True)]
    return max((d if d == d else float("inf") for d in differences), default=0.0)


def relative_difference(left: Scores, right: Scores, size: float = 1.0) -> float:
    """The largest |left - right| / max(1, |right| / size): large changes make large log-probabilities, and larger
    rounding. inf when a value is not finite.

    >>> relative_difference([[-1.0, -16.0]], [[-1.5, -20.0]], 8.0)
    1.6
    """
    pairs = zip(flat(left), flat(right), strict=True)
    differences = [abs(a - b) / max(1.0, abs(b) / size) for a, b in pairs]
    return max((d if d == d else float("inf") for d in differences), default=0.0)
