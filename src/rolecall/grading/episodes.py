"""Grades of whole episodes: the team's final answer, and every turn that claims an answer.

An episode that failed has no answer, whatever its outcome holds: one that a workflow declared invalid is not right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rolecall.grading.pool import GraderPool
from rolecall.records import ClaimKind, Episode, Grade, GradedEpisode, Task

Pair = tuple[str | None, Task]


def grade_episodes(episodes: Sequence[Episode], pool: GraderPool) -> list[GradedEpisode]:
    """Every episode with its grades, in order; one answer to one task is graded once. No answer is a wrong answer."""
    pairs = _distinct(episodes)
    return _assemble(episodes, dict(zip(pairs, pool.grade(list(pairs.values())), strict=True)))


async def grade_episodes_async(episodes: Sequence[Episode], pool: GraderPool) -> list[GradedEpisode]:
    """`grade_episodes` that does not block the event loop."""
    pairs = _distinct(episodes)
    return _assemble(episodes, dict(zip(pairs, await pool.grade_many(list(pairs.values())), strict=True)))


def team_answer(episode: Episode) -> str | None:
    """The answer that the team is graded by: None for an episode that failed."""
    return None if episode.outcome_class.failed else episode.answer


def _distinct(episodes: Sequence[Episode]) -> dict[tuple[str, str | None], Pair]:
    found: dict[tuple[str, str | None], Pair] = {}
    for episode in episodes:
        for answer in [team_answer(episode), *(value for _, value in _claims(episode))]:
            found.setdefault((episode.task.id, answer), (answer, episode.task))
    return found


def _claims(episode: Episode) -> Iterator[tuple[str, str | None]]:
    """Turn id and claimed answer of each turn on the path that claims one."""
    for turn in episode.path:
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER:
            yield turn.id, turn.claim.value


def _assemble(episodes: Sequence[Episode], grades: dict[tuple[str, str | None], Grade]) -> list[GradedEpisode]:
    return [
        GradedEpisode(
            episode=episode,
            team=grades[episode.task.id, team_answer(episode)],
            answers={turn_id: grades[episode.task.id, value] for turn_id, value in _claims(episode)},
        )
        for episode in episodes
    ]
