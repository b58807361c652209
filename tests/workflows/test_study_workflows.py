"""The workflows of the study, debate and think-solve: who is asked what, what counts, and what every oddity does.

Choices and copies are judged by the truth of the candidates: see the last tests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from rolecall.dynamics.behaviour import role_rates
from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer, Scripted, ScriptedEngine
from rolecall.errors import ConfigError
from rolecall.records import ClaimKind, Episode, Grade, GradedEpisode, GradeStatus, OutcomeClass, Sampling, Task
from rolecall.rewards.agent_specific import AgentSpecific
from rolecall.rewards.voting_rubric import VotingRubric
from rolecall.rollout.render import PlainRenderer
from rolecall.rollout.runner import run_episode
from rolecall.rollout.transcript import RoleSettings, Transcript
from rolecall.testing import check_workflow
from rolecall.workflows import WORKFLOWS, load_workflow
from rolecall.workflows.base import Workflow
from rolecall.workflows.debate import Debate
from rolecall.workflows.evaluator_optimizer import NO_CRITIQUE, EvaluatorOptimizer
from rolecall.workflows.orchestrator_workers import OrchestratorWorkers, parse_strategies
from rolecall.workflows.think_solve import ThinkSolve
from rolecall.workflows.voting import MajorityVote, Voting, parse_choice

TASK = Task(id="sum", question="2+2", answer="4")
PLAN = "STRATEGY 1: count\nSTRATEGY 2: add\nSTRATEGY 3: look it up"


def play(
    workflow: Workflow, reply: Callable[[Request], Answer], without: Sequence[tuple[str, int | None]] = ()
) -> Episode:
    settings = RoleSettings(policy="p", sampling=Sampling(), renderer=PlainRenderer())
    roles = dict.fromkeys(workflow.roles, settings)
    return run_episode(workflow, Transcript(task=TASK), roles, ScriptedEngine(reply), without=without).episode


def by_key(**replies: Answer | Sequence[Answer]) -> Callable[[Request], Answer]:
    """A reply by role; a list holds one a copy and, for one copy, one a call."""

    def reply(request: Request) -> Answer:
        found = replies[request.key.role]
        if isinstance(found, list):
            return found[max(request.key.copy, request.key.call)]
        return found  # type: ignore[return-value]

    return reply


def boxed(*answers: object) -> list[Answer]:
    return [rf"\boxed{{{answer}}}" for answer in answers]


def figures(episode: Episode) -> dict[str, float]:
    assert episode.outcome is not None
    return dict(episode.outcome.figures)


def prompt(episode: Episode, place: int) -> str:
    return episode.turns[place].messages[-1]["content"]


def graded(episode: Episode) -> GradedEpisode:
    """Graded by hand: "4" is right."""

    def grade(value: str | None) -> Grade:
        right = value == "4"
        return Grade(status=GradeStatus.RIGHT if right else GradeStatus.WRONG, score=float(right))

    answers = {
        turn.id: grade(turn.claim.value)
        for turn in episode.turns
        if turn.claim is not None and turn.claim.kind is ClaimKind.ANSWER
    }
    return GradedEpisode(episode=episode, team=grade(episode.answer), answers=answers)


def rates(episode: Episode) -> dict[tuple[str, str], float]:
    return {
        (role, name): rate.estimate().mean
        for role, named in role_rates([graded(episode)]).items()
        for name, rate in named.items()
    }


# -- voting ------------------------------------------------------------------------------------------------------------


def test_voters_get_one_prompt_and_the_aggregator_sees_all_candidates() -> None:
    episode = play(Voting(), by_key(voter=boxed(3, 4, 5), aggregator=r"The second. \boxed{2}"))
    assert [str(turn.key) for turn in episode.turns] == ["voter:0", "voter.1:0", "voter.2:0", "aggregator:0"]
    assert len({turn.prompt_ids for turn in episode.turns[:3]}) == 1
    seen = prompt(episode, 3)
    assert all(f"### Candidate {n}\n\\boxed{{{answer}}}" in seen for n, answer in ((1, 3), (2, 4), (3, 5)))
    assert episode.turns[3].about == episode.turns[0].id
    assert episode.answer == "4"
    assert figures(episode) == {"num_candidates": 3, "num_different": 3, "fallback": 0, "chosen": 1}


@pytest.mark.parametrize(
    ("said", "choice"),
    [
        (r"\boxed{3}", 3),
        (r"first \boxed{1}, no: \boxed{2}", 2),
        ("I take candidate 2.", 2),
        ("Candidate 2, again 2", 2),
        ("1 or 2", None),
        (r"\boxed{4}", None),
        (r"\boxed{0}", None),
        (r"\boxed{none} 2", None),
        ("the answer is 2.5", None),
        ("", None),
        (None, None),
        (r"\boxed{" + "2" * 5000 + "}", None),  # more digits than Python reads
        ("9" * 5000 + ", or 2", 2),
    ],
)
def test_a_choice_is_a_number_in_a_box_or_the_only_number_in_range(said: str | None, choice: int | None) -> None:
    assert parse_choice(said, 3) == choice


def test_a_choice_that_cannot_be_read_falls_back_to_the_first_candidate_and_is_counted() -> None:
    for said in ("neither", Scripted(text=r"\boxed{2}", cut_off=True)):
        episode = play(Voting(), by_key(voter=boxed(3, 4, 5), aggregator=said))
        assert episode.answer == "3"
        assert figures(episode)["fallback"] == 1
        claim = episode.turns[3].claim
        assert claim is not None
        assert claim.value is None


def test_without_a_voter_the_choice_is_among_the_others() -> None:
    reply = by_key(voter=boxed(3, 4, 5), aggregator=r"\boxed{2}")
    episode = play(Voting(), reply, without=[("voter", 0)])
    assert episode.answer == "5"
    assert figures(episode)["num_candidates"] == 2
    assert play(Voting(), reply, without=[("voter", None)]).answer is None
    assert play(Voting(), reply, without=[("aggregator", None)]).answer == "3"


def test_voters_may_be_roles_of_their_own_and_are_judged_and_chosen_from_as_copies_are() -> None:
    apart = Voting(separate=True)
    assert apart.roles == ("voterA", "voterB", "voterC", "aggregator")
    assert Voting().roles == ("voter", "aggregator")
    assert apart.max_calls() == {"voterA": 1, "voterB": 1, "voterC": 1, "aggregator": 1}
    said = dict(zip(("voterA", "voterB", "voterC"), boxed(3, 4, 5), strict=True))
    reply = by_key(**said, aggregator=r"\boxed{2}")
    check_workflow(apart, [TASK], reply)
    episode = play(apart, reply)
    assert [str(turn.key) for turn in episode.turns] == ["voterA:0", "voterB:0", "voterC:0", "aggregator:0"]
    assert episode.turns[0].messages == episode.turns[1].messages == episode.turns[2].messages
    assert episode.answer == "4"
    for choice, earned in (("1", 0.0), ("2", 1.0), ("3", 0.0)):
        chosen = graded(play(apart, by_key(**said, aggregator=rf"\boxed{{{choice}}}")))
        assert [one.total for one in AgentSpecific()(chosen).values()] == [0.0, 1.0, 0.0, earned]
        assert [one.total for one in VotingRubric()(chosen).values()][3] == (1.0 if earned else -1.0)
    without = play(apart, reply, without=[("voterA", None)])
    assert (without.answer, figures(without)["num_candidates"]) == ("5", 2)
    with pytest.raises(ConfigError, match="num_voters is 27"):
        Voting(separate=True, num_voters=27)


def test_the_most_frequent_answer_wins_and_the_earliest_of_equals() -> None:
    assert play(MajorityVote(), by_key(voter=boxed(3, 4, 4))).answer == "4"
    assert play(MajorityVote(), by_key(voter=boxed(5, 4, 3))).answer == "5"
    assert play(MajorityVote(num_voters=4), by_key(voter=[*boxed("x + 1", 3), "?", r"\boxed{X+1}"])).answer == "x + 1"
    nothing = play(MajorityVote(), by_key(voter="?"))
    assert nothing.answer is None
    assert figures(nothing)["votes"] == 0


# -- evaluator and optimizer -------------------------------------------------------------------------------------------


def test_a_refinement_has_the_generators_own_history_and_the_critique() -> None:
    critic = ["Off by one. Verdict: wrong", "Verdict: correct"]
    episode = play(EvaluatorOptimizer(), by_key(generator=boxed(3, 4), evaluator=critic))
    assert [str(turn.key) for turn in episode.turns] == ["generator:0", "evaluator:0", "generator:1", "evaluator:1"]
    refined = episode.turns[2]
    assert [message["role"] for message in refined.messages] == ["user", "assistant", "user"]
    assert refined.messages[0] == episode.turns[0].messages[0]
    assert refined.messages[1]["content"] == r"\boxed{3}"
    assert "Off by one." in refined.messages[2]["content"]
    assert [turn.about for turn in episode.turns] == [None, *[turn.id for turn in episode.turns[:3]]]
    assert episode.answer == "4"
    assert figures(episode) == {"iterations": 2, "accepted": 1, "unparsed": 0}


def test_the_last_answer_counts_after_the_last_iteration_and_an_unread_verdict_accepts_nothing() -> None:
    silent = Scripted(text="Verdict: correct", cut_off=True)
    critic: list[Answer] = ["Verdict: wrong", "hm", silent]
    episode = play(EvaluatorOptimizer(), by_key(generator=boxed(1, 2, 3), evaluator=critic))
    assert episode.answer == "3"
    assert figures(episode) == {"iterations": 3, "accepted": 0, "unparsed": 2}
    alone = play(EvaluatorOptimizer(), by_key(generator=boxed(1), evaluator="?"), without=[("evaluator", None)])
    assert [str(turn.key) for turn in alone.turns] == ["generator:0"]
    reasoning = Scripted(text="", cut_off=False)
    unread = play(EvaluatorOptimizer(max_iterations=2), by_key(generator=boxed(1, 2), evaluator=[reasoning, "x"]))
    assert NO_CRITIQUE in prompt(unread, 2)


# -- orchestrator and workers ------------------------------------------------------------------------------------------


def test_every_worker_gets_a_strategy_and_the_synthesizer_writes_the_answer() -> None:
    reply = by_key(orchestrator=PLAN, worker=boxed(3, 4, 5), synthesizer=r"\boxed{4}")
    episode = play(OrchestratorWorkers(), reply)
    keys = ["orchestrator:0", "worker:0", "worker.1:0", "worker.2:0", "synthesizer:0"]
    assert [str(turn.key) for turn in episode.turns] == keys
    assert ["count" in prompt(episode, 1), "add" in prompt(episode, 2), "look it up" in prompt(episode, 3)] == [
        True
    ] * 3
    assert episode.turns[2].about == episode.turns[0].id
    assert episode.answer == "4"
    assert figures(episode) == {"strategies": 3, "num_different": 3}
    assert episode.turns[0].claim is None


@pytest.mark.parametrize("plan", [PLAN + "\nSTRATEGY 4: guess", "I would count.", ""])
def test_too_many_strategies_or_none_make_the_episode_invalid(plan: str) -> None:
    episode = play(OrchestratorWorkers(), by_key(orchestrator=plan, worker="", synthesizer=""))
    assert episode.outcome_class is OutcomeClass.INVALID
    assert len(episode.turns) == 1
    assert episode.failure is not None
    assert "wanted 1 to 3" in episode.failure.detail


def test_strategies_are_lines_that_say_so_in_the_order_of_the_text() -> None:
    assert parse_strategies("**Strategy 2:** a\nmore\n- STRATEGY 1) b") == ["a\nmore", "b"]
    assert parse_strategies("a strategy 1: none") == []
    assert parse_strategies("STRATEGY 1:\nSTRATEGY 2: b") == ["b"]


# -- debate, think-solve -----------------------------------------------------------------------------------------------


def test_debaters_read_the_others_and_keep_their_own_history() -> None:
    def reply(request: Request) -> Answer:
        return boxed((3, 4, 4)[request.key.copy])[0] if request.key.call == 0 else r"\boxed{4}"

    episode = play(Debate(), reply)
    assert [str(turn.key) for turn in episode.turns] == [f"debater{c}:{n}" for n in (0, 1) for c in ("", ".1", ".2")]
    last = episode.turns[3]
    assert [message["role"] for message in last.messages] == ["user", "assistant", "user"]
    assert last.messages[1]["content"] == r"\boxed{3}"
    assert r"\boxed{3}" not in last.messages[2]["content"]
    assert last.messages[2]["content"].count(r"\boxed{4}") == 2
    assert last.about == episode.turns[0].id
    assert episode.answer == "4"
    assert figures(episode) == {"num_candidates": 3, "num_different": 1, "votes": 3, "changed": 1}


def test_the_solver_answers_from_the_reasoning_and_alone_where_there_is_none() -> None:
    reply = by_key(thinker="Two pairs.", solver=r"\boxed{4}")
    episode = play(ThinkSolve(), reply)
    assert "Two pairs." in prompt(episode, 1)
    assert figures(episode) == {"with_reasoning": 1}
    alone = play(ThinkSolve(), reply, without=[("thinker", None)])
    assert [str(turn.key) for turn in alone.turns] == ["solver:0"]
    assert "colleague" not in prompt(alone, 0)
    assert figures(alone) == {"with_reasoning": 0}


# -- what the truth says -----------------------------------------------------------------------------------------------


def test_an_aggregator_earns_by_the_candidate_that_it_chose() -> None:
    for choice, earned in (("1", 0.0), ("2", 1.0), ("x", 0.0)):
        episode = play(Voting(), by_key(voter=boxed(3, 4, 5), aggregator=rf"\boxed{{{choice}}}"))
        rewards = AgentSpecific()(graded(episode))
        assert [rewards[turn.id].total for turn in episode.turns] == [0.0, 1.0, 0.0, earned]


def test_figures_of_copies_and_choices_are_by_the_truth_of_the_candidates() -> None:
    found = rates(play(Voting(), by_key(voter=boxed(3, 4, 4), aggregator=r"\boxed{1}")))
    assert (found["voter", "any_correct"], found["voter", "different"]) == (1.0, 0.5)
    assert found["voter", "accuracy"] == pytest.approx(2 / 3)
    assert (found["aggregator", "possible"], found["aggregator", "accuracy"]) == (1.0, 0.0)
    assert found["aggregator", "chose_right"] == 0.0
    found = rates(play(Voting(), by_key(voter=boxed(4, 4, 4), aggregator=r"\boxed{1}")))
    assert found["voter", "different"] == 0.0
    assert ("aggregator", "chose_right") not in found
    found = rates(play(EvaluatorOptimizer(), by_key(generator=boxed(4), evaluator="Verdict: correct")))
    assert ("generator", "any_correct") not in found


def test_whether_any_copy_was_right_is_not_known_while_a_grader_failed_and_none_was_right() -> None:
    failed = Grade(status=GradeStatus.FAILED, score=None)
    for answers, seen in (((3, 5, 5), None), ((3, 4, 5), 1.0)):
        one = graded(play(Voting(), by_key(voter=boxed(*answers), aggregator=r"\boxed{1}")))
        first = one.episode.turns[0].id
        found = role_rates([replace(one, answers={**one.answers, first: failed})])["voter"]
        assert (found["any_correct"].estimate().mean if "any_correct" in found else None) == seen


@pytest.mark.parametrize("name", sorted(set(WORKFLOWS) - {"single_agent", "solve_verify_correct", "play_game"}))
def test_each_replays_under_any_latency_and_has_a_bound_on_its_calls(name: str) -> None:
    def reply(request: Request) -> Answer:
        texts = {"orchestrator": PLAN, "evaluator": "Verdict: wrong", "aggregator": r"\boxed{2}"}
        return texts.get(request.key.role, rf"\boxed{{{request.key.copy + request.key.call}}}")

    workflow = load_workflow(name)
    check_workflow(workflow, [TASK], reply)
    episode = play(workflow, reply)
    for role, most in workflow.max_calls().items():
        assert sum(turn.role == role for turn in episode.turns) <= most
    assert set(workflow.max_calls()) == set(workflow.roles)


def test_knobs_out_of_range_name_the_value_and_what_is_wanted() -> None:
    for make in (
        lambda: Voting(num_voters=1),
        lambda: Debate(num_debaters=1),
        lambda: EvaluatorOptimizer(max_iterations=0),
        lambda: OrchestratorWorkers(max_strategies=0),
    ):
        with pytest.raises(ConfigError, match=r"is [01]; wanted [12] or more"):
            make()
