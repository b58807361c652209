from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_builders import (
    Chain,
    Patient,
    Vote,
    by_seed,
    refusing,
    roles_for,
    say,
    slow,
    transcript,
    workflow_of,
)

from rolecall.engines.base import Request
from rolecall.engines.scripted import ScriptedEngine
from rolecall.errors import EffectError, GraderError, ReplayMismatch, UsageError
from rolecall.records import Claim, Key, Outcome, OutcomeClass, Sampling, Stop, Task
from rolecall.rollout.runner import Frontier, run_episode, run_to_frontier
from rolecall.rollout.transcript import Finished, edit, fork
from rolecall.workflows.base import Team

SECOND = Key("second", 0, 0)


def run_chain(**fields: int) -> Finished:
    return run_episode(Chain(), transcript(**fields), roles_for(Chain()), ScriptedEngine(by_seed))


def test_a_replay_gives_the_same_episode_and_calls_no_engine() -> None:
    finished = run_chain()
    again = run_episode(Chain(), finished.transcript, roles_for(Chain()), refusing())
    assert again.episode == finished.episode
    assert again.transcript == finished.transcript
    assert (again.num_replayed, again.num_sampled) == (3, 0)


def test_a_fork_replays_its_prefix_without_the_engine_and_shares_its_turns() -> None:
    finished = run_chain()
    engine = ScriptedEngine(by_seed)
    forked = run_episode(Chain(), fork(finished, at=SECOND, candidate=1), roles_for(Chain()), engine)
    assert dict(engine.calls_by_role) == {"second": 1, "third": 1}
    assert forked.episode.turns[0] == finished.episode.turns[0]
    assert forked.episode.turns[1].text != finished.episode.turns[1].text
    assert forked.episode.turns[1].peers == finished.episode.turns[1].peers
    assert [turn.candidate for turn in forked.episode.turns] == [0, 1, 0]
    ids = {turn.id for turn in (*finished.episode.turns, *forked.episode.turns)}
    assert len(ids) == 5  # one shared turn, counted once


def test_forks_of_forks_have_turns_of_their_own() -> None:
    first = run_chain()
    runs = [first]
    for candidate in (1, 2):
        source = fork(first, at=Key("first", 0, 0), candidate=candidate)
        runs.append(run_episode(Chain(), source, roles_for(Chain()), ScriptedEngine(by_seed)))
    for parent in runs[:3]:
        source = fork(parent, at=SECOND, candidate=1)
        runs.append(run_episode(Chain(), source, roles_for(Chain()), ScriptedEngine(by_seed)))
    turns = {turn.id: turn for run in runs for turn in run.episode.turns}
    assert len(turns) == 3 + 2 * 3 + 3 * 2
    assert len({turn.text for turn in turns.values()}) == len(turns)  # all seeds differ


def test_a_fork_needs_a_call_that_exists_and_a_candidate_number() -> None:
    with pytest.raises(UsageError, match=r"has no call second:1; did you mean 'second:0'"):
        fork(run_chain(), at=Key("second", 0, 1), candidate=1)
    with pytest.raises(UsageError, match="is candidate 0; wanted 1 or more"):
        fork(run_chain(), at=SECOND, candidate=0)


def test_the_frontier_is_every_call_that_waits_once_every_coroutine_waits() -> None:
    workflow = Vote(voters=3)
    frontier = run_to_frontier(workflow, transcript(), roles_for(workflow))
    assert isinstance(frontier, Frontier)
    assert frontier.keys == (Key("voter", 0, 0), Key("voter", 1, 0), Key("voter", 2, 0))
    assert frontier.turns == ()


def test_a_frontier_goes_on_with_answers_until_the_episode_ends() -> None:
    """Two frontiers of three voters and one of the chair; effects in threads end before a frontier is declared."""
    workflow, engine = Vote(voters=3), ScriptedEngine(by_seed)
    point: Frontier | Finished = run_to_frontier(workflow, transcript(), roles_for(workflow))
    sizes = []
    while isinstance(point, Frontier):
        sizes.append(len(point.keys))
        asked = [(key, asyncio.run(engine.generate([point.request(key)]))[0], 0) for key in point.keys]
        point = run_to_frontier(workflow, point.advance(*asked), roles_for(workflow))
    straight = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed))
    assert sizes == [3, 3, 1]
    assert point.episode == straight.episode


def test_candidates_at_a_call_have_seeds_ids_and_numbers_of_their_own_and_one_set_of_peers() -> None:
    workflow, engine = Chain(), ScriptedEngine(by_seed)
    frontier = run_to_frontier(workflow, transcript(), roles_for(workflow))
    assert isinstance(frontier, Frontier)
    key = frontier.keys[0]
    turns = []
    for candidate in range(3):
        reply = asyncio.run(engine.generate([frontier.request(key, candidate)]))[0]
        after = run_to_frontier(workflow, frontier.advance((key, reply, candidate)), roles_for(workflow))
        assert isinstance(after, Frontier)
        assert after.keys == (SECOND,)
        turns.append(after.turns[0])
    assert [turn.candidate for turn in turns] == [0, 1, 2]
    assert len({turn.text for turn in turns}) == len({turn.id for turn in turns}) == 3
    assert len({turn.peers for turn in turns}) == 1


@pytest.mark.parametrize("seed", range(4))
def test_copies_side_by_side_give_the_same_episode_whatever_their_latencies(seed: int) -> None:
    workflow = Vote(voters=3)
    reference = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed))
    shuffled = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed, latency=slow(seed)))
    assert shuffled.episode == reference.episode
    assert shuffled.transcript == reference.transcript
    assert [str(turn.key) for turn in reference.episode.turns] == [
        "voter:0", "voter.1:0", "voter.2:0", "voter:1", "voter.1:1", "voter.2:1", "chair:0",
    ]  # fmt: skip


def test_three_voters_on_one_prompt_get_different_seeds() -> None:
    seen: list[Request] = []

    def reply(request: Request) -> str:
        seen.append(request)
        return by_seed(request)

    run_episode(Vote(voters=3), transcript(), roles_for(Vote()), ScriptedEngine(reply))
    first = [request for request in seen if request.key.role == "voter" and request.key.call == 0]
    assert len({request.prompt_ids for request in first}) == 1
    assert len({request.seed for request in first}) == 3


def test_seeds_differ_by_run_step_episode_and_attempt() -> None:
    texts = {run_chain(**{field: 1}).episode.turns[0].text for field in ("run_seed", "step", "index", "attempt")}
    assert len(texts | {run_chain().episode.turns[0].text}) == 5


def test_a_caught_timeout_takes_the_same_path_again() -> None:
    workflow = Patient()
    roles = roles_for(workflow)
    roles["slow"] = replace(roles["slow"], deadline_s=0.02)
    late = ScriptedEngine(by_seed, latency=lambda request: 5.0 if request.key.role == "slow" else 0.0)
    finished = run_episode(workflow, transcript(), roles, late)
    assert [turn.role for turn in finished.episode.turns] == ["quick"]
    assert finished.transcript.call(Key("slow", 0, 0)).failure is not None
    again = run_episode(workflow, finished.transcript, roles, refusing())
    assert again.episode == finished.episode


def test_an_uncaught_timeout_is_an_outcome_of_its_own_and_names_the_call() -> None:
    roles = roles_for(Chain(), deadline_s=0.02)
    late = ScriptedEngine(by_seed, latency=lambda request: 5.0 if request.key.role == "second" else 0.0)
    episode = run_episode(Chain(), transcript(), roles, late).episode
    assert episode.outcome_class is OutcomeClass.TIMEOUT
    assert episode.failure is not None
    assert episode.failure.where == "second:0"
    assert "raise the role's deadline_s" in episode.failure.detail


def test_a_record_that_does_not_match_is_an_error_in_recovery_and_sampled_anew_after_an_edit() -> None:
    finished = run_chain()
    cooler = roles_for(Chain(), Sampling(temperature=0.5))
    with pytest.raises(ReplayMismatch, match="first:0 was recorded with another sampling settings"):
        run_episode(Chain(), finished.transcript, cooler, ScriptedEngine(by_seed))
    engine = ScriptedEngine(by_seed)
    again = run_episode(Chain(), finished.transcript, cooler, engine, on_mismatch="resample")
    assert engine.num_calls == 3
    assert again.num_replayed == 0


def test_a_record_that_nobody_asks_for_is_an_error_in_recovery() -> None:
    async def short(task: Task, team: Team) -> Outcome:
        await team["first"].reply(say(task.question))
        return Outcome(answer="1")

    finished = run_chain()
    shorter = workflow_of(short, *Chain.roles)
    with pytest.raises(ReplayMismatch, match="ended without the recorded calls second:0, third:0"):
        run_episode(shorter, finished.transcript, roles_for(shorter), refusing())


def test_an_edit_replays_what_came_before_and_samples_what_follows() -> None:
    def no_claim(role: str, text: str | None, truncated: bool) -> Claim | None:
        return None

    engine = ScriptedEngine(by_seed)
    changed = edit(run_chain(), SECOND, "my own words", no_claim)
    edited = run_episode(Chain(), changed, roles_for(Chain()), engine, on_mismatch="resample")
    assert dict(engine.calls_by_role) == {"third": 1}
    assert edited.episode.turns[1].text == "my own words"
    assert edited.episode.turns[1].completion.token_ids == ()  # nothing that could be trained
    assert edited.episode.turns[2].messages[0]["content"] == "my own words"


def test_a_counterfactual_asks_only_for_what_the_absence_changes() -> None:
    workflow = Vote(voters=3)
    finished = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed))
    engine = ScriptedEngine(by_seed)
    without = run_episode(
        workflow,
        replace(finished.transcript, lineage=((Key("voter", 1, 0), 1),)),
        roles_for(workflow),
        engine,
        on_mismatch="resample",
        without=[("voter", 1)],
    )
    assert dict(engine.calls_by_role) == {"chair": 1}  # the other voters are replayed
    assert [str(turn.key) for turn in without.episode.turns if turn.role == "voter"] == [
        "voter:0", "voter.2:0", "voter:1", "voter.2:1",
    ]  # fmt: skip
    assert without.episode.turns[-1].messages[2]["content"] == "-"


def test_an_effect_is_made_once_and_its_value_or_failure_replayed() -> None:
    made: list[str] = []

    def look(name: str, fails: bool) -> str:
        made.append(name)
        if fails:
            raise OSError("no such page")
        return "page"

    async def run(task: Task, team: Team) -> Outcome:
        page = await team.effect("read", lambda: look("read", fails=False))
        try:
            await team.effect("write", lambda: look("write", fails=True))
        except EffectError as error:
            page += f", {error}"
        reply = await team["solver"].reply(say(page))
        return Outcome(answer=reply.text)

    workflow = workflow_of(run)
    finished = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed))
    again = run_episode(workflow, finished.transcript, roles_for(workflow), refusing())
    assert made == ["read", "write"]
    assert again.episode == finished.episode
    assert "effect 'write' raised OSError: no such page" in finished.episode.turns[0].messages[0]["content"]


def test_a_failed_grader_inside_an_effect_is_recorded_and_replayed_as_its_own_kind() -> None:
    made: list[str] = []

    def judge() -> str:
        made.append("judge")
        raise GraderError("the judge is away")

    async def run(task: Task, team: Team) -> Outcome:
        try:
            await team.effect("judge", judge)
        except GraderError as error:
            reply = await team["solver"].reply(say(str(error)))
        return Outcome(answer=reply.text)

    workflow = workflow_of(run)
    finished = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed))
    again = run_episode(workflow, finished.transcript, roles_for(workflow), refusing())
    assert made == ["judge"]
    assert again.episode == finished.episode


def test_an_effect_after_a_fork_is_made_again_and_one_before_it_is_not() -> None:
    made: list[str] = []

    async def run(task: Task, team: Team) -> Outcome:
        await team.effect("before", lambda: made.append("before"))
        reply = await team["solver"].reply(say(task.question))
        await team.effect("after", lambda: made.append("after"))
        return Outcome(answer=reply.text)

    workflow = workflow_of(run)
    finished = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed))
    made.clear()
    forked = fork(finished, at=Key("solver", 0, 0), candidate=1)
    run_episode(workflow, forked, roles_for(workflow), ScriptedEngine(by_seed))
    assert made == ["after"]


def test_recovery_makes_no_recorded_effect_again_even_when_another_copy_had_no_record_yet() -> None:
    made: list[int] = []

    async def run(task: Task, team: Team) -> Outcome:
        async def one(copy: int) -> None:
            await team["solver", copy].reply(say(task.question))
            await team.effect(f"pay {copy}", lambda: made.append(copy))
            await team["solver", copy].reply(say("paid"))

        await asyncio.gather(one(0), one(1))
        return Outcome(answer="done")

    workflow = workflow_of(run)
    whole = run_episode(workflow, transcript(), roles_for(workflow), ScriptedEngine(by_seed))
    assert sorted(made) == [0, 1]
    made.clear()
    kept = tuple(record for record in whole.transcript.calls if record.key != Key("solver", 0, 0))
    killed = replace(whole.transcript, calls=kept)
    assert run_episode(workflow, killed, roles_for(workflow), ScriptedEngine(by_seed)).episode == whole.episode
    assert made == []


def test_an_async_effect_may_sleep_and_a_late_one_raises() -> None:
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"

    async def run(task: Task, team: Team) -> Outcome:
        rested = await team.effect("nap", lambda: nap(0.01))
        try:
            await team.effect("sleep", lambda: time.sleep(2), deadline_s=0.03)
        except EffectError as error:
            rested += f" {type(error.__cause__).__name__}"
        return Outcome(answer=rested)

    workflow = workflow_of(run)
    started = time.monotonic()
    episode = run_episode(workflow, transcript(), roles_for(workflow), refusing()).episode
    assert episode.answer == "rested NoneType"
    assert time.monotonic() - started < 1.5


def test_random_numbers_of_the_team_are_the_same_in_every_replay_and_differ_by_episode() -> None:
    async def run(task: Task, team: Team) -> Outcome:
        return Outcome(answer=str(team.rng.random()))

    workflow = workflow_of(run)
    answers = [
        run_episode(workflow, transcript(index=index), roles_for(workflow), refusing()).episode.answer
        for index in (0, 0, 1)
    ]
    assert answers[0] == answers[1] != answers[2]


def test_turns_hold_exactly_the_sampled_tokens() -> None:
    turn = run_chain().episode.turns[0]
    assert turn.completion.token_ids == (*(turn.text or "").encode(), 256)
    assert turn.completion.stop is Stop.EOS
    assert turn.prompt_ids == tuple(b"user: question 0\nassistant:")


@settings(max_examples=15, deadline=None)
@given(
    shape=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
    cut=st.integers(0, 30),
)
def test_any_prefix_of_any_episode_replays_to_the_same_episode(
    shape: list[tuple[int, int]], seed: int, cut: int
) -> None:
    """Stages of copies side by side, each with several calls; records that are left are replayed, the rest asked."""

    async def run(task: Task, team: Team) -> Outcome:
        said: list[str] = []

        async def one(copy: int, depth: int) -> None:
            agent = team["solver", copy]
            text = "|".join(said)
            for _ in range(depth):
                text = (await agent.reply(say(text))).text or ""
            said.append(f"{copy}{text}")

        for copies, depth in shape:
            await asyncio.gather(*[one(copy, 1 + (copy + depth) % 3) for copy in range(copies)])
            said.sort()
        return Outcome(answer="|".join(said))

    workflow = workflow_of(run)
    whole = run_episode(workflow, transcript(run_seed=seed), roles_for(workflow), ScriptedEngine(by_seed))
    kept = whole.transcript.calls[: cut % (len(whole.transcript.calls) + 1)]
    engine = ScriptedEngine(by_seed, latency=slow(seed, 0.0005))
    again = run_episode(workflow, replace(whole.transcript, calls=kept), roles_for(workflow), engine)
    assert again.episode == whole.episode
    assert engine.num_calls == len(whole.transcript.calls) - len(kept)
