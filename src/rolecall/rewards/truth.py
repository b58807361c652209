"""What is true of a turn: the graders' words about the answer it claims, or about the answer that it judges or chooses.

The kind of a turn is read from its claim, never from the name of its role.
"""

from __future__ import annotations

from rolecall.errors import GraderError, WorkflowError
from rolecall.records import ClaimKind, GradedEpisode, GradeStatus, Turn, Verdict

MAX_DIGITS = 9
"""Of the number of a candidate; Python refuses to read thousands of digits."""


def answer_status(graded: GradedEpisode, turn: Turn) -> GradeStatus | None:
    """Whether the answer that `turn` claims is right; None when it claims no answer.

    An answer that could not be parsed is wrong. A parsed one without a grade breaks the contract of `GradedEpisode`.
    """
    if turn.claim is None or turn.claim.kind is not ClaimKind.ANSWER:
        return None
    grade = graded.answers.get(turn.id)
    if grade is not None:
        return grade.status
    if turn.claim.value is None:
        return GradeStatus.WRONG
    raise GraderError(
        f"turn {turn.id!r} ({turn.key}) of episode {graded.episode.id} claims the answer {turn.claim.value!r} and has "
        f"no grade; `GradedEpisode.answers` must hold one for every turn that claims an answer: grade it, or give it a "
        f"`Grade` of status failed"
    )


def judged_status(graded: GradedEpisode, turn: Turn) -> GradeStatus | None:
    """Whether the answer in the turn that `turn` is about is right; None when that turn claims no answer."""
    if turn.about is None:
        return None
    return answer_status(graded, _turn(graded, turn.about, f"turn {turn.id!r} ({turn.key}) is about"))


def chosen_status(graded: GradedEpisode, turn: Turn) -> GradeStatus | None:
    """Whether the answer that a choosing turn chose is right; None when nothing says so.

    A grade under the choosing turn's own id comes first; else the claim's value is the number of a candidate, from 1,
    in the order of `candidates`, or the id of the chosen turn.
    """
    grade = graded.answers.get(turn.id)
    if grade is not None:
        return grade.status
    if turn.claim is None or turn.claim.value is None:
        return None
    if turn.claim.value.isdecimal() and len(turn.claim.value) <= MAX_DIGITS:
        offered = candidates(graded, turn)
        number = int(turn.claim.value)
        return answer_status(graded, offered[number - 1]) if 1 <= number <= len(offered) else None
    if all(turn.claim.value != other.id for other in graded.episode.path):
        return None
    return answer_status(graded, graded.episode.turn(turn.claim.value))


def candidates(graded: GradedEpisode, turn: Turn) -> list[Turn]:
    """What a choosing turn chooses from: the turns made side by side with the one that it is about, by copy; those of
    other roles too where they answer the same prompt."""
    if turn.about is None:
        return []
    first = _turn(graded, turn.about, f"turn {turn.id!r} ({turn.key}) is about")
    beside = [
        other
        for other in graded.episode.path
        if (other.role, other.key.call) == (first.role, first.key.call)
        or (other.role != first.role and (other.parent, other.messages) == (first.parent, first.messages))
    ]
    return sorted(beside, key=lambda other: other.key.copy)


def verdict_of(turn: Turn) -> Verdict:
    """The verdict that a judging turn claims; a claim without a value is `UNPARSED`."""
    if turn.claim is None or turn.claim.value is None:
        return Verdict.UNPARSED
    if turn.claim.value not in set(Verdict):
        raise WorkflowError(
            f"turn {turn.id!r} ({turn.key}) claims the verdict {turn.claim.value!r}; wanted one of "
            f"{', '.join(Verdict)}: let the workflow parse the report strictly and claim a `Verdict`"
        )
    return Verdict(turn.claim.value)


def unparsed(turn: Turn) -> bool:
    """Whether the turn should have claimed something and no parser could read what."""
    if turn.claim is None:
        return False
    return verdict_of(turn) is Verdict.UNPARSED if turn.claim.kind is ClaimKind.VERDICT else turn.claim.value is None


def _turn(graded: GradedEpisode, turn_id: str, what: str) -> Turn:
    for turn in graded.episode.path:
        if turn.id == turn_id:
            return turn
    raise WorkflowError(
        f"{what} {turn_id!r}, which episode {graded.episode.id} does not have; `about` must name an earlier turn of "
        f"the same episode"
    )
