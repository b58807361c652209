"""What each role does, counted from graded episodes: accuracy, verdicts, length, truncation, parse failures.

No torch and no model: the same figures serve training steps, validation and evaluation. Every rate states its
denominator through `Estimate.n`, and rates of zero trials are absent, never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rolecall.dynamics.likeness import likeness, repeated_texts
from rolecall.intervals import Estimate, proportion
from rolecall.records import ClaimKind, Grade, GradedEpisode, GradeStatus, OutcomeClass, Turn, Verdict
from rolecall.rewards.truth import candidates, chosen_status


@dataclass(slots=True)
class RateByTask:
    """Values in [0, 1] by task, so that intervals are clustered."""

    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, task_id: str, value: float) -> None:
        self.values[task_id].append(float(value))

    def estimate(self) -> Estimate:
        return proportion(list(self.values.values()))

    @property
    def trials(self) -> list[float]:
        return [value for values in self.values.values() for value in values]


Rates = dict[str, dict[str, RateByTask]]


def _answer_rates(rates: dict[str, RateByTask], turn: Turn, graded: GradedEpisode, task_id: str) -> None:
    grade = graded.answers.get(turn.id)
    if grade is None or grade.status is GradeStatus.FAILED:
        return
    rates["accuracy"].add(task_id, grade.right)
    source = answer_behind(turn, graded)
    if source is None:
        return
    before = graded.answers.get(source.id)
    if before is None or before.status is GradeStatus.FAILED:
        return
    rates["kept_right" if before.right else "repaired"].add(task_id, grade.right)
    if turn.claim is not None and source.claim is not None:
        copied = turn.claim.value == source.claim.value
        rates["copied_input"].add(task_id, copied)
        if not before.right:
            rates["copied_wrong"].add(task_id, copied)


def _verdict_rates(rates: dict[str, RateByTask], turn: Turn, graded: GradedEpisode, task_id: str) -> None:
    assert turn.claim is not None
    verdict = turn.claim.value
    rates["says_correct"].add(task_id, verdict == Verdict.CORRECT)
    rates["says_wrong"].add(task_id, verdict == Verdict.WRONG)
    truth: Grade | None = graded.answers.get(turn.about) if turn.about else None
    if truth is None or truth.status is GradeStatus.FAILED:
        return
    rates["judged_right"].add(task_id, truth.right)
    expected = Verdict.CORRECT if truth.right else Verdict.WRONG
    rates["accuracy"].add(task_id, verdict == expected)
    if truth.right:
        rates["false_alarm"].add(task_id, verdict == Verdict.WRONG)
    else:
        rates["recall"].add(task_id, verdict == Verdict.WRONG)


def _choice_rates(rates: dict[str, RateByTask], turn: Turn, graded: GradedEpisode, task_id: str) -> None:
    offered = [graded.answers[one.id] for one in candidates(graded, turn) if one.id in graded.answers]
    if not offered or any(grade.status is GradeStatus.FAILED for grade in offered):
        return
    possible = any(grade.right for grade in offered)
    right = chosen_status(graded, turn) is GradeStatus.RIGHT
    rates["possible"].add(task_id, possible)
    rates["accuracy"].add(task_id, right)
    if possible and not all(grade.right for grade in offered):
        rates["chose_right"].add(task_id, right)


def _side_by_side(graded: GradedEpisode) -> list[tuple[str, list[Turn]]]:
    """The answers that copies of one role gave in one call each, where there are two or more."""
    groups: dict[tuple[str, int], list[Turn]] = defaultdict(list)
    for turn in graded.episode.turns:
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER:
            groups[turn.role, turn.key.call].append(turn)
    return [(role, turns) for (role, _), turns in groups.items() if len({turn.key.copy for turn in turns}) > 1]


def answer_behind(turn: Turn, graded: GradedEpisode) -> Turn | None:
    """The turn with an answer that `turn` goes back to along `about`: a corrector's original solution."""
    by_id = {t.id: t for t in graded.episode.path}
    seen: set[str] = set()
    at = by_id.get(turn.about or "")
    while at is not None and at.id not in seen:
        if at.claim is not None and at.claim.kind is ClaimKind.ANSWER:
            return at
        seen.add(at.id)
        at = by_id.get(at.about or "")
    return None


def role_rates(episodes: Iterable[GradedEpisode]) -> Rates:
    """Rates of every role: `accuracy` (of what it claims), `unparsed`, `truncated`; of answers that repair another,
    `repaired` (from wrong), `kept_right`, `copied_input`, `copied_wrong` (of the wrong ones); of verdicts `recall` of
    errors, `false_alarm`, `says_correct`, `says_wrong`, and `judged_right`, how many of the judged answers were right;
    of choices `possible`, whether a candidate was right, and `chose_right`, accuracy where some were right and some
    wrong. Of copies that answered side by side `any_correct` and `different`, 0 when all say the same and 1 when none
    does; and what `likeness` says of copies and plans."""
    rates: Rates = defaultdict(lambda: defaultdict(RateByTask))
    for graded in episodes:
        task_id = graded.episode.task.id
        for turn in graded.episode.turns:
            mine = rates[turn.role]
            mine["truncated"].add(task_id, turn.truncated)
            if turn.claim is None:
                continue
            unparsed = turn.claim.value is None or turn.claim.value == Verdict.UNPARSED
            mine["unparsed"].add(task_id, unparsed)
            if turn.claim.kind is ClaimKind.ANSWER:
                _answer_rates(mine, turn, graded, task_id)
            elif turn.claim.kind is ClaimKind.VERDICT:
                _verdict_rates(mine, turn, graded, task_id)
            else:
                _choice_rates(mine, turn, graded, task_id)
        for role, answers in _side_by_side(graded):
            known = [grade for turn in answers if (grade := graded.answers.get(turn.id)) is not None]
            right = any(grade.right for grade in known)
            if right or all(grade.status is not GradeStatus.FAILED for grade in known):  # else it is not known
                rates[role]["any_correct"].add(task_id, right)
            claims = {turn.claim.value for turn in answers if turn.claim is not None}
            rates[role]["different"].add(task_id, (len(claims) - 1) / (len(answers) - 1))
        for role, name, value in likeness(graded.episode):
            rates[role][name].add(task_id, value)
    return rates


def role_estimates(episodes: Iterable[GradedEpisode]) -> dict[str, dict[str, Estimate]]:
    """`role_rates` as estimates with intervals."""
    return {role: {name: r.estimate() for name, r in rates.items()} for role, rates in role_rates(episodes).items()}


def behaviour_metrics(episodes: Iterable[GradedEpisode]) -> dict[str, float]:
    """One step's figures under `behaviour/<role>/<name>`, with lengths in tokens and the number of turns.

    Of a role that judges also `num_right_judged`, right answers it judged, and `num_false_alarms`, those called wrong;
    of one that repairs `num_wrong_given` and `num_right_given`, the answers behind `repaired` and `kept_right`, and
    `num_copied_wrong`, the wrong ones among them that it handed back. `informedness` = recall - false alarms (Youden's
    J): 0 for any verdict that has nothing to do with the truth, and so for a constant one. `repeated`: the share of
    turns whose text the role also gave for another task of the step.
    """
    episodes = list(episodes)
    metrics: dict[str, float] = {}
    for role, rates in role_rates(episodes).items():
        for name, rate in rates.items():
            metrics[f"behaviour/{role}/{name}"] = rate.estimate().mean
        if "judged_right" in rates:
            alarms = rates["false_alarm"].trials
            metrics[f"behaviour/{role}/num_right_judged"] = float(len(alarms))
            metrics[f"behaviour/{role}/num_false_alarms"] = sum(alarms)
        found, false = (metrics.get(f"behaviour/{role}/{name}") for name in ("recall", "false_alarm"))
        if found is not None and false is not None:
            metrics[f"behaviour/{role}/informedness"] = found - false
        if "copied_wrong" in rates:
            metrics[f"behaviour/{role}/num_copied_wrong"] = sum(rates["copied_wrong"].trials)
        for name, count in (("repaired", "num_wrong_given"), ("kept_right", "num_right_given")):
            if name in rates:
                metrics[f"behaviour/{role}/{count}"] = float(len(rates[name].trials))
    lengths: dict[str, list[int]] = defaultdict(list)
    for graded in episodes:
        for turn in graded.episode.turns:
            lengths[turn.role].append(turn.completion.num_tokens)
    for role, values in lengths.items():
        metrics[f"behaviour/{role}/length"] = sum(values) / len(values)
        metrics[f"behaviour/{role}/num_turns"] = len(values)
    for role, share in repeated_texts(graded.episode for graded in episodes).items():
        metrics[f"behaviour/{role}/repeated"] = share
    return metrics


def outcome_counts(episodes: Iterable[GradedEpisode]) -> Mapping[str, int]:
    """Episodes by outcome class, every class named, adding up to the episodes given."""
    counts = {str(kind): 0 for kind in OutcomeClass}
    for graded in episodes:
        counts[str(graded.episode.outcome_class)] += 1
    return counts
