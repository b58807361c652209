"""What a step's rewards and credit look like, by role, as numbers for the run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from rolecall.credit.assign import CreditCounts
from rolecall.credit.units import Scored
from rolecall.records import CreditUnit, Reward
from rolecall.rewards.base import MARKS


def reward_metrics(scored: Sequence[Scored]) -> dict[str, float]:
    """`reward/<role>/...` over the turns of every episode that started and was kept, each turn once.

    `<part>`: mean over the turns that have the part (`team` is the broadcast outcome, other parts are the turn's own).
    `total`: mean over the turns with a reward, what is trained on. `broadcast`: share of those whose total is the
    team's outcome and nothing else. `<mark>` (failed, truncated, unparsed, ungraded, unjudged): share of all turns.
    """
    by_role: dict[str, dict[str, list[Reward]]] = {}
    for one in scored:
        for turn in one.episode.turns:
            by_role.setdefault(turn.role, {}).setdefault(turn.id, []).append(one.rewards[turn.id])
    metrics: dict[str, float] = {}
    for role, branches in by_role.items():
        parts = {part for rewards in branches.values() for reward in rewards for part in reward.parts}
        for part in sorted(parts - set(MARKS)):
            _put(metrics, f"reward/{role}/{part}", branches, _part(part))
        for mark in MARKS:
            _put(metrics, f"reward/{role}/{mark}", branches, _part(mark, 0.0))
        _put(metrics, f"reward/{role}/total", branches, lambda reward: reward.total)
        _put(metrics, f"reward/{role}/broadcast", branches, _broadcast)
    return metrics


def _part(name: str, absent: float | None = None) -> Callable[[Reward], float | None]:
    return lambda reward: reward.parts.get(name, absent)


def _broadcast(reward: Reward) -> float | None:
    return None if reward.total is None else float(reward.team)


def _put(
    metrics: dict[str, float],
    name: str,
    branches: Mapping[str, Sequence[Reward]],
    value: Callable[[Reward], float | None],
) -> None:
    """The mean over turns of a turn's value (its mean over branches); no entry when no turn has one."""
    by_turn = [[v for v in map(value, rewards) if v is not None] for rewards in branches.values()]
    if any(by_turn):
        metrics[name] = fmean(fmean(values) for values in by_turn if values)


def credit_metrics(units: Sequence[CreditUnit], counts: CreditCounts) -> dict[str, float]:
    """`credit/...` for the step and `credit/<role>/...` by role.

    By role: `units`; `reward_mean`; `zero_spread_share`, of the units that have peers, how many are in a set of peers
    whose rewards are all equal; `alone`, units without peers; `advantage_mass`, the sum of |A| over turns, and
    `advantage_mass_share`, its share of all roles'; `advantage_mean` over units.
    """
    metrics = {
        "credit/units": float(counts.units),
        "credit/groups": float(counts.groups),
        "credit/constant_groups": float(counts.constant_groups),
        "credit/alone": float(counts.alone),
        "credit/unrewarded_turns": float(counts.unrewarded_turns),
        "credit/unrewarded_units": float(counts.unrewarded_units),
        "credit/empty_episodes": float(counts.empty_episodes),
    }
    flat = constant_peers(units)
    whole = sum(map(mass, units))
    for role in sorted({unit.role for unit in units}):
        own = [unit for unit in units if unit.role == role]
        compared = [unit for unit in own if not unit.alone]
        own_mass = sum(map(mass, own))
        metrics |= {
            f"credit/{role}/units": float(len(own)),
            f"credit/{role}/reward_mean": fmean(unit.reward for unit in own),
            f"credit/{role}/alone": float(len(own) - len(compared)),
            f"credit/{role}/advantage_mean": fmean(unit.advantage for unit in own),
            f"credit/{role}/advantage_mass": own_mass,
            f"credit/{role}/advantage_mass_share": own_mass / whole if whole else 0.0,
            f"credit/{role}/zero_spread_share": fmean(unit.peers in flat for unit in compared) if compared else 0.0,
        }
    return metrics


def mass(unit: CreditUnit) -> float:
    """|A| once for every turn of the unit."""
    return abs(unit.advantage) * len(unit.turn_ids)


def constant_peers(units: Iterable[CreditUnit]) -> frozenset[str]:
    """The peers keys whose units all have the same reward."""
    rewards: dict[str, set[float]] = {}
    for unit in units:
        rewards.setdefault(unit.peers, set()).add(unit.reward)
    return frozenset(peers for peers, seen in rewards.items() if len(seen) == 1)
