"""The tree that grows from one task under agentic groups: groups, their candidates, and which of them go on.

A chain knows no engine and no clock: whoever drives it hands in what the candidates of a complete group earned and
where the workflow stands after each, and gets the groups of the next stage.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from rolecall.engines.base import request_seed
from rolecall.pipeline.picks import RIGHT, pick
from rolecall.rollout.agentic import AgenticGroups


@dataclass(frozen=True, slots=True)
class Candidate:
    """A scored completion. `score`: what it earned by what it claims itself (None: nobody could say). `receiver`: the
    role of the call that waits after it, and which call of that role; None: the workflow does not go on with it, or
    may not. `onward` is the driver's own, and starts the next group."""

    place: tuple[int, int]  # number of its group in the stage, number in the group
    score: float | None
    receiver: tuple[str, int] | None
    onward: Any = None


@dataclass(frozen=True, slots=True)
class Successor:
    """A group of the next stage: its number there, and the candidate whose successor it is."""

    stage: int
    number: int
    candidate: Candidate


@dataclass(slots=True)
class PickCounts:
    """How picks went, by receiving role: `picked`, of them `preferred` of the class that the rule asks for first,
    `shortfall` fills from another class."""

    picked: Counter[str] = field(default_factory=Counter)
    preferred: Counter[str] = field(default_factory=Counter)
    low: Counter[str] = field(default_factory=Counter)
    shortfall: Counter[str] = field(default_factory=Counter)

    def metrics(self) -> dict[str, float]:
        rows: dict[str, float] = {}
        for role, picked in sorted(self.picked.items()):
            rows[f"picks/{role}/picked"] = float(picked)
            rows[f"picks/{role}/low_share"] = self.low[role] / picked
            rows[f"picks/{role}/preferred_share"] = self.preferred[role] / picked
            rows[f"picks/{role}/shortfall"] = float(self.shortfall[role])
        return rows

    def to_dict(self) -> dict[str, dict[str, int]]:
        return {name.name: dict(getattr(self, name.name)) for name in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, int]]) -> PickCounts:
        return cls(**{name: Counter(counts) for name, counts in data.items()})


class Chain:
    """What one task's stages have under way. `seed_path` names the chain, so that its picks are its own."""

    def __init__(self, sampler: AgenticGroups, seed: int, *seed_path: object) -> None:
        self.sampler, self.seed, self.seed_path = sampler, seed, seed_path
        self.under_way: dict[int, int] = {0: 1}  # groups by stage
        self.pools: dict[int, list[Candidate]] = {}
        self.numbers: Counter[int] = Counter({0: 1})
        self.why_ended = ""

    @property
    def ended(self) -> bool:
        return not any(self.under_way.values())

    def complete(self, stage: int, candidates: Sequence[Candidate], counts: PickCounts) -> list[Successor]:
        """A group of `stage` is complete with these candidates; returns the groups that may follow now."""
        self.under_way[stage] -= 1
        per_parent = self.sampler.pool == "parent"
        pool = list(candidates) if per_parent else self.pools.setdefault(stage, [])
        if not per_parent:
            pool += candidates
            if self.under_way[stage]:
                return []
            del self.pools[stage]
        if stage + 1 >= self.sampler.stages:
            return self._end("stages")
        eligible = [candidate for candidate in pool if candidate.receiver is not None]
        if not eligible:
            return self._end("no_candidate" if pool else "failed")
        successors = []
        for receiver in sorted({one.receiver for one in eligible if one.receiver is not None}):
            own = sorted((one for one in eligible if one.receiver == receiver), key=lambda one: one.place)
            for chosen in self._pick(own, receiver, stage, counts):
                # of its own in the stage; under "parent" by its path, so that the order of completion changes no pick
                number = chosen.place[0] * self.sampler.n + chosen.place[1] if per_parent else self.numbers[stage + 1]
                successors.append(Successor(stage + 1, number, chosen))
                self.numbers[stage + 1] += 1
        self.under_way[stage + 1] = self.under_way.get(stage + 1, 0) + len(successors)
        return successors

    def _pick(
        self, candidates: Sequence[Candidate], receiver: tuple[str, int], stage: int, counts: PickCounts
    ) -> list[Candidate]:
        parents = sorted({candidate.place[0] for candidate in candidates}) if self.sampler.pool == "parent" else []
        rng = random.Random(request_seed(self.seed, "pick", *self.seed_path, stage, receiver, parents))
        role, prefer = receiver[0], self.sampler.preference(receiver[0])
        scores = [candidate.score for candidate in candidates]
        found = pick(scores, self.sampler.k, self.sampler.pick, prefer, rng)
        chosen = [candidates[place] for place in found.chosen]
        counts.picked[role] += len(chosen)
        low = sum(one.score is not None and one.score < RIGHT for one in chosen)
        high = sum(one.score is not None and one.score >= RIGHT for one in chosen)
        counts.low[role] += low
        counts.preferred[role] += {"low": low, "high": high}.get(prefer or "", 0)
        counts.shortfall[role] += found.shortfall
        return chosen

    def _end(self, why: str) -> list[Successor]:
        if self.ended:
            self.why_ended = why
        return []

    def state(self) -> dict[str, Any]:
        """Plain data, but for the candidates of open pools, which the driver makes again."""
        return {
            "path": list(self.seed_path),
            "under_way": {str(stage): count for stage, count in self.under_way.items()},
            "numbers": {str(stage): count for stage, count in self.numbers.items()},
        }

    @classmethod
    def from_state(cls, sampler: AgenticGroups, seed: int, state: Mapping[str, Any]) -> Chain:
        chain = cls(sampler, seed, *state["path"])
        chain.under_way = {int(stage): count for stage, count in state["under_way"].items()}
        chain.numbers = Counter({int(stage): count for stage, count in state["numbers"].items()})
        return chain
