"""Partners from a ranked memory of earlier versions: who is remembered, and who plays with whom. Plain data.

Ranked Policy Memory (RPM, arXiv 2210.09646) keeps earlier policies in a memory keyed by rank, and draws co-players from
it: a bucket at random, then a version in it, so that a policy meets partners of every skill. Carried over to a team:
the rank is the team's accuracy on validation; in some groups one role is current and trained, and the others play
earlier versions.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rolecall.engines.base import request_seed
from rolecall.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class PartnerSettings:
    """`share`: of a step's tasks, all episodes of which are played with earlier partners (0: off). `bucket_width`: of
    validation accuracy. `slots`: earlier versions of each trained policy that the engine holds at a time, each drawn
    anew in every step; a role's partner is drawn from them. `max_versions`: how many the memory holds.

    >>> PartnerSettings(share=0.25).slots
    2
    """

    share: float = 0.0
    bucket_width: float = 0.05
    slots: int = 2
    max_versions: int = 16

    def __post_init__(self) -> None:
        if not 0.0 <= self.share < 1.0:
            raise ConfigError(f"partners.share is {self.share}; wanted a share of the tasks in [0, 1)")
        if not 1e-6 <= self.bucket_width <= 1.0:
            raise ConfigError(f"partners.bucket_width is {self.bucket_width}; wanted a width up to 1, such as 0.05")
        for name in ("slots", "max_versions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"partners.{name} is {getattr(self, name)}; wanted 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """All trained policies as they were after `step`, when the team's accuracy on validation was `accuracy`. `versions`
    and `scores` by policy: the learner's log-probabilities of the parity probe, by which a loaded version is known."""

    step: int
    accuracy: float
    versions: Mapping[str, int]
    scores: Mapping[str, list[list[float]]] = field(default_factory=dict)

    def bucket(self, width: float) -> int:
        """floor(accuracy / width); the small term keeps 0.3 / 0.1 in bucket 3.

        >>> Remembered(step=1, accuracy=0.3, versions={}).bucket(0.1)
        3
        """
        return math.floor(self.accuracy / width + 1e-9)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class RankedMemory:
    """Versions by rank, oldest first."""

    width: float
    most: int
    kept: list[Remembered] = field(default_factory=list)

    def add(self, one: Remembered) -> None:
        """Remember a version, unless none of its policies has moved. A memory that is full drops the oldest of the
        fullest bucket (of two as full: the one of the lower rank), so that rare ranks stay."""
        if self.kept and self.kept[-1].versions == one.versions:
            return
        self.kept.append(one)
        if len(self.kept) > self.most:
            fullest = max(self.buckets().items(), key=lambda item: (len(item[1]), -item[0]))[1]
            self.kept.remove(fullest[0])

    def buckets(self) -> dict[int, list[Remembered]]:
        """Versions by bucket, lowest rank first, each oldest first."""
        found: dict[int, list[Remembered]] = defaultdict(list)
        for one in self.kept:
            found[one.bucket(self.width)].append(one)
        return dict(sorted(found.items()))

    def draw(self, rng: random.Random) -> Remembered:
        """A bucket, each as likely as another; then a version in it, likewise."""
        buckets = list(self.buckets().values())
        return rng.choice(rng.choice(buckets))


@dataclass(frozen=True, kw_only=True, slots=True)
class Dealt:
    """Who plays with whom in a step. `loaded`: the earlier version in each slot that is used, by the slot's name, and
    the policy that it is of. `tables`: of each task with partners, by its place in the step, the roles that do not play
    their current policy and the slots that they play."""

    loaded: Mapping[str, tuple[str, Remembered]] = field(default_factory=dict)
    tables: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


def slot_name(policy: str, number: int) -> str:
    """The name of an earlier version's place in the engine, where it is a policy like any other.

    >>> slot_name("shared", 0)
    'shared@memory0'
    """
    return f"{policy}@memory{number}"


def slots_of(policies: Collection[str], settings: PartnerSettings) -> dict[str, str]:
    """Every slot and the policy that it holds earlier versions of; {} when partners are off."""
    numbers = range(settings.slots) if settings.share else range(0)
    return {slot_name(policy, number): policy for policy in policies for number in numbers}


def leaders(roles: Mapping[str, str], train_roles: Sequence[str], trained: Collection[str]) -> list[str]:
    """The roles that can be the current one: trained, with another role whose policy is trained beside them. `roles`:
    every role and its policy; `trained`: the trained policies.

    >>> leaders({"solver": "a", "judge": "frozen"}, ["solver"], ["a"])
    []
    """
    return [role for role in train_roles if any(other != role and policy in trained for other, policy in roles.items())]


def deal(
    memory: RankedMemory,
    settings: PartnerSettings,
    *,
    num_tasks: int,
    roles: Mapping[str, str],
    train_roles: Sequence[str],
    trained: Collection[str],
    seed: int,
    step: int,
) -> Dealt:
    """Draw the partners of a step from the seed and the step alone: the same again after a resume.

    share * num_tasks tasks, rounded up or down at random so that the mean is exact; in each, one of `leaders` is
    current, and every other role whose policy is trained plays one of its policy's slots.
    """
    able = leaders(roles, train_roles, trained)
    rng = random.Random(request_seed(seed, "partners", step))
    number = math.floor(settings.share * num_tasks + rng.random())
    if not memory.kept or not able or not number:
        return Dealt()
    drawn = {name: (policy, memory.draw(rng)) for name, policy in slots_of(trained, settings).items()}
    tables: dict[int, dict[str, str]] = {}
    for place in sorted(rng.sample(range(num_tasks), number)):
        current = rng.choice(able)
        tables[place] = {
            role: slot_name(policy, rng.randrange(settings.slots))
            for role, policy in roles.items()
            if role != current and policy in trained
        }
    used = {slot for table in tables.values() for slot in table.values()}
    return Dealt(loaded={name: one for name, one in drawn.items() if name in used}, tables=tables)
