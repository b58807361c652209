"""Figures of the reasoning system: the Solver alone and the whole System on the same problems and the same samples.

Every episode of the system starts with a solution of the Solver, so one set of episodes measures both, and their
difference is paired. Rates are over all episodes started, unless said otherwise; intervals are clustered by task.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecall.dynamics.behaviour import RateByTask, outcome_counts, role_estimates
from rolecall.evaluate import first_answer
from rolecall.grading.episodes import team_answer
from rolecall.grading.votes import vote
from rolecall.intervals import Estimate, majority_at_k, paired_difference, pass_at_k, proportion
from rolecall.records import ClaimKind, Grade, GradedEpisode, GradeStatus, Turn, Verdict

ENDS = ("accepted", "fallback", "no_candidate", "failed")
"""How an episode of the system ends; their rates add up to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """The accuracy of one side over k samples a task: the mean, the chance that one of k is right, that of a vote."""

    avg: Estimate
    pass_at_k: Estimate
    majority_at_k: Estimate

    def to_dict(self) -> dict[str, Any]:
        return _plain({"avg": self.avg, "pass_at_k": self.pass_at_k, "majority_at_k": self.majority_at_k})


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """Tokens generated and read by role, over all episodes; those of the Solver alone are its first solutions. Replies
    of endpoints are counted as the endpoints say; `uncounted` are those of which they did not."""

    generated: Mapping[str, int]
    prompt: Mapping[str, int]
    solver_alone: int
    episodes: int
    uncounted: int

    def to_dict(self) -> dict[str, Any]:
        system = sum(self.generated.values())
        per_episode = {role: count / max(1, self.episodes) for role, count in self.generated.items()}
        return {
            "generated": {**self.generated, "all": system},
            "prompt": {**self.prompt, "all": sum(self.prompt.values())},
            "solver_alone": self.solver_alone,
            "system_over_solver": system / self.solver_alone if self.solver_alone else None,
            "per_episode": {
                **per_episode,
                "all": system / max(1, self.episodes),
                "solver_alone": self.solver_alone / max(1, self.episodes),
            },
            "uncounted_replies": self.uncounted,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemEvaluation:
    """`gained` and `lost`: the shares of episodes in which the System is right where the Solver was wrong, and the
    other way round; `difference` is the one minus the other. `ends`: rates of `ENDS`. `accuracy`: of the answers with
    each end. `first_verdict`: recall of errors and false alarms of the first report on the Solver's solution.
    `rounds`: episodes by their number of reports. `calls`: mean calls an episode by role.
    """

    k: int
    solver: Side
    system: Side
    difference: Estimate
    gained: Estimate
    lost: Estimate
    ends: Mapping[str, Estimate]
    accuracy: Mapping[str, Estimate]
    first_verdict: Mapping[str, Estimate]
    roles: Mapping[str, Mapping[str, Estimate]]
    tokens: Tokens
    calls: Mapping[str, float]
    rounds: Mapping[int, int]
    outcomes: Mapping[str, int]
    grader_failures: int

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; figures without a single trial are absent."""
        num_rounds = sum(number * count for number, count in self.rounds.items())
        return {
            "k": self.k,
            "solver": self.solver.to_dict(),
            "system": self.system.to_dict(),
            **_plain({"difference": self.difference, "gained": self.gained, "lost": self.lost}),
            "ends": _plain(self.ends),
            "accuracy_by_end": _plain(self.accuracy),
            "first_verdict": _plain(self.first_verdict),
            "roles": {role: _plain(figures) for role, figures in self.roles.items()},
            "tokens": self.tokens.to_dict(),
            "calls_per_episode": dict(self.calls),
            "rounds": {
                "mean": num_rounds / max(1, sum(self.rounds.values())),
                "max": max(self.rounds, default=0),
                "episodes_by_rounds": {str(number): self.rounds[number] for number in sorted(self.rounds)},
            },
            "outcomes": dict(self.outcomes),
            "grader_failures": self.grader_failures,
        }


def summarise_system(episodes: Sequence[GradedEpisode], k: int | None = None) -> SystemEvaluation:
    """All figures from graded episodes of a workflow that reports `accepted` and `chosen` (`Course.outcome`); `k` of
    pass@k and majority@k is at most the number of samples a task, and all of them when not given. Episodes in which a
    grader failed, for either side, are left out of every accuracy and counted."""
    by_task: dict[str, list[GradedEpisode]] = defaultdict(list)
    for graded in episodes:
        if GradeStatus.FAILED not in (graded.team.status, solver_grade(graded).status):
            by_task[graded.episode.task.id].append(graded)
    groups = [sorted(group, key=lambda g: g.episode.index) for group in by_task.values()]
    smallest = min((len(group) for group in groups), default=1)
    k = smallest if k is None else min(k, smallest)
    solver = [[float(solver_grade(g).right) for g in group] for group in groups]
    system = [[float(g.team.right) for g in group] for group in groups]
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(solver, system, strict=True)]
    num_reports = Counter(sum(is_verdict(turn) for turn in g.episode.turns) for g in episodes)
    return SystemEvaluation(
        k=k,
        solver=_side(groups, solver, solver_answer, k),
        system=_side(groups, system, lambda g: team_answer(g.episode), k),
        difference=paired_difference([[after - before for before, after in rows] for rows in pairs]),
        gained=proportion([[float(after > before) for before, after in rows] for rows in pairs]),
        lost=proportion([[float(after < before) for before, after in rows] for rows in pairs]),
        ends=_rates(episodes, {end: _ends_so(end) for end in ENDS}),
        accuracy=_accuracy_by_end([g for group in groups for g in group]),
        first_verdict=_first_verdict(episodes),
        roles=role_estimates(episodes),
        tokens=count_tokens(episodes),
        calls=_calls(episodes),
        rounds=num_reports,
        outcomes=outcome_counts(episodes),
        grader_failures=len(episodes) - sum(map(len, groups)),
    )


def ending(graded: GradedEpisode) -> str:
    """Which of `ENDS` an episode came to: a candidate was accepted; the one that passed most often was taken; there
    was none (every solution was cut off); or the episode failed."""
    outcome = graded.episode.outcome
    if outcome is None or graded.episode.outcome_class.failed:
        return "failed"
    if outcome.figures.get("accepted"):
        return "accepted"
    return "fallback" if outcome.figures.get("chosen", -1.0) >= 0 else "no_candidate"


def solver_grade(graded: GradedEpisode) -> Grade:
    """The grade of the Solver's first solution; wrong when there is none."""
    turn = first_answer(graded)
    wrong = Grade(status=GradeStatus.WRONG, score=0.0)
    return graded.answers.get(turn.id, wrong) if turn is not None else wrong


def solver_answer(graded: GradedEpisode) -> str | None:
    """What the Solver's first solution answers."""
    turn = first_answer(graded)
    return turn.claim.value if turn is not None and turn.claim is not None else None


def is_verdict(turn: Turn) -> bool:
    return turn.claim is not None and turn.claim.kind is ClaimKind.VERDICT


def count_tokens(episodes: Sequence[GradedEpisode]) -> Tokens:
    """Tokens by role, in the order in which the roles first act."""
    generated: Counter[str] = Counter()
    prompt: Counter[str] = Counter()
    alone = uncounted = 0
    for graded in episodes:
        first = first_answer(graded)
        alone += first.completion.num_tokens if first is not None else 0
        for turn in graded.episode.turns:
            wrote = turn.completion.endpoint
            generated[turn.role] += turn.completion.num_tokens
            prompt[turn.role] += len(turn.prompt_ids) if wrote is None else wrote.num_prompt_tokens or 0
            uncounted += wrote is not None and wrote.num_tokens is None
    return Tokens(generated=generated, prompt=prompt, solver_alone=alone, episodes=len(episodes), uncounted=uncounted)


def _side(
    groups: Sequence[Sequence[GradedEpisode]],
    rights: Sequence[Sequence[float]],
    answer: Callable[[GradedEpisode], str | None],
    k: int,
) -> Side:
    votes = [
        majority_at_k([vote(answer(g), g.episode.task, right=bool(r)) for g, r in zip(group, row, strict=True)], row, k)
        for group, row in zip(groups, rights, strict=True)
    ]
    return Side(
        avg=proportion(rights),
        pass_at_k=proportion([[pass_at_k(int(sum(row)), len(row), k)] for row in rights]),
        majority_at_k=proportion([[chance] for chance in votes]),
    )


def _rates(
    episodes: Sequence[GradedEpisode], tests: Mapping[str, Callable[[GradedEpisode], bool]]
) -> dict[str, Estimate]:
    rates = {name: RateByTask() for name in tests}
    for graded in episodes:
        for name, test in tests.items():
            rates[name].add(graded.episode.task.id, test(graded))
    return {name: rate.estimate() for name, rate in rates.items()}


def _ends_so(end: str) -> Callable[[GradedEpisode], bool]:
    return lambda graded: ending(graded) == end


def _accuracy_by_end(episodes: Sequence[GradedEpisode]) -> dict[str, Estimate]:
    rates = {end: RateByTask() for end in ("accepted", "fallback")}
    for graded in episodes:
        if (end := ending(graded)) in rates:
            rates[end].add(graded.episode.task.id, graded.team.right)
    return {end: rate.estimate() for end, rate in rates.items()}


def _first_verdict(episodes: Sequence[GradedEpisode]) -> dict[str, Estimate]:
    """Of the first report of each episode: one trial an episode, where all reports together count a solution as often
    as it was read."""
    recall, false_alarm = RateByTask(), RateByTask()
    for graded in episodes:
        first = next((turn for turn in graded.episode.turns if is_verdict(turn)), None)
        truth = graded.answers.get(first.about or "") if first is not None else None
        if first is None or first.claim is None or truth is None or truth.status is GradeStatus.FAILED:
            continue
        says_wrong = first.claim.value == Verdict.WRONG
        (false_alarm if truth.right else recall).add(graded.episode.task.id, says_wrong)
    return {"recall": recall.estimate(), "false_alarm": false_alarm.estimate()}


def _calls(episodes: Sequence[GradedEpisode]) -> dict[str, float]:
    counts = Counter(turn.role for graded in episodes for turn in graded.episode.turns)
    return {role: count / max(1, len(episodes)) for role, count in counts.items()}


def _plain(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: estimate.to_dict() for name, estimate in estimates.items() if estimate.n}
