"""Conformance of rewards and algorithms, and tiny graded episodes to try them on.

`check_reward` and `check_algorithm` return complaints, and none when all is well; each says what was seen, what was
wanted, and what to do.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rolecall.algorithms.base import Algorithm, CreditResult
from rolecall.records import (
    Claim,
    ClaimKind,
    Completion,
    Episode,
    Failure,
    Grade,
    GradedEpisode,
    GradeStatus,
    Key,
    Outcome,
    OutcomeClass,
    Reward,
    Stop,
    Task,
    Turn,
)
from rolecall.rewards.base import RewardFunction

RIGHT = Grade(status=GradeStatus.RIGHT, score=1.0)
WRONG = Grade(status=GradeStatus.WRONG, score=0.0)
GRADER_FAILED = Grade(status=GradeStatus.FAILED, score=None, detail="the grader failed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """One turn of a made-up episode: who spoke, what it claimed, about which turn (a position in the episode).

    `grade` is the grade of an answer (or of a choice); `kind=None` claims nothing.
    """

    role: str
    value: str | None = None
    kind: ClaimKind | None = ClaimKind.ANSWER
    about: int | None = None
    grade: Grade | None = None
    copy: int = 0
    stop: Stop = Stop.EOS
    prompt_ids: tuple[int, ...] = (1, 2)
    policy: str = "shared"


def solution(right: bool | None, role: str = "solver", **more: object) -> Said:
    """A turn that claims an answer: right, wrong, or (None) one whose grader failed.

    >>> solution(True).grade.right
    True
    """
    grade = GRADER_FAILED if right is None else RIGHT if right else WRONG
    return replace(Said(role=role, value="42" if right else "41", grade=grade), **more)  # type: ignore[arg-type]


def report(verdict: str | None, about: int = 0, role: str = "verifier", **more: object) -> Said:
    """A turn that claims a verdict about an earlier turn."""
    return replace(Said(role=role, value=verdict, kind=ClaimKind.VERDICT, about=about), **more)  # type: ignore[arg-type]


def made_episode(
    *said: Said,
    task: str = "t",
    index: int = 0,
    team: Grade = WRONG,
    outcome_class: OutcomeClass = OutcomeClass.OK,
    question: str | None = None,
) -> GradedEpisode:
    """A graded episode out of what was said in it; ids are `<task>/<index>` and `<task>/<index>/<position>`."""
    episode_id = f"{task}/{index}"
    turns: list[Turn] = []
    answers: dict[str, Grade] = {}
    for position, one in enumerate(said):
        turn_id = f"{episode_id}/{position}"
        call = sum(turn.key[:2] == (one.role, one.copy) for turn in turns)
        if one.grade is not None:
            answers[turn_id] = one.grade
        key = Key(one.role, one.copy, call)
        completion = Completion(token_ids=(3, 0), logprobs=(-0.5, -0.1), versions=(0, 0), stop=one.stop)
        turn = Turn(
            id=turn_id,
            key=key,
            policy=one.policy,
            messages=({"role": "user", "content": "?"},),
            prompt_ids=one.prompt_ids,
            completion=completion,
            text=None if one.stop is Stop.LENGTH else str(one.value),
            claim=None if one.kind is None else Claim(kind=one.kind, value=one.value),
            about=None if one.about is None else turns[one.about].id,
            parent=turns[-1].id if turns else None,
            peers=f"{task}/{key}/{'-'.join(map(str, one.prompt_ids))}",  # as if drawn together for one input
        )
        turns.append(turn)
    episode = Episode(
        id=episode_id,
        task=Task(id=task, question=question or f"question {task}", answer="42"),
        index=index,
        turns=tuple(turns),
        outcome=None if outcome_class.failed else Outcome(answer=said[-1].value if said else None),
        outcome_class=outcome_class,
        failure=Failure(kind="workflow", where="workflow", detail="made up") if outcome_class.failed else None,
    )
    return GradedEpisode(episode=episode, team=team, answers=answers)


def made_step() -> list[GradedEpisode]:
    """Two tasks of four episodes with right and wrong turns, an unparsed report, a truncation and a failure."""
    episodes = []
    for task in ("a", "b"):
        right, wrong = solution(True), solution(False)
        repaired = solution(True, role="corrector", about=1)
        episodes += [
            made_episode(right, report("correct"), task=task, index=0, team=RIGHT),
            made_episode(wrong, report("wrong"), repaired, task=task, index=1, team=RIGHT),
            made_episode(wrong, report("correct"), task=task, index=2),
            made_episode(right, report("wrong"), solution(False, "corrector", about=1), task=task, index=3),
        ]
    truncated = solution(False, value=None, stop=Stop.LENGTH)
    episodes.append(made_episode(truncated, report(None), task="c", outcome_class=OutcomeClass.TRUNCATED))
    episodes.append(made_episode(solution(True), task="c", index=1, outcome_class=OutcomeClass.ERROR))
    return episodes


def check_reward(reward: RewardFunction, episodes: Sequence[GradedEpisode] | None = None) -> list[str]:
    """Complaints about a reward, tried on `episodes` (default: `made_step()`)."""
    episodes = made_step() if episodes is None else episodes
    found: dict[str, Mapping[str, Reward]] = {}
    complaints: list[str] = []
    for one in episodes:
        given: object = reward(one)
        if not isinstance(given, Mapping):
            return [
                f"the reward returned {type(given).__name__}; wanted a mapping from turn id to `Reward`: return a dict"
            ]
        found[one.episode.id] = given
        complaints += _shape(one, given)
        if not complaints and dict(reward(one)) != dict(given):
            complaints.append(
                f"the reward of episode {one.episode.id} changed when asked again; wanted a pure function: draw no "
                f"random numbers and keep no state in a reward"
            )
    if complaints:
        return complaints
    complaints += _unnamed_broadcast(episodes, found)
    complaints += [line for one in episodes for line in _grader_failure(reward, one, found[one.episode.id])]
    return complaints


def _shape(one: GradedEpisode, given: Mapping[str, Reward]) -> Iterator[str]:
    """Every turn, no other, each with finite numbers."""
    wanted = {turn.id for turn in one.episode.turns}
    for turn_id in sorted(set(given) - wanted):
        yield f"the reward names turn {turn_id!r}, which {one.episode.id} does not have; use the ids of its turns"
    for turn_id in sorted(wanted - set(given)):
        yield f"the reward gives nothing for turn {turn_id!r}; wanted one for every turn; total=None means no reward"
    for turn_id in sorted(wanted & set(given)):
        value: object = given[turn_id]
        if not isinstance(value, Reward):
            yield f"the reward of turn {turn_id!r} is {value!r}; wanted a `Reward` with named parts and a total"
            continue
        numbers = [*value.parts.values(), *([] if value.total is None else [value.total])]
        if not all(math.isfinite(number) for number in numbers):
            yield f"the reward of turn {turn_id!r} is {value}; wanted finite numbers, or total=None for no reward"
        if value.total is not None and not value.parts:
            yield f"the reward of turn {turn_id!r} is {value.total} without parts; name what it is made of in `parts`"


def _unnamed_broadcast(episodes: Sequence[GradedEpisode], found: Mapping[str, Mapping[str, Reward]]) -> Iterator[str]:
    """A number that follows the team's grade for turns that were alike right and wrong is the team's, and says so."""
    rewards = [
        (one, reward) for one in episodes for reward in found[one.episode.id].values() if reward.total is not None
    ]
    follows = all(
        reward.total == one.team.score for one, reward in rewards if one.episode.outcome_class is OutcomeClass.OK
    )
    mixed = any(len({grade.status for grade in one.answers.values()}) > 1 for one in episodes)
    if rewards and follows and mixed and not any(reward.team for _, reward in rewards):
        yield (
            "every turn's reward equals the team's score, also where the turns of one episode are not alike right, and "
            "`team` is False; a broadcast outcome must be named: give `Reward(..., team=True)`"
        )


def _grader_failure(reward: RewardFunction, one: GradedEpisode, before: Mapping[str, Reward]) -> Iterator[str]:
    """When every grader fails, what depended on a grade becomes None; it does not become a number."""
    if one.episode.outcome_class is not OutcomeClass.OK:
        return
    broken = replace(one, team=GRADER_FAILED, answers=dict.fromkeys(one.answers, GRADER_FAILED))
    for turn_id, after in reward(broken).items():
        if after.total is not None and after.total != before[turn_id].total:
            yield (
                f"the reward of turn {turn_id!r} went from {before[turn_id].total} to {after.total} when the grader "
                f"failed; wanted total=None: a failed grader says nothing about the turn"
            )


def check_algorithm(algorithm: Algorithm, episodes: Sequence[GradedEpisode] | None = None) -> list[str]:
    """Complaints about an algorithm's reward and credit, tried on `episodes` (default: `made_step()`)."""
    episodes = made_step() if episodes is None else episodes
    complaints = check_reward(algorithm.reward, episodes)
    if complaints:
        return complaints
    result = algorithm.advantages(episodes)
    complaints += [*_units(result), *_constant(algorithm, result), *_order(algorithm, episodes, result)]
    try:
        state = json.loads(json.dumps(dict(result.state)))
    except (TypeError, ValueError) as error:
        return [
            *complaints,
            f"the state cannot be checkpointed ({error}); wanted plain JSON values: numbers, strings, dicts",
        ]
    again, restored = algorithm.advantages(episodes, result.state), algorithm.advantages(episodes, state)
    if again.advantages != restored.advantages:
        complaints.append(
            "a step from a restored state gives other advantages; keep everything a step needs in the state"
        )
    return complaints


def _units(result: CreditResult) -> Iterator[str]:
    seen: dict[str, str] = {}
    rewarded = {id_ for one in result.scored for id_, reward in one.rewards.items() if reward.total is not None}
    for unit in result.units:
        if not math.isfinite(unit.advantage):
            yield f"unit {unit.id!r} has the advantage {unit.advantage}; wanted a finite number: look at the estimator"
        for turn_id in unit.turn_ids:
            if turn_id in seen:
                yield f"turn {turn_id!r} is in the units {seen[turn_id]!r} and {unit.id!r}; wanted each turn once"
            if turn_id not in rewarded:
                yield f"turn {turn_id!r} has no reward and is in unit {unit.id!r}; leave it out: it is not trained"
            seen[turn_id] = unit.id
    for turn_id in sorted(rewarded - set(seen)):
        yield f"turn {turn_id!r} has a reward and is in no unit; every turn with a reward needs a unit"


def _constant(algorithm: Algorithm, result: CreditResult) -> Iterator[str]:
    if not algorithm.needs_peers:
        return
    peers: dict[str, list[tuple[float, float]]] = {}
    for unit in result.units:
        if not unit.alone:
            peers.setdefault(unit.peers, []).append((unit.reward, unit.advantage))
    for key, pairs in peers.items():
        moved = [advantage for _, advantage in pairs if advantage != 0]
        if len({reward for reward, _ in pairs}) == 1 and moved:
            yield (
                f"the peers {key} all have the reward {pairs[0][0]} and one has the advantage {moved[0]}; wanted "
                f"exactly 0: compare the rewards before dividing by their deviation"
            )


def _order(algorithm: Algorithm, episodes: Sequence[GradedEpisode], result: CreditResult) -> Iterator[str]:
    shuffled = list(episodes)
    random.Random(0).shuffle(shuffled)
    if algorithm.advantages(shuffled).advantages != result.advantages:
        yield "the advantages change with the order of the episodes; sort what you fold or sum over by an id"
