"""A reward of the turn's own: what it claimed, against the truth (MarsRL, arXiv 2511.11373 section 3)."""

from __future__ import annotations

from dataclasses import dataclass

from rolecall.errors import ConfigError, nearest
from rolecall.records import ClaimKind, GradedEpisode, GradeStatus, Reward, Turn, Verdict
from rolecall.rewards.base import marked
from rolecall.rewards.truth import answer_status, chosen_status, judged_status, unparsed, verdict_of

FAILURE_RULES = ("zero", "keep")


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSpecific:
    """Each turn is judged by what it claims itself, under the part `correct`; no reward flows from later turns.

    - an answer (solver, corrector): 1 when it is right, else 0, whatever the turn before it was;
    - a verdict (verifier): 1 when it equals the truth about the turn it is about, else 0;
    - a choice (aggregator): 1 when the chosen answer is right, else 0.

    | verdict  | the answer is right | the answer is wrong |
    |----------|---------------------|---------------------|
    | correct  | 1                   | 0                   |
    | wrong    | 0                   | 1                   |
    | unparsed | 0                   | 0                   |

    0 with a mark: a truncated turn, an unparsed claim, and, under `on_failure = "zero"`, every turn of a failed
    episode ("keep": what the turns before the failure earned stands; with `rollout.on_failure = "keep"`). No reward, so
    not trained, with a mark: a grader that failed (`ungraded`), and a turn that claims nothing checkable, such as a
    plan, or a verdict about a turn that claims no answer (`unjudged`).
    """

    on_failure: str = "zero"

    def __post_init__(self) -> None:
        if self.on_failure not in FAILURE_RULES:
            known = ", ".join(FAILURE_RULES)
            hint = nearest(str(self.on_failure), FAILURE_RULES)
            raise ConfigError(f"agent_specific.on_failure is {self.on_failure!r}; wanted one of {known}{hint}")

    def __call__(self, graded: GradedEpisode) -> dict[str, Reward]:
        return {turn.id: self._reward(graded, turn) for turn in graded.episode.turns}

    def _reward(self, graded: GradedEpisode, turn: Turn) -> Reward:
        if graded.episode.outcome_class.failed and self.on_failure == "zero":
            return marked("correct", "failed", 0.0)
        if turn.truncated:
            return marked("correct", "truncated", 0.0)
        if turn.claim is None:
            return marked("correct", "unjudged", None)
        if unparsed(turn):
            return marked("correct", "unparsed", 0.0)
        if turn.claim.kind is ClaimKind.VERDICT:
            return _verdict(graded, turn)
        choice = turn.claim.kind is ClaimKind.CHOICE
        status = chosen_status(graded, turn) if choice else answer_status(graded, turn)
        return _correct(status, wanted=GradeStatus.RIGHT)


def _verdict(graded: GradedEpisode, turn: Turn) -> Reward:
    said = GradeStatus.RIGHT if verdict_of(turn) is Verdict.CORRECT else GradeStatus.WRONG
    return _correct(judged_status(graded, turn), wanted=said)


def _correct(status: GradeStatus | None, *, wanted: GradeStatus) -> Reward:
    if status is None:
        return marked("correct", "unjudged", None)
    if status is GradeStatus.FAILED:
        return marked("correct", "ungraded", None)
    value = float(status is wanted)
    return Reward(parts={"correct": value}, total=value)
