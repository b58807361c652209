"""Why a step teaches nothing, in words: a reward of 0 and a loss of 0 never stand unexplained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from rolecall.algorithms.base import CreditResult
from rolecall.credit.metrics import mass
from rolecall.credit.units import Scored
from rolecall.records import CreditUnit, GradedEpisode, OutcomeClass, Reward, Turn
from rolecall.rewards.truth import unparsed

Rewarded = tuple[Scored, Turn, Reward]

NEXT_MOVES = {
    "unparsed": "look at their text with the prompt beside it, and at the parser of the workflow",
    "truncated": "raise max_tokens of that role, or ask for shorter replies",
    "failed": "the outcome classes and the failures of the episodes say where",
    "ungraded": "the grader's own words are in the grades; no reward is given where a grader fails",
    "unjudged": "nothing they claim can be checked; reward them by the team's outcome (a `mixed` reward by role)",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """A sentence on why a step teaches nothing: about a `policy` (None: all), and where it is the `mark` of the rewards
    of one `role` that says so, about these."""

    text: str
    policy: str | None = None
    role: str | None = None
    mark: str | None = None


def diagnose(
    result: CreditResult, graded: Sequence[GradedEpisode], policies: Collection[str] | None = None
) -> list[str]:
    """The texts of `reasons`."""
    return [reason.text for reason in reasons(result, graded, policies)]


def reasons(
    result: CreditResult, graded: Sequence[GradedEpisode], policies: Collection[str] | None = None
) -> list[Reason]:
    """Why the policy gradient of a policy is 0 in this step; empty when no policy has that trouble.

    Each policy that was called is looked at by itself, and the sentences begin with its name; `policies` keeps those
    that are trained (None: all).
    """
    if not graded:
        return [
            Reason(text="the step has no episodes: nothing was sampled, or the failure policy dropped every episode")
        ]
    if not any(one.episode.turns for one in graded):
        return [Reason(text=f"no episode of the step has a turn: {_classes(graded)}")]
    turns: dict[str, dict[str, Rewarded]] = {}
    for one in result.scored:
        for turn in one.episode.turns:
            turns.setdefault(turn.policy, {})[turn.id] = (one, turn, one.rewards[turn.id])
    found: list[Reason] = []
    for policy, own in sorted(turns.items()):
        if policies is not None and policy not in policies:
            continue
        units = [unit for unit in result.units if unit.policy == policy]
        if sum(map(mass, units)) == 0:
            about = [Reason(text=text) for text in _credit_reasons(units)]
            about += _reward_reasons(list(own.values()))
            head = f"policy {policy!r}, no advantage differs from 0: "
            found += [replace(one, text=head + one.text, policy=policy) for one in about]
    return found


def _credit_reasons(units: Sequence[CreditUnit]) -> Iterable[str]:
    if not units:
        yield "no turn has a reward"
        return
    alone = sum(unit.alone for unit in units)
    if alone:
        yield f"{alone} of {len(units)} units have no peers; more episodes a task (n) give them peers"
    groups: dict[str, set[float]] = {}
    for unit in units:
        if not unit.alone:
            groups.setdefault(unit.peers, set()).add(unit.reward)
    flat = [rewards for rewards in groups.values() if len(rewards) == 1]
    if flat:
        values = Counter(next(iter(rewards)) for rewards in flat)
        found = ", ".join(f"{count} at {value:g}" for value, count in sorted(values.items()))
        yield (f"{len(flat)} of {len(groups)} sets of peers have zero spread ({found}); {_spread_move(values)}")


def _spread_move(values: Counter[float]) -> str:
    if set(values) == {0.0}:
        return "the tasks are too hard for the policy, or the reward never reaches it"
    if len(values) == 1:
        return "the tasks are too easy, or the reward cannot tell replies apart"
    return (
        "every task is always solved or never: choose tasks in between, more episodes a task, or a higher temperature"
    )


def _reward_reasons(rewarded: Sequence[Rewarded]) -> Iterable[Reason]:
    """What the marks of the rewards say, by role; silent where a mark is rare."""
    roles: dict[str, list[Reward]] = {}
    for _, turn, reward in rewarded:
        roles.setdefault(turn.role, []).append(reward)
    for role, rewards in roles.items():
        for mark, move in NEXT_MOVES.items():
            hit = sum(mark in reward.parts for reward in rewards)
            if 2 * hit >= len(rewards):
                text = f"{hit} of {len(rewards)} turns of {role!r} are {mark}: {move}"
                yield Reason(text=text, role=role, mark=mark)
    silent = _silent_parse_failures(rewarded)
    if silent:
        yield Reason(text=silent)
    broken = sum(one.episode.outcome_class.failed for one, _, _ in rewarded)
    if broken and 2 * broken < len(rewarded):
        yield Reason(text=f"{broken} of {len(rewarded)} turns belong to failed episodes", mark="failed")


def _silent_parse_failures(rewarded: Sequence[Rewarded]) -> str:
    """Claims that could not be parsed under a reward that does not say so, such as a broadcast outcome."""
    claims = [(turn, reward) for _, turn, reward in rewarded if turn.claim is not None]
    lost = [turn for turn, reward in claims if unparsed(turn) and "unparsed" not in reward.parts and not turn.truncated]
    if not lost or 2 * len(lost) < len(claims):
        return ""
    by_role = ", ".join(f"{role!r} {count}" for role, count in sorted(Counter(turn.role for turn in lost).items()))
    return f"{len(lost)} of {len(claims)} claims could not be parsed ({by_role}): {NEXT_MOVES['unparsed']}"


def _classes(graded: Sequence[GradedEpisode]) -> str:
    counts = Counter(one.episode.outcome_class for one in graded)
    return ", ".join(f"{counts[kind]} {kind}" for kind in OutcomeClass if counts[kind])
