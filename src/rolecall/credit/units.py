"""Credit units: which turns share one reward, and which units are compared with each other."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rolecall.errors import ConfigError, RolecallError, nearest
from rolecall.records import ClaimKind, CreditUnit, Episode, GradedEpisode, Reward, Task, Turn
from rolecall.rewards.truth import judged_status

UNITS = ("turn", "trajectory", "episode")
REDUCES = ("mean", "last", "sum")
PEERS: Mapping[str, str] = {
    "task": "all units of a task",
    "task_role": "units of one role on a task",
    "task_trajectory": "units of one copy of a role on a task; the copies of the roles in `merge_copies` are one",
    "task_role_turn": "the n-th calls of one role on a task",
    "task_role_truth": "as task_role, and verdicts only with those about answers that are alike right or wrong",
    "prompt": "turns of one role on a task with byte-identical prompt ids",
    "drawn": "candidates drawn together for one call (agentic groups); a mixed prompt among them is an error",
    "role": "all units of a role, over all tasks",
}
TURN_PEERS = frozenset({"task_role_turn", "task_role_truth", "prompt", "drawn"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Grouping:
    """How turns become units (`unit`, `reduce`) and units become peers (`peers`, `merge_copies`).

    `unit`: one turn; a trajectory (the turns of one role and copy in an episode); or the whole episode, which gets one
    reward and one advantage and is then split by role and policy. `reduce` makes the unit's reward out of those of its
    turns: their mean, the last, or their sum; of a broadcast reward mean and last are the reward itself.

    Two units are peers only when they are of one task (same id, question and answer), except under `role`. Units that
    all come from one episode are not peers, whatever their key says, except under `prompt` and `drawn`: there two
    samples of one prompt are comparable wherever they were drawn.
    """

    unit: str = "turn"
    peers: str = "task_role"
    reduce: str = "mean"
    merge_copies: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, known in (
            ("unit", self.unit, UNITS),
            ("peers", self.peers, tuple(PEERS)),
            ("reduce", self.reduce, REDUCES),
        ):
            if value not in known:
                raise ConfigError(f"{name} is {value!r}; wanted one of {', '.join(known)}{nearest(str(value), known)}")
        if self.unit == "episode" and self.peers != "task":
            raise ConfigError(
                f"unit = 'episode' with peers = {self.peers!r}: a whole episode has several roles and prompts; use "
                f"peers = 'task', or unit = 'trajectory' or 'turn'"
            )
        if self.peers in TURN_PEERS and self.unit != "turn":
            raise ConfigError(f"peers = {self.peers!r} compares single turns, and unit is {self.unit!r}; use 'turn'")
        if self.merge_copies and self.peers != "task_trajectory":
            raise ConfigError(
                f"merge_copies = {list(self.merge_copies)} has no effect with peers = {self.peers!r}; it belongs to "
                f"'task_trajectory'"
            )

    @property
    def within_episode(self) -> bool:
        """Whether units of a single episode may be compared with each other."""
        return self.peers in ("prompt", "drawn")


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A graded episode with the reward of each of its turns, by turn id."""

    graded: GradedEpisode
    rewards: Mapping[str, Reward]

    @property
    def episode(self) -> Episode:
        return self.graded.episode


@dataclass(frozen=True, kw_only=True, slots=True)
class Units:
    """Credit units without advantages yet. Turns and units without a reward, and episodes that ended before their
    first turn, are counted and not kept."""

    units: tuple[CreditUnit, ...]
    unrewarded_turns: int
    unrewarded_units: int
    empty_episodes: int


def build_units(scored: Sequence[Scored], grouping: Grouping) -> Units:
    """Put the turns that have a reward into units, in an order that does not depend on the order of the episodes."""
    scored = sorted(scored, key=lambda s: s.episode.id)
    _check_ids(scored, grouping)
    if grouping.peers == "drawn":
        _check_drawn(scored)
    if grouping.peers != "role":
        _check_tasks(scored)
    bundles: dict[str, list[tuple[Scored, Turn]]] = {}
    for one in scored:
        for turn in one.episode.turns:
            bundles.setdefault(_unit_id(one.episode, turn, grouping.unit), []).append((one, turn))
    units = [_unit(unit_id, bundle, grouping) for unit_id, bundle in bundles.items()]
    missing = {turn.id for one in scored for turn in one.episode.turns if one.rewards[turn.id].total is None}
    kept = sorted((unit for unit in units if unit is not None), key=lambda unit: unit.id)
    in_units = {turn_id for unit in kept for turn_id in unit.turn_ids}
    return Units(
        units=tuple(kept),
        unrewarded_turns=len(missing - in_units),
        unrewarded_units=sum(unit is None for unit in units),
        empty_episodes=sum(not one.episode.turns for one in scored),
    )


def split_by_role(units: Iterable[CreditUnit], turns: Mapping[str, Turn]) -> tuple[CreditUnit, ...]:
    """Give each (role, policy) of a whole-episode unit a unit of its own with the same reward and advantage."""
    split = []
    for unit in units:
        owners: dict[tuple[str, str], list[str]] = {}
        for turn_id in unit.turn_ids:
            owners.setdefault((turns[turn_id].role, turns[turn_id].policy), []).append(turn_id)
        for (role, policy), turn_ids in owners.items():
            split.append(_copy(unit, f"{unit.id}/{role}/{policy}", role, policy, turn_ids))
    return tuple(split)


def problem_hash(task: Task) -> str:
    """Names the problem itself: a digest of id, question and answer."""
    return hashlib.sha256(json.dumps([task.id, task.question, task.answer]).encode()).hexdigest()[:16]


def _copy(unit: CreditUnit, unit_id: str, role: str, policy: str, turn_ids: Sequence[str]) -> CreditUnit:
    return CreditUnit(
        id=unit_id,
        role=role,
        policy=policy,
        task_id=unit.task_id,
        episode_id=unit.episode_id,
        turn_ids=tuple(turn_ids),
        peers=unit.peers,
        reward=unit.reward,
        advantage=unit.advantage,
        alone=unit.alone,
    )


def _unit_id(episode: Episode, turn: Turn, unit: str) -> str:
    if unit == "turn":
        return turn.id
    if unit == "trajectory":
        return f"{episode.id}/{turn.key.role}/{turn.key.copy}"
    return episode.id


def _unit(unit_id: str, bundle: Sequence[tuple[Scored, Turn]], grouping: Grouping) -> CreditUnit | None:
    """One unit out of its turns (or of the rewards of one turn on several branches); None without a reward."""
    rewarded = [(one, turn, one.rewards[turn.id].total) for one, turn in bundle]
    rewards = [total for _, _, total in rewarded if total is not None]
    if not rewards:
        return None
    first, turn = bundle[0]
    whole = grouping.unit == "episode"  # its role and policy are known after `split_by_role`
    return CreditUnit(
        id=unit_id,
        role="" if whole else turn.role,
        policy="" if whole else turn.policy,
        task_id=first.episode.task.id,
        episode_id=first.episode.id,
        turn_ids=tuple(dict.fromkeys(turn.id for _, turn, total in rewarded if total is not None)),
        peers=_peers_key(first.graded, turn, grouping),
        reward=_reduce(rewards, "mean" if grouping.unit == "turn" else grouping.reduce),
    )


def _reduce(rewards: Sequence[float], how: str) -> float:
    if how == "last":
        return rewards[-1]
    if how == "sum":
        return math.fsum(rewards)
    if all(reward == rewards[0] for reward in rewards):
        return rewards[0]  # a broadcast reward stays the very number it is: a mean may round
    return math.fsum(rewards) / len(rewards)


def _peers_key(graded: GradedEpisode, turn: Turn, grouping: Grouping) -> str:
    """A key in JSON, so that no task id or role name can be mistaken for two parts of another key."""
    task = graded.episode.task.id
    if grouping.peers == "role":
        return json.dumps([turn.role])
    return json.dumps([task, *_PEER_PARTS[grouping.peers](graded, turn, grouping)])


def _trajectory_name(_: GradedEpisode, turn: Turn, grouping: Grouping) -> list[str | int]:
    return [turn.role] if turn.role in grouping.merge_copies else [turn.role, turn.key.copy]


def _truth(graded: GradedEpisode, turn: Turn, _: Grouping) -> list[str | int]:
    if turn.claim is None or turn.claim.kind is not ClaimKind.VERDICT:
        return [turn.role]
    status = judged_status(graded, turn)
    return [turn.role, "nothing to judge" if status is None else str(status)]


def _prompt(_: GradedEpisode, turn: Turn, __: Grouping) -> list[str | int]:
    return [turn.role, hashlib.sha256(json.dumps(turn.prompt_ids).encode()).hexdigest()[:16]]


_PEER_PARTS: Mapping[str, Callable[[GradedEpisode, Turn, Grouping], list[str | int]]] = {
    "task": lambda graded, turn, grouping: [],
    "task_role": lambda graded, turn, grouping: [turn.role],
    "task_trajectory": _trajectory_name,
    "task_role_turn": lambda graded, turn, grouping: [turn.role, turn.key.call],
    "task_role_truth": _truth,
    "prompt": _prompt,
    "drawn": lambda graded, turn, grouping: [turn.role, turn.peers],
}


def _check_ids(scored: Sequence[Scored], grouping: Grouping) -> None:
    """Every episode once; one turn id means one turn; every turn has a reward that is a number or None."""
    seen: dict[str, tuple[str, Turn]] = {}
    episodes: set[str] = set()
    for one in scored:
        if one.episode.id in episodes:
            raise RolecallError(
                f"episode {one.episode.id!r} is credited twice in one step; give each episode its own id"
            )
        episodes.add(one.episode.id)
        for turn in one.episode.turns:
            _check_reward(one, turn)
            other_episode, other = seen.setdefault(turn.id, (one.episode.id, turn))
            where = f"turn {turn.id!r} of episode {one.episode.id!r}"
            if other != turn:
                raise RolecallError(
                    f"{where} is another turn in episode {other_episode!r}; turn ids are unique in a run"
                )
            if other_episode != one.episode.id and grouping.unit != "turn":
                raise RolecallError(
                    f"{where} is also on the branch of episode {other_episode!r}, and unit = {grouping.unit!r} would "
                    f"train it twice; use unit = 'turn', which credits it once with the mean over its branches"
                )


def _check_drawn(scored: Sequence[Scored]) -> None:
    """Candidates that name one set of peers were drawn for one prompt."""
    first: dict[str, Turn] = {}
    for turn in (turn for one in scored for turn in one.episode.turns):
        other = first.setdefault(turn.peers, turn)
        if not turn.peers or other.prompt_ids != turn.prompt_ids:
            raise RolecallError(
                f"turns {other.id!r} and {turn.id!r} are peers of {turn.peers!r} and have prompts of "
                f"{len(other.prompt_ids)} and {len(turn.prompt_ids)} tokens that differ; peers = 'drawn' compares the "
                f"candidates of one call: draw them with agentic groups, or use peers = 'prompt'"
            )


def _check_reward(one: Scored, turn: Turn) -> None:
    where = f"turn {turn.id!r} ({turn.key}) of episode {one.episode.id!r}"
    rewards: object = one.rewards
    if not isinstance(rewards, Mapping):
        raise RolecallError(f"the reward gave {rewards!r:.80} for {where}; wanted a table of turn ids to Reward(...)")
    if turn.id not in one.rewards:
        raise RolecallError(
            f"the reward gave nothing for {where}; it must name every turn, with total=None for no reward"
        )
    reward: object = one.rewards[turn.id]
    if not isinstance(reward, Reward):
        raise RolecallError(f"the reward of {where} is {reward!r:.80}; wanted Reward(parts=..., total=...)")
    total: object = reward.total
    if total is not None and not (isinstance(total, int | float) and math.isfinite(total)):
        raise RolecallError(f"the reward of {where} is {total!r:.80}; wanted a finite number, or None for no reward")


def _check_tasks(scored: Sequence[Scored]) -> None:
    """One task id means one problem: peers that worked on different problems are never compared."""
    first: dict[str, Episode] = {}
    for one in scored:
        task = one.episode.task
        other = first.setdefault(task.id, one.episode)
        if problem_hash(other.task) != problem_hash(task):
            raise RolecallError(
                f"the peers of task {task.id!r} mix two problems: {other.task.question[:80]!r} (answer "
                f"{other.task.answer!r}, episode {other.id}) and {task.question[:80]!r} (answer {task.answer!r}, "
                f"episode {one.episode.id}); all episodes of a task must work on one problem: draw problems in the "
                f"task source, not inside the workflow, and give each its own id"
            )
