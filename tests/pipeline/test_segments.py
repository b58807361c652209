"""Completions in segments: cut, kept, gone on with, and in the end the tokens of one that was never cut.

Acceptance check 5 of the method: under frozen weights 1, 2 and 4 segments give the same tokens; greedy, and sampled
too, since random numbers are counted by token and not drawn in a row. A completion names the version of every token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pipeline_builders import (
    SVC,
    again,
    by_candidate,
    engine_of,
    learn,
    saved,
    source,
    steps,
    turn_of,
    turns,
    with_version,
)

from rolecall.engines.base import Reply, Request
from rolecall.engines.local import LocalEngine
from rolecall.engines.scripted import Scripted, ScriptedEngine
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.errors import EngineError
from rolecall.pipeline.schedule import Schedule
from rolecall.records import Completion, EndpointReply, OutcomeClass, Sampling, Stop
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.render import ChatRenderer, EndpointRenderer

SMALL = AgenticGroups(n=4, k=2, stages=3)


def segments(tokens: int, **settings: Any) -> Schedule:
    return Schedule(mode="pipeline_segments", segment_tokens=tokens, **settings)


def by_id(found: Any) -> dict[str, Any]:
    ids = [turn.id for turn in turns(found)]
    assert len(ids) == len(set(ids)), "trained twice"
    return {turn.id: with_version(turn, 0) for turn in turns(found)}


@pytest.mark.parametrize("num_segments", [1, 2, 4])
def test_scripted_completions_in_segments_are_those_of_one_shot(num_segments):
    """Limit 32: some end by themselves anywhere, some at the limit, one exactly where it is cut."""

    def ragged(request: Request) -> str:
        return "x" * (request.seed % 40) + by_candidate(request)

    options: dict[str, Any] = {"sampler": SMALL, "tasks_per_step": 1, "sampling": Sampling(max_tokens=32)}
    with source(engine_of(ragged), schedule=Schedule(mode="pipeline"), **options) as made:
        wanted = of_first_batch(made, 4 + 8 + 8)
    with source(engine_of(ragged), schedule=segments(32 // num_segments), **options) as made:
        assert of_first_batch(made, 4 + 8 + 8) == wanted
    assert max(len(turn.completion.token_ids) for turn in wanted.values()) == 32
    assert {turn.completion.stop for turn in wanted.values()} == {Stop.EOS, Stop.LENGTH}


def of_first_batch(made: Any, num: int) -> dict[str, Any]:
    """The candidates of the chain that was admitted first, by id, whatever step each was trained in."""
    found: list[Any] = []
    while len(mine := {id_: turn for id_, turn in by_id(found).items() if made_first(found, id_)}) < num:
        found.append(made.collect(len(found) + 1))
        learn(made, ())
    return mine


def made_first(found: Any, turn_id: str) -> bool:
    return turn_id.startswith(turns(found)[0].id.partition("/s1/0")[0] + "/s1/0")


@pytest.fixture(scope="module")
def local(tiny_model: Callable[..., str]) -> Any:
    """The local engine in this process, and the renderer of its model."""
    from transformers import AutoTokenizer

    folder = tiny_model(std=0.2)
    engine = LocalEngine(
        [PolicySpec(name="shared", kind="model", model=folder)], LocalSettings(mode="inline", deterministic=True)
    )
    yield engine, ChatRenderer(AutoTokenizer.from_pretrained(folder))
    engine.shut_down()


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
def test_a_real_model_gives_the_same_tokens_in_1_2_and_4_segments(local, temperature):
    engine, renderer = local
    options: dict[str, Any] = {
        "sampler": SMALL,
        "tasks_per_step": 1,
        "sampling": Sampling(max_tokens=16, temperature=temperature),
        "renderer": renderer,
    }
    seen = {}
    for tokens in (16, 8, 4):
        with source(engine, schedule=segments(tokens), **options) as made:
            seen[tokens] = of_first_batch(made, 4 + 8 + 8)
    for tokens in (8, 4):
        assert seen[tokens].keys() == seen[16].keys()
        for id_, turn in seen[tokens].items():
            assert turn.completion.token_ids == seen[16][id_].completion.token_ids
            assert turn.completion.stop == seen[16][id_].completion.stop
            assert turn.completion.logprobs == pytest.approx(seen[16][id_].completion.logprobs, abs=1e-4)
    assert 16 in {len(turn.completion.token_ids) for turn in seen[16].values()}
    different = {turn.completion.token_ids for turn in seen[16].values() if turn.role == "solver"}
    assert len(different) == (1 if temperature == 0 else 4)


@pytest.mark.parametrize(
    ("release", "step", "versions"),
    [
        # the first three ticks complete no group, so no version moves; the group of the second tick ends in the fourth
        ("complete", 0, (0,) * 11),
        ("complete", 1, (0,) * 8 + (1,) * 3),
        ("complete", 2, (0,) * 4 + (1,) * 4 + (2,) * 3),
        # every tick trains what arrived in it
        ("arrived", 2, (0,) * 4 + (1,) * 4 + (2,) * 3),
    ],
)
def test_a_completion_carries_the_version_and_log_probability_of_every_token(release, step, versions):
    """Candidate 3 takes three ticks; the others one."""

    def slow(request: Request) -> Scripted:
        text = "x" * 10 if request.candidate == 3 else by_candidate(request)
        return Scripted(text=text, logprob=-1.0 - made.engine.version("shared"))

    sampler = AgenticGroups(n=4, k=1, stages=1)
    with source(engine_of(slow), schedule=segments(4, release=release), sampler=sampler, tasks_per_step=1) as made:
        found = steps(made, 3)
    done = next(turn.completion for turn in turns(found[step]) if turn.candidate == 3)
    assert done.versions == versions
    assert done.logprobs == tuple(-1.0 - version for version in versions)
    assert done.version == 0
    assert found[step].metrics["staleness/shared/max"] == step


def test_completions_that_end_early_are_graded_and_trained_in_their_tick_under_arrived():
    def slow(request: Request) -> str:
        return "x" * 10 if request.candidate == 3 else by_candidate(request)

    sampler = AgenticGroups(n=4, k=2, stages=2)
    with source(engine_of(slow), schedule=segments(4, release="arrived"), sampler=sampler, tasks_per_step=1) as made:
        one, two, three = steps(made, 3)
    assert [turn.candidate for turn in turns(one)] == [0, 1, 2]
    assert [one_.team.score for one_ in one.graded] == [0.0, 1.0, 0.0]
    assert [turn.candidate for turn in turns(two)] == [0, 1, 2]
    assert two.graded[0].episode.step == 2
    assert [(turn.candidate, turn.id.split("/")[1]) for turn in turns(three) if turn.candidate == 3] == [(3, "s1")]
    assert made.forest.groups  # the next stage of batch 1 waits for its tick


class Forgetful(ScriptedEngine):
    """Goes on with a completion from other log-probabilities, versions or tokens than it was given."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__(lambda request: "x" * 10)
        self.wrong = wrong

    async def generate(self, requests: Any) -> list[Reply]:
        replies = await super().generate(requests)
        return [
            replace(reply, **{name: (value, *getattr(reply, name)[1:]) for name, value in self.wrong.items()})
            if request.prefix is not None and isinstance(reply, Completion)
            else reply
            for request, reply in zip(requests, replies, strict=True)
        ]


@pytest.mark.parametrize("wrong", [{"token_ids": 7}, {"logprobs": -9.0}, {"versions": 5}])
def test_an_engine_that_does_not_go_on_where_it_was_cut_is_named(wrong):
    with (
        source(Forgetful(**wrong), schedule=segments(4), sampler=SMALL, tasks_per_step=1) as made,
        pytest.raises(EngineError, match=r"the engine answered solver:0 of .* goes on where it was cut"),
    ):
        steps(made, 2)


def test_a_model_that_is_out_of_positions_ends_a_completion_before_its_segment_does():
    """It stops for length, short of what it was asked for: it will not go on."""

    def full(request: Request) -> Completion:
        size = 6 if request.prefix is None else 9
        old = request.prefix.token_ids if request.prefix is not None else ()
        ids = (*old, *[120] * (size - len(old)))
        return Completion(token_ids=ids, logprobs=(-1.0,) * size, versions=(0,) * size, stop=Stop.LENGTH)

    with source(engine_of(full), schedule=segments(6), sampler=SMALL, tasks_per_step=1) as made:
        one = made.collect(1)
    assert {len(turn.completion.token_ids) for turn in turns(one)} == {9}
    assert {one_.episode.outcome_class for one_ in one.graded} == {OutcomeClass.TRUNCATED}
    assert all(turn.truncated for turn in turns(one))


def test_a_limit_that_a_role_sets_lower_than_a_segment_ends_a_completion():
    with source(
        engine_of(lambda request: "x" * 50),
        schedule=segments(40),
        sampler=SMALL,
        tasks_per_step=1,
        sampling=Sampling(max_tokens=12),
    ) as made:
        found = made.collect(1)
    assert {len(turn.completion.token_ids) for turn in turns(found)} == {12}


def test_a_reply_of_an_endpoint_is_not_cut():
    """It is written in one piece, under the role's own limit."""

    def endpoint(request: Request) -> Completion | str:
        assert request.sampling.max_tokens == (64 if request.policy == "api" else 4) or request.prefix is not None
        if request.policy != "api":
            return "1"
        wrote = EndpointReply(text="Verdict: wrong", num_tokens=17)
        return Completion(token_ids=(), logprobs=(), versions=(), stop=Stop.EOS, endpoint=wrote)

    with source(
        engine_of(endpoint),
        schedule=segments(4),
        sampler=SMALL,
        tasks_per_step=1,
        policies={"verifier": "api"},
        whole=["api"],
    ) as made:
        found = steps(made, 2)
    reports = [turn for turn in turns(found[1]) if turn.role == "verifier"]
    assert {turn.text for turn in reports} == {"Verdict: wrong"}
    assert found[1].tokens == 8 * 17 + 4 * 2
    assert EndpointRenderer.end_ids == ()


def test_unfinished_completions_are_in_the_checkpoint_with_versions_and_log_probabilities():
    def slow(request: Request) -> Scripted:
        return Scripted(text="x" * (4 * request.candidate), logprob=-0.1 * (request.seed % 7))

    options: dict[str, Any] = {"schedule": segments(4), "sampler": AgenticGroups(n=4, k=1, stages=1)}
    options |= {"tasks_per_step": 1, "deterministic": True}
    with source(engine_of(slow), **options) as made:
        asyncio.run(made.engine.load("shared", 3, {}))
        made.scheduler.versions["shared"] = 3
        made.collect(1)
        learn(made)
        state, versions = saved(made), dict(made.scheduler.versions)
        wanted = made.collect(2)
    unfinished = [one for group in state["forest"]["groups"] for one in group["completions"] if one is not None]
    assert any(one["versions"] and one["stop"] == "length" for one in unfinished)
    other = again(state, versions, engine_of(slow), **options)
    try:
        found = other.collect(2)
    finally:
        other.close()
    assert found.graded == wanted.graded
    assert found.tokens == wanted.tokens


def test_the_reasoning_system_is_a_workflow_like_another_in_segments():
    """Its verdicts count up to an acceptance: the stages go on after a report that says "correct"."""
    system = replace(SVC, mode="system", passes=2)
    with source(
        engine_of(lambda r: by_candidate(r, flags=0)), workflow=system, schedule=segments(9), sampler=SMALL
    ) as made:
        found = steps(made, 8, learns=False)
    calls = {(turn.role, turn.key.call) for turn in turns(found)}
    assert calls == {("solver", 0), ("verifier", 0), ("verifier", 1)}
    ends = [one for step in found for one in step.graded if turn_of(one).key.call == 1]
    assert {one.episode.outcome.figures["accepted"] for one in ends if one.episode.outcome} == {1.0}
