"""From rewards to advantages: one estimator over all peers, and a declared rule for units that have none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rolecall.credit.estimators import Estimator, RunningMean, constant
from rolecall.errors import ConfigError, RolecallError, nearest
from rolecall.records import EMPTY, CreditUnit

ALONE: Mapping[str, str] = {
    "zero": "advantage 0: not trained by the policy gradient",
    "raw": "the reward itself",
    "running_mean": "the reward minus the running mean of its role",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CreditCounts:
    """What happened to the units of a step. `groups` are sets of peers that were compared, `constant_groups` those of
    them whose rewards are all equal; `alone` units had no peers, and follow the declared rule."""

    units: int = 0
    groups: int = 0
    constant_groups: int = 0
    alone: int = 0
    unrewarded_turns: int = 0
    unrewarded_units: int = 0
    empty_episodes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Assigned:
    """Units with their advantages, the counts, and the running mean of each role after this step."""

    units: tuple[CreditUnit, ...]
    counts: CreditCounts
    baselines: Mapping[str, float]


def assign(
    units: Sequence[CreditUnit],
    estimator: Estimator,
    alone: str = "zero",
    *,
    baselines: Mapping[str, float] = EMPTY,
    within_episode: bool = False,
) -> Assigned:
    """Fill the advantage of every unit. The result does not depend on the order in which the units come.

    Peers are the units with one `peers` key when they come from at least two episodes (`within_episode`: when there
    are at least two of them). A unit without peers is marked `alone` and follows `alone`, one of `ALONE`. The running
    means follow the reward of every unit of their role, in the order of unit ids, each unit against the mean before it.
    """
    check_alone(alone)
    ordered = sorted(units, key=lambda unit: unit.id)
    if isinstance(estimator, RunningMean):
        advantages, after = _by_role(ordered, estimator, baselines)
        filled = tuple(replace(unit, advantage=advantages[unit.id], alone=False) for unit in ordered)
        return Assigned(units=filled, counts=CreditCounts(units=len(filled)), baselines=after)

    lone_advantages: Mapping[str, float] = {unit.id: unit.reward if alone == "raw" else 0.0 for unit in ordered}
    after = dict(baselines)
    if alone == "running_mean":
        lone_advantages, after = _by_role(ordered, RunningMean(), baselines)
    filled_units: list[CreditUnit] = []
    groups = constant_groups = num_alone = 0
    for peers in _by_peers(ordered).values():
        if not comparable(peers, within_episode=within_episode):
            filled_units += [replace(unit, advantage=lone_advantages[unit.id], alone=True) for unit in peers]
            num_alone += len(peers)
            continue
        rewards_G = np.array([unit.reward for unit in peers], dtype=np.float64)
        groups += 1
        constant_groups += constant(rewards_G)
        advantages_G = _checked(estimator(rewards_G), peers)
        pairs = zip(peers, advantages_G, strict=True)
        filled_units += [replace(unit, advantage=value, alone=False) for unit, value in pairs]
    counts = CreditCounts(units=len(ordered), groups=groups, constant_groups=constant_groups, alone=num_alone)
    return Assigned(units=tuple(sorted(filled_units, key=lambda unit: unit.id)), counts=counts, baselines=after)


def check_alone(alone: str) -> None:
    if alone not in ALONE:
        raise ConfigError(f"alone is {alone!r}; wanted one of {', '.join(ALONE)}{nearest(str(alone), ALONE)}")


def comparable(peers: Sequence[CreditUnit], *, within_episode: bool) -> bool:
    """Whether there is anything to compare: turns of one single rollout are not peers of each other."""
    return len(peers) >= 2 and (within_episode or len({unit.episode_id for unit in peers}) >= 2)


def _by_peers(units: Sequence[CreditUnit]) -> dict[str, list[CreditUnit]]:
    groups: dict[str, list[CreditUnit]] = {}
    for unit in units:
        groups.setdefault(unit.peers, []).append(unit)
    return groups


def _by_role(
    units: Sequence[CreditUnit], estimator: RunningMean, baselines: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """Advantage by unit id against the running mean of its role, and the means after all units."""
    advantages: dict[str, float] = {}
    after = dict(baselines)
    roles: dict[str, list[CreditUnit]] = {}
    for unit in units:
        roles.setdefault(unit.role, []).append(unit)
    for role, own in roles.items():
        advantages_N, after[role] = estimator.step([unit.reward for unit in own], after.get(role))
        advantages.update(zip((unit.id for unit in own), advantages_N.tolist(), strict=True))
    return advantages, after


def _checked(advantages_G: object, peers: Sequence[CreditUnit]) -> list[float]:
    """The advantages as finite floats, one for each peer; an estimator of the user's own may give anything."""
    array = np.asarray(advantages_G, dtype=np.float64)
    if array.shape != (len(peers),) or not np.isfinite(array).all():
        raise RolecallError(
            f"the estimator gave {array.tolist()} for the rewards {[unit.reward for unit in peers]} of peers "
            f"{peers[0].peers}; wanted {len(peers)} finite numbers"
        )
    values: list[float] = array.tolist()
    return values
