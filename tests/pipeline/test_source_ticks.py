"""What a tick trains: the pipeline in steady state, its four readings, the same completions under every schedule.

Acceptance check 4 of the method: with five stages and instant decoding, tick t trains solutions of batch t, first
reports of batch t - 1, ... second corrections of batch t - 4, and a task has 8, 16, 16, 16 and 16 completions in them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from pipeline_builders import (
    UNGRADABLE,
    again,
    by_call,
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

from rolecall.engines.base import Request
from rolecall.engines.scripted import Answer
from rolecall.pipeline.schedule import Schedule
from rolecall.records import Turn, Verdict
from rolecall.rollout.agentic import AgenticGroups

PIPELINE = Schedule(mode="pipeline")
STAGES = [("solver", 0), ("verifier", 0), ("corrector", 0), ("verifier", 1), ("corrector", 1)]


def test_a_tick_in_steady_state_has_8_16_16_16_16_completions_a_task_of_five_batches():
    with source(tasks_per_step=3) as made:
        found = steps(made, 8)
    for number, one in enumerate(found, 1):
        wanted = {
            (role, call, number - stage): 3 * (8 if stage == 0 else 16)
            for stage, (role, call) in enumerate(STAGES)
            if number - stage >= 1
        }
        assert by_call(one) == wanted, f"tick {number}"
    assert len(found[-1].graded) == 3 * 72
    metrics = found[-1].metrics
    assert metrics["calls/ended"] == 216
    assert [metrics[f"calls/{role}/{call}/ended"] for role, call in STAGES] == [24, 48, 48, 48, 48]
    assert metrics["pipeline/groups"] == 3 * 9
    assert metrics["chains/admitted"] == metrics["chains/ended"] == metrics["chains/ended_stages"] == 3
    assert metrics["chains/in_flight"] == 12
    assert metrics["pipeline/waiting"] == 4 * 3 * 16  # the next stages of four batches
    assert metrics["staleness/shared/max"] == 0


def test_a_tick_under_reading_b_grows_by_k_a_stage():
    sampler = AgenticGroups(n=4, k=2, stages=4, pool="parent")
    with source(engine_of(lambda r: by_candidate(r, flags=2)), sampler=sampler, tasks_per_step=2) as made:
        found = steps(made, 5)
    counts = Counter((turn.role, turn.key.call) for turn in turns(found[-1]))
    assert counts == {("solver", 0): 8, ("verifier", 0): 16, ("corrector", 0): 32, ("verifier", 1): 64}


def test_the_deepest_stage_goes_to_the_engine_first_and_new_tasks_last():
    order: list[Request] = []

    def remember(request: Request) -> str:
        order.append(request)
        return by_candidate(request)

    with source(engine_of(remember), tasks_per_step=1) as made:
        steps(made, 5)
        order.clear()
        steps(made, 1, first=6)
        assert made.engine.num_batches == 6
    calls = list(dict.fromkeys((request.key.role, request.key.call) for request in order))
    assert calls == STAGES[::-1]


def test_a_corrector_never_gets_a_report_that_says_correct():
    """The workflow does not go on with one; under every rule of picking."""
    for rule in ("adaptive", "balanced", "random"):
        with source(sampler=AgenticGroups(pick=rule), tasks_per_step=2, seed=3) as made:
            found = [one for step in steps(made, 6) for one in step.graded]
        corrected = [one for one in found if turn_of(one).role == "corrector"]
        assert len(corrected) > 100
        for one in corrected:
            report = one.episode.turn(turn_of(one).about or "")
            assert report.role == "verifier"
            assert report.claim is not None
            assert report.claim.value == Verdict.WRONG


def test_adaptive_picks_feed_wrong_solutions_to_verifiers_and_true_alarms_to_correctors():
    with source(tasks_per_step=2) as made:
        found = steps(made, 6)
    judged = [(one, turn_of(one)) for step in found for one in step.graded if turn_of(one).role == "verifier"]
    assert {one.answers[turn.about].right for one, turn in judged if turn.about} == {False}
    metrics = found[-1].metrics
    assert metrics["picks/verifier/low_share"] == metrics["picks/verifier/preferred_share"] == 1.0
    assert metrics["picks/corrector/preferred_share"] == 1.0
    assert metrics["picks/verifier/picked"] == metrics["picks/corrector/picked"] == 2 * 2 * 2
    assert metrics["picks/verifier/shortfall"] == 0


def test_a_chain_stops_where_no_report_flags_an_error():
    with source(engine_of(lambda r: by_candidate(r, flags=0)), tasks_per_step=2) as made:
        found = steps(made, 4)
    assert {(turn.role, turn.key.call) for turn in turns(found)} == {("solver", 0), ("verifier", 0)}
    assert found[-1].metrics["chains/ended_no_candidate"] == 2
    assert found[-1].metrics["chains/in_flight"] == 2
    assert found[-1].metrics["pipeline/waiting"] == 2 * 16


def paths(made: Any, num: int, batches: int) -> dict[str, tuple[Turn, ...]]:
    """The whole paths of all candidates of the first `batches`, with their versions left out."""
    found = {}
    for step in steps(made, num, learns=False):
        for one in step.graded:
            if one.episode.step <= batches:
                assert one.episode.id not in found, "trained twice"
                found[one.episode.id] = tuple(with_version(turn, 0) for turn in one.episode.path)
    return found


def test_every_schedule_makes_the_same_completions_of_a_batch():
    """Under frozen weights seeds, picks and paths depend on the task alone: what differs is when they are trained."""

    def long_words(request: Request) -> str:
        return ("x" * (request.seed % 23) if request.key.role == "verifier" else "") + by_candidate(request)

    schedules = {
        "barrier": (Schedule(), 2),
        "pipeline": (PIPELINE, 6),
        "segments": (Schedule(mode="pipeline_segments", segment_tokens=9), 30),
        "arrived": (Schedule(mode="pipeline_segments", segment_tokens=9, release="arrived"), 30),
        "few rows": (Schedule(mode="pipeline", max_rows=60), 12),
        "shallow": (Schedule(mode="pipeline", order="shallowest_first"), 6),
    }
    seen = {}
    for name, (schedule, num) in schedules.items():
        with source(engine_of(long_words), schedule=schedule, tasks_per_step=2) as made:
            seen[name] = paths(made, num, batches=2 if name != "few rows" else 1)
    assert len(seen["barrier"]) == 4 * 72
    for name in ("pipeline", "segments", "arrived", "shallow"):
        assert seen[name] == seen["barrier"], name
    assert len(seen["few rows"]) == 2 * 72
    assert all(seen["barrier"][id_] == path for id_, path in seen["few rows"].items())


def test_a_tick_that_is_not_deterministic_trains_the_same_in_any_order_of_replies():
    def waiting(request: Request) -> float:
        return request.seed % 7 / 1000

    with source(tasks_per_step=2) as made:
        wanted = [Counter(turn.id for turn in turns(one)) for one in steps(made, 3)]
    with source(engine_of(latency=waiting), tasks_per_step=2, deterministic=False, max_concurrent=9) as made:
        found = steps(made, 3)
        assert max(made.engine.batch_sizes) == 1
        assert [Counter(turn.id for turn in turns(one)) for one in found] == wanted
    assert found[0].generating_s > 0
    assert found[0].times["generate"] >= 0


def test_barrier_collects_whole_chains_of_the_steps_tasks():
    with source(schedule=Schedule(), tasks_per_step=2) as made:
        one, other = steps(made, 2)
    for number, found in ((1, one), (2, other)):
        assert by_call(found) == {(role, call, number): 16 if role == "solver" else 32 for role, call in STAGES}
        assert found.metrics["chains/in_flight"] == found.metrics["pipeline/waiting"] == 0


def test_few_rows_a_tick_admit_fewer_tasks_and_lose_none():
    with source(schedule=Schedule(mode="pipeline", max_rows=40), tasks_per_step=3) as made:
        found = steps(made, 12)
        sizes = made.engine.batch_sizes
        in_flight = len(made.forest.chains)
    assert [one.metrics["chains/admitted"] for one in found][:3] == [3, 0, 0]  # 48 rows follow from the first 24
    assert max(sizes) == 48
    per_task = Counter(one.episode.task.id for step in found for one in step.graded)
    admitted = sum(one.metrics["chains/admitted"] for one in found)
    assert admitted > 3
    assert sum(count == 72 for count in per_task.values()) == admitted - in_flight


def test_tasks_of_a_set_smaller_than_a_step_and_of_one_that_is_still_under_way_keep_apart():
    with source(num_tasks=2, tasks_per_step=5) as made:
        found = steps(made, 6)
    ids = [turn.id for turn in turns(found)]
    assert len(ids) == len(set(ids))
    peers = defaultdict(set)
    for turn in turns(found):
        peers[turn.peers].add(turn.prompt_ids)
        assert turn.peers
    assert all(len(prompts) == 1 for prompts in peers.values())
    assert set(Counter(turn.peers for turn in turns(found)).values()) == {8}
    admitted = Counter(one.episode.task.id for one in found[0].graded)
    assert sorted(admitted.values()) == [16, 24]  # two tasks, five chains


def test_two_policies_have_versions_of_their_own():
    policies = {"solver": "solver", "verifier": "judge", "corrector": "solver"}
    with source(policies=policies, tasks_per_step=1) as made:
        for step in range(1, 5):
            found = made.collect(step)
            learn(made, ["solver"])
    for turn in turns(found):
        assert turn.policy == policies[turn.role]
        assert set(turn.completion.versions) == ({3} if turn.policy == "solver" else {0})
    assert found.metrics["staleness/solver/max"] == found.metrics["staleness/judge/max"] == 0


def test_the_teams_score_is_that_of_the_last_answers_of_paths_where_the_sampler_ends_them_too():
    """One stage: every solution is a path's last answer, and half of them are right. Two: the verdict stands for the
    solution that it is about, of which adaptive picks take the wrong ones."""
    for stages, score in ((1, 0.5), (2, 0.0)):
        sampler = AgenticGroups(n=4, k=1, stages=stages)
        with source(sampler=sampler, schedule=Schedule(mode="barrier")) as made:
            assert made.collect(1).metrics["reward/team"] == score


# -- dynamic sampling that refills ------------------------------------------------------------------------------------


def spread_by_task(request: Request) -> str:
    """Tasks of even numbers have a spread; of odd ones every solution is wrong."""
    return by_candidate(request) if int(str(request.task.answer)) % 2 == 0 else "-1"


@pytest.mark.parametrize(
    ("fn", "cap", "admitted", "flat"),
    [(by_candidate, 2.0, 4, 0), (lambda request: "-1", 2.0, 8, 8), (lambda request: "-1", 1.5, 6, 6)],
)
def test_a_tick_admits_further_tasks_for_groups_without_spread_up_to_the_cap(fn, cap, admitted, flat):
    with source(engine_of(fn), tasks_per_step=4, refill=True, max_oversampling=cap) as made:
        one, two = steps(made, 2)
    for found in (one, two):
        assert found.metrics["chains/admitted"] == admitted
        assert found.metrics["chains/refilled"] == admitted - 4
        assert found.metrics["chains/flat"] == flat


def test_refilling_stops_when_as_many_groups_as_a_step_has_tasks_have_a_spread():
    with source(engine_of(spread_by_task), tasks_per_step=4, refill=True, max_oversampling=10) as made:
        found = steps(made, 1)[0]
    first = defaultdict(set)
    for one in found.graded:
        first[turn_of(one).peers].add(one.team.score)
    assert sum(len(scores) == 2 for scores in first.values()) == 4
    assert found.metrics["chains/flat"] == len(first) - 4 == found.metrics["chains/refilled"]


def test_in_segments_a_group_that_is_not_complete_yet_is_not_refilled():
    def slow(request: Request) -> str:
        return "x" * 20 if request.key.role == "solver" else by_candidate(request)

    schedule = Schedule(mode="pipeline_segments", segment_tokens=8)
    with source(engine_of(slow), schedule=schedule, tasks_per_step=2, refill=True, max_oversampling=2.0) as made:
        found = steps(made, 2)
    # three segments: the first collect goes through three ticks, and then refills for the two flat groups of the first;
    # what the ticks before admitted is no oversampling
    assert found[0].metrics["chains/admitted"] == 3 * 2 + 2
    assert found[0].metrics["chains/refilled"] == found[0].metrics["chains/flat"] == 2


# -- a team's outcome, backed up --------------------------------------------------------------------------------------


def outcome_tree(request: Request) -> Answer:
    """n = 2, k = 1: answers are wrong and right, reports flag an error and pass, corrections are right and wrong."""
    if request.key.role == "solver":
        return "-1" if request.candidate == 0 else str(request.task.answer)
    if request.key.role == "verifier":
        return "Verdict: wrong" if request.candidate == 0 else "Verdict: correct"
    return str(request.task.answer) if request.candidate == 0 else "-1"


def test_a_broadcast_outcome_is_the_mean_over_the_leaves_below_a_candidate():
    """Solution 0 (wrong) is picked. Report 0 flags it, and of the corrections below one is right: 1/2. Report 1 passes
    a wrong answer: 0. So solution 0 is worth (1/2 + 0) / 2 = 1/4; solution 1 was not picked, and its answer is right.
    """
    sampler = AgenticGroups(n=2, k=1, stages=3)
    with source(engine_of(outcome_tree), schedule=Schedule(), sampler=sampler, tasks_per_step=1, back_up=True) as made:
        found = steps(made, 1)[0]
    values = {(turn_of(one).role, turn_of(one).candidate): one.team.score for one in found.graded}
    assert values == {
        ("solver", 0): 0.25,
        ("solver", 1): 1.0,
        ("verifier", 0): 0.5,
        ("verifier", 1): 0.0,
        ("corrector", 0): 1.0,
        ("corrector", 1): 0.0,
    }
    assert made.forest.groups == {}


def test_a_candidate_whose_leaves_have_no_grades_has_none_either():
    def ungraded(request: Request) -> Answer:
        return outcome_tree(request) if request.key.role != "corrector" else UNGRADABLE

    sampler = AgenticGroups(n=2, k=1, stages=3)
    with source(engine_of(ungraded), schedule=Schedule(), sampler=sampler, tasks_per_step=1, back_up=True) as made:
        found = steps(made, 1)[0]
    values = {(turn_of(one).role, turn_of(one).candidate): one.team.score for one in found.graded}
    assert values[("corrector", 0)] is None
    assert values[("verifier", 0)] is None
    assert values[("solver", 0)] == 0.0  # its other report passed the wrong answer


# -- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(),
        PIPELINE,
        Schedule(mode="pipeline_segments", segment_tokens=8),
        Schedule(mode="pipeline_segments", segment_tokens=8, release="arrived"),
        Schedule(mode="pipeline", max_rows=48, order="oldest_first"),
    ],
    ids=["barrier", "pipeline", "segments", "arrived", "few_rows"],
)
@pytest.mark.parametrize("pool", ["task", "parent"])
def test_a_source_goes_on_from_any_checkpoint_as_it_would_have(schedule, pool):
    """Siblings of one stage end in different ticks here: one is trained and waits for the other's candidates."""

    def words(request: Request) -> str:
        size = sum(request.prompt_ids) % 23 if request.key.role == "verifier" else request.seed % 12
        return " " * size + by_candidate(request, flags=2)

    options: dict[str, Any] = {
        "schedule": schedule,
        "sampler": AgenticGroups(n=4, k=2, stages=4, pool=pool),
        "tasks_per_step": 2,
    }
    found, states, waiting = [], [], 0
    with source(engine_of(words), **options) as made:
        for step in range(1, 8):
            found.append(made.collect(step))
            learn(made)
            states.append((saved(made), dict(made.scheduler.versions)))
            waiting += sum(all(row.trained for row in group.rows) for group in made.forest.groups.values())
    for step, (state, versions) in enumerate(states[:-1], 1):
        other = again(state, versions, engine_of(words), **options)
        try:
            assert saved(other) == state
            mine, theirs = found[step], other.collect(step + 1)
        finally:
            other.close()
        assert theirs.graded == mine.graded
        assert theirs.metrics == mine.metrics
        assert theirs.outcomes == mine.outcomes
        assert theirs.transcripts == mine.transcripts
    if schedule.mode == "pipeline_segments" and pool == "task":
        assert waiting > 0, "no group was trained while it waited for its sibling: this test tests nothing"
