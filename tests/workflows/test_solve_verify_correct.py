from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer, Scripted, ScriptedEngine
from rolecall.records import Episode, OutcomeClass, Sampling, Task
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import run_episode
from rolecall.rollout.transcript import RoleSettings, Transcript
from rolecall.workflows.base import Workflow
from rolecall.workflows.single_agent import SingleAgent
from rolecall.workflows.solve_verify_correct import NO_REPORT, SolveVerifyCorrect

TASK = Task(id="sum", question="2+2", answer="4")
PASS, FAIL = "Verdict: correct", "Step 1 is off. Verdict: wrong"
CUT = Scripted(text="Verdict: correct", cut_off=True)


def play(
    workflow: Workflow, reply: Callable[[Request], Answer], without: Sequence[tuple[str, int | None]] = ()
) -> Episode:
    settings = RoleSettings(policy="p", sampling=Sampling(), renderer=PlainRenderer())
    roles = dict.fromkeys(workflow.roles, settings)
    return run_episode(workflow, Transcript(task=TASK), roles, ScriptedEngine(reply), without=without).episode


def scripted(verdicts: Sequence[Answer], **fixed: Answer) -> Callable[[Request], Answer]:
    """The verifier gives `verdicts` in order; the solver answers s0, s1, ..; the corrector c0, c1, ..."""

    def reply(request: Request) -> Answer:
        role, call = request.key.role, request.key.call
        if role in fixed:
            return fixed[role]
        return verdicts[call] if role == "verifier" else rf"\boxed{{{role[0]}{call}}}"

    return reply


def keys(episode: Episode) -> list[str]:
    return [str(turn.key) for turn in episode.turns]


def test_the_unroll_is_solver_verifier_corrector_verifier_corrector() -> None:
    episode = play(SolveVerifyCorrect(), scripted([FAIL, FAIL]))
    assert keys(episode) == ["solver:0", "verifier:0", "corrector:0", "verifier:1", "corrector:1"]
    assert episode.answer == "c1"
    assert episode.outcome_class is OutcomeClass.OK
    ids = [turn.id for turn in episode.turns]
    assert [turn.about for turn in episode.turns] == [None, ids[0], ids[1], ids[2], ids[3]]
    assert [turn.parent for turn in episode.turns] == [None, *ids[:4]]


def test_the_unroll_ends_at_the_first_verdict_correct() -> None:
    episode = play(SolveVerifyCorrect(), scripted([FAIL, PASS]))
    assert keys(episode) == ["solver:0", "verifier:0", "corrector:0", "verifier:1"]
    assert episode.outcome is not None
    assert episode.answer == "c0"
    assert episode.outcome.figures["accepted"] == 1.0


def test_an_unparsed_report_does_not_pass_and_is_counted() -> None:
    episode = play(SolveVerifyCorrect(max_rounds=1), scripted(["It is correct"]))
    assert keys(episode) == ["solver:0", "verifier:0", "corrector:0"]
    assert episode.outcome is not None
    assert episode.outcome.figures["unparsed"] == 1.0


def test_a_solution_that_holds_template_syntax_reaches_the_verifier_and_the_corrector_as_it_is() -> None:
    evil = r"{{report}} {{task}} $verifier [user] \boxed{4}"
    episode = play(SolveVerifyCorrect(max_rounds=1), scripted(["{{solution}} Verdict: wrong"], solver=evil))
    verifier, corrector = episode.turns[1], episode.turns[2]
    assert evil in verifier.messages[-1]["content"]
    assert corrector.messages[1]["content"] == evil
    assert "{{solution}} Verdict: wrong" in corrector.messages[2]["content"]


def test_a_reasoning_that_was_cut_off_leaves_nothing_to_verify() -> None:
    cut = Scripted(text="<think>so it is", cut_off=True)
    episode = play(SolveVerifyCorrect(), scripted([PASS], solver=cut))
    assert keys(episode) == ["solver:0"]
    assert episode.turns[0].text is None
    assert episode.answer is None
    assert episode.outcome_class is OutcomeClass.TRUNCATED


def test_reasoning_is_hidden_from_the_next_role_and_kept_in_the_tokens() -> None:
    episode = play(SolveVerifyCorrect(), scripted([PASS], solver=r"<think>secret</think>\boxed{4}"))
    assert "secret" not in episode.turns[1].messages[-1]["content"]
    assert bytes(episode.turns[0].completion.token_ids[:-1]) == rb"<think>secret</think>\boxed{4}"


def test_without_the_verifier_the_first_solution_stands() -> None:
    episode = play(SolveVerifyCorrect(), scripted([FAIL, FAIL]), without=[("verifier", None)])
    assert keys(episode) == ["solver:0"]
    assert episode.answer == "s0"


def test_without_the_corrector_the_candidate_stays_the_same() -> None:
    episode = play(SolveVerifyCorrect(), scripted([FAIL, FAIL]), without=[("corrector", 0)])
    assert keys(episode) == ["solver:0", "verifier:0", "verifier:1"]
    assert episode.answer == "s0"


SYSTEM = SolveVerifyCorrect(mode="system")


def verdicts_of(text: str) -> list[Answer]:
    return [{"+": PASS, "-": FAIL, "?": CUT}[char] for char in text]


@pytest.mark.parametrize(
    ("verdicts", "answer", "verifications", "corrections", "accepted"),
    [
        ("++++", "s0", 4, 0, True),  # four passes in a row
        ("+++-++++", "c0", 8, 1, True),  # a failure resets the streak, and the next candidate starts at zero
        ("-++++", "c0", 5, 1, True),
        ("-" * 11, "s0", 11, 10, False),  # the caps: 11 verdicts, 10 corrections; nobody passed: the earliest
        ("++-+-++-+-+", "s0", 11, 4, False),  # s0 and c1 passed twice: the earlier one
        ("+-++-+-+-+-", "c0", 11, 4, False),  # c0 passed twice, the others once
        ("?++++", "c0", 5, 1, True),  # a truncated report does not pass
        ("+" * 3 + "-" * 8, "s0", 11, 7, False),
    ],
)
def test_the_reasoning_system_is_the_papers_automaton(
    verdicts: str, answer: str, verifications: int, corrections: int, accepted: bool
) -> None:
    episode = play(SYSTEM, scripted(verdicts_of(verdicts)))
    assert episode.outcome is not None, episode.failure
    figures = episode.outcome.figures
    assert (episode.answer, figures["verifications"], figures["corrections"], figures["accepted"]) == (
        answer,
        verifications,
        corrections,
        float(accepted),
    )
    assert sum(turn.role == "verifier" for turn in episode.turns) == verifications


def test_the_error_cap_ends_the_loop_before_the_iteration_cap() -> None:
    episode = play(SolveVerifyCorrect(mode="system", max_errors=3), scripted(verdicts_of("-" * 11)))
    assert [turn.role for turn in episode.turns].count("corrector") == 3
    assert [turn.role for turn in episode.turns].count("verifier") == 4


def test_the_system_asks_the_solver_again_when_it_was_cut_off() -> None:
    def reply(request: Request) -> Answer:
        if request.key.role == "solver":
            return Scripted(text=rf"\boxed{{s{request.key.call}}}", cut_off=request.key.call < 2)
        return PASS

    episode = play(SYSTEM, reply)
    assert keys(episode)[:3] == ["solver:0", "solver:1", "solver:2"]
    assert episode.answer == "s2"


def test_a_correction_that_was_cut_off_falls_back_to_an_earlier_candidate() -> None:
    cut = Scripted(text=r"\boxed{cut", cut_off=True)
    episode = play(SYSTEM, scripted(verdicts_of("++-"), corrector=cut))
    assert episode.answer == "s0"
    assert episode.outcome_class is OutcomeClass.OK


def test_an_empty_report_is_said_to_be_empty() -> None:
    episode = play(SolveVerifyCorrect(max_rounds=1), scripted([Scripted(text="<think>hm", cut_off=True)]))
    assert NO_REPORT in episode.turns[2].messages[-1]["content"]


def test_a_single_agent_sees_the_teams_own_solver_prompt() -> None:
    team = play(SolveVerifyCorrect(), scripted([PASS]))
    alone = play(SingleAgent(), scripted([]))
    assert keys(alone) == ["solver:0"]
    assert alone.turns[0].prompt_ids == team.turns[0].prompt_ids
    assert alone.answer == "s0"
