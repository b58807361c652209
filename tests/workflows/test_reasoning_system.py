"""The accept/reject loop as an automaton (MarsRL, arXiv 2511.11373, its released inference code): any course of
verdicts and cut-off replies takes the calls, and ends as, the published loop with strict verdicts does.

Locked here: `passes` verdicts "correct" in a row on one candidate accept it; a failure resets the count; a report that
says nothing clear does not pass; caps on solutions, failures in a row and iterations; without acceptance the answer is
the candidate that passed most often, the earliest of equals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer, Scripted, ScriptedEngine
from rolecall.records import Episode, Sampling, Task
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import run_episode
from rolecall.rollout.transcript import RoleSettings, Transcript
from rolecall.workflows.solve_verify_correct import SolveVerifyCorrect

TASK = Task(id="sum", question="2+2", answer="4")
REPORTS: dict[str, Answer] = {
    "pass": "No finding. Verdict: correct",
    "fail": "Step 2 is off. Verdict: wrong",
    "incorrect": "Verdict: incorrect",  # holds the word "correct"
    "silent": "I think that this is correct.",  # no verdict
    "hedged": "Verdict: correct, mostly",
    "cut": Scripted(text="Verdict: correct", cut_off=True),
    "unended": Scripted(text="<think>it is correct", cut_off=True),
}
LIMITS = {"passes": 4, "max_errors": 10, "max_iterations": 10, "max_solves": 3}


@dataclass(frozen=True, kw_only=True)
class Script:
    """What each role says, call by call: whether a solution or a correction is cut off, and the kind of report."""

    solutions_cut: Sequence[bool]
    reports: Sequence[str]
    corrections_cut: Sequence[bool]

    def reply(self, request: Request) -> Answer:
        call = request.key.call
        if request.key.role == "verifier":
            return REPORTS[self.reports[call]]
        cut = self.solutions_cut[call] if request.key.role == "solver" else self.corrections_cut[call]
        return Scripted(text=rf"\boxed{{{request.key.role[0]}{call}}}", cut_off=cut)


@dataclass(frozen=True, kw_only=True)
class Ending:
    calls: str
    answer: str | None
    accepted: bool


def published(script: Script, *, passes: int, max_errors: int, max_iterations: int, max_solves: int) -> Ending:
    """The loop as published, line by line, with the verdict read strictly and the fallback of the paper."""
    calls, candidates, counts, reports = "", list[str](), list[int](), iter(script.reports)

    def verify() -> bool:
        nonlocal calls
        calls += "V"
        good = next(reports) == "pass"
        counts[-1] += good
        return good

    def fail() -> Ending:
        best = max(counts)
        return Ending(calls=calls, answer=candidates[counts.index(best)], accepted=False)

    for number in range(max_solves):
        calls += "S"
        if not script.solutions_cut[number]:
            candidates.append(f"s{number}")
            counts.append(0)
            break
    else:
        return Ending(calls=calls, answer=None, accepted=False)
    verdict = verify()
    pass_count, error_count = 1, 0
    for _ in range(max_iterations):
        if not verdict:
            pass_count = 0
            error_count += 1
            correction = calls.count("C")
            calls += "C"
            if script.corrections_cut[correction]:
                return fail()
            candidates.append(f"c{correction}")
            counts.append(0)
        verdict = verify()
        if verdict:
            pass_count += 1
            error_count = 0
        if pass_count >= passes:
            return Ending(calls=calls, answer=candidates[-1], accepted=True)
        if error_count >= max_errors:
            return fail()
    return fail()


def play(script: Script, **limits: int) -> Episode:
    workflow = SolveVerifyCorrect(mode="system", **limits)
    settings = RoleSettings(policy="p", sampling=Sampling(), renderer=PlainRenderer())
    roles = dict.fromkeys(workflow.roles, settings)
    return run_episode(workflow, Transcript(task=TASK), roles, ScriptedEngine(script.reply)).episode


def ending(episode: Episode) -> Ending:
    assert episode.outcome is not None, episode.failure
    calls = "".join(turn.role[0].upper() for turn in episode.turns)
    return Ending(calls=calls, answer=episode.answer, accepted=bool(episode.outcome.figures["accepted"]))


def scripts(longest: int = 40) -> st.SearchStrategy[Script]:
    kinds = st.sampled_from(["pass"] * 5 + ["fail"] * 3 + ["incorrect", "silent", "hedged", "cut", "unended"])
    return st.builds(
        Script,
        solutions_cut=st.lists(st.sampled_from([False, False, True]), min_size=5, max_size=5),
        reports=st.lists(kinds, min_size=longest, max_size=longest),
        corrections_cut=st.lists(st.sampled_from([False] * 9 + [True]), min_size=longest, max_size=longest),
    )


def course(reports: str) -> Script:
    """Nothing is cut off; a report a letter: + passes, - does not."""
    kinds = [{"+": "pass", "-": "fail"}[letter] for letter in reports]
    return Script(solutions_cut=[False] * 5, reports=kinds, corrections_cut=[False] * 40)


@settings(max_examples=150, deadline=None)
@given(script=scripts())
@example(script=course("+++-" + "+" * 40))
@example(script=course("-" * 40))
@example(script=course("++-+" * 10))
def test_the_system_under_the_papers_caps_is_the_published_loop(script: Script) -> None:
    assert ending(play(script)) == published(script, **LIMITS)


@settings(max_examples=150, deadline=None)
@given(
    script=scripts(),
    passes=st.integers(2, 5),
    max_errors=st.integers(1, 6),
    max_iterations=st.integers(1, 12),
    max_solves=st.integers(1, 4),
)
def test_so_it_is_under_any_caps(
    script: Script, passes: int, max_errors: int, max_iterations: int, max_solves: int
) -> None:
    limits = {
        "passes": passes,
        "max_errors": max_errors,
        "max_iterations": max_iterations,
        "max_solves": max_solves,
    }
    assert ending(play(script, **limits)) == published(script, **limits)


@settings(max_examples=100, deadline=None)
@given(script=scripts())
def test_what_is_accepted_passed_that_often_in_a_row_and_nothing_else_did(script: Script) -> None:
    """The net rule, read off the turns alone."""
    episode = play(script)
    by_candidate: dict[str, list[bool]] = {}
    for turn in episode.turns:
        if turn.role == "verifier":
            assert turn.about is not None
            assert turn.claim is not None
            by_candidate.setdefault(turn.about, []).append(turn.claim.value == "correct")
    assert episode.outcome is not None
    last = list(by_candidate.values())[-1:]
    assert bool(episode.outcome.figures["accepted"]) == (last == [[True] * 4])
    assert all(run != [True] * 4 for run in list(by_candidate.values())[:-1])
    if not episode.outcome.figures["accepted"] and by_candidate:
        often = {turn: sum(passed) for turn, passed in by_candidate.items()}
        earliest = next(turn for turn, count in often.items() if count == max(often.values()))
        claim = episode.turn(earliest).claim
        assert claim is not None
        assert episode.answer == claim.value


def test_the_most_calls_are_those_that_it_says() -> None:
    """Three solutions, eleven verdicts, ten corrections (fact sheet of the paper's code, 1.5)."""
    reports = ["fail"] * 40
    script = Script(solutions_cut=[True, True, False, False, False], reports=reports, corrections_cut=[False] * 40)
    calls = [turn.role for turn in play(script).turns]
    counts = {role: calls.count(role) for role in SolveVerifyCorrect.roles}
    assert counts == {"solver": 3, "verifier": 11, "corrector": 10}
    assert counts == SolveVerifyCorrect(mode="system").max_calls()


def test_one_pass_is_enough_where_one_is_asked_for() -> None:
    """The published loop cannot: it always verifies twice."""
    assert ending(play(course("+" * 40), passes=1)) == Ending(calls="SV", answer="s0", accepted=True)
