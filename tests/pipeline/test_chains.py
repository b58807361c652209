"""How the tree of one task grows: readings A and B of the paper's "two outputs of the preceding agent"; its ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from rolecall.errors import ConfigError
from rolecall.pipeline.chains import Candidate, Chain, PickCounts, Successor
from rolecall.rollout.agentic import AgenticGroups

RECEIVERS = [("verifier", 0), ("corrector", 0), ("verifier", 1), ("corrector", 1), None]
Scores = Callable[[int, int, int], float | None]


def group_of(
    stage: int, number: int, *, n: int = 8, goes_on: Callable[[int], bool] = lambda _: True, score: Scores | None = None
) -> list[Candidate]:
    """The candidates of a complete group; `goes_on` says with which the workflow goes on."""
    return [
        Candidate(
            place=(number, place),
            score=float(place % 2) if score is None else score(stage, number, place),
            receiver=RECEIVERS[stage] if goes_on(place) else None,
            onward=(stage, number, place),
        )
        for place in range(n)
    ]


def grow(sampler: AgenticGroups, seed: int = 0, **options) -> tuple[Chain, list[int], PickCounts, list[Successor]]:
    """Grow a chain to its end; returns the completions of each stage too."""
    chain, counts = Chain(sampler, seed, 1, "task", 0), PickCounts()
    sizes, every = [], []
    successors = [Successor(0, 0, Candidate(place=(0, 0), score=None, receiver=None))]
    while successors:
        sizes.append(sampler.n * len(successors))
        stage, following = successors[0].stage, []
        for one in successors:
            assert one.stage == stage
            assert not chain.ended
            following += chain.complete(stage, group_of(stage, one.number, n=sampler.n, **options), counts)
        every += following
        successors = following
    assert chain.ended
    assert chain.pools == {}
    return chain, sizes, counts, every


def test_reading_a_has_8_16_16_16_16_completions_a_task():
    chain, sizes, _, _ = grow(AgenticGroups(pool="task"))
    assert sizes == [8, 16, 16, 16, 16]
    assert sum(sizes) == AgenticGroups(pool="task").max_calls == 72
    assert chain.why_ended == "stages"


def test_reading_b_has_8_16_32_64_128_completions_a_task():
    _, sizes, _, _ = grow(AgenticGroups(pool="parent"))
    assert sizes == [8, 16, 32, 64, 128]
    assert sum(sizes) == AgenticGroups(pool="parent").max_calls == 248


def test_a_stage_waits_for_all_groups_of_its_task_under_reading_a_and_for_none_under_b():
    for pool, before, after in (("task", 0, 2), ("parent", 2, 2)):
        chain, counts = Chain(AgenticGroups(pool=pool), 0, 1, "t", 0), PickCounts()
        assert len(chain.complete(0, group_of(0, 0), counts)) == 2
        assert len(chain.complete(1, group_of(1, 0), counts)) == before
        assert len(chain.complete(1, group_of(1, 1), counts)) == after


def test_the_order_in_which_sibling_groups_end_changes_nothing():
    grown = []
    for order in ((0, 1), (1, 0)):
        chain, counts = Chain(AgenticGroups(), 3, 1, "t", 0), PickCounts()
        chain.complete(0, group_of(0, 0), counts)
        last = [chain.complete(1, group_of(1, number), counts) for number in order][-1]
        grown.append([(one.number, one.candidate.onward) for one in last])
    assert grown[0] == grown[1]
    assert len(grown[0]) == 2


def test_a_chain_ends_where_the_workflow_goes_on_with_no_candidate():
    """All reports say "correct": no corrector is called."""
    chain, counts = Chain(AgenticGroups(), 0, 1, "t", 0), PickCounts()
    chain.complete(0, group_of(0, 0), counts)
    assert chain.complete(1, group_of(1, 0, goes_on=lambda _: False), counts) == []
    assert not chain.ended
    assert chain.complete(1, group_of(1, 1, goes_on=lambda _: False), counts) == []
    assert chain.ended
    assert chain.why_ended == "no_candidate"


def test_candidates_that_do_not_go_on_are_never_picked_and_few_are_all_taken():
    for seed in range(30):
        chain, counts = Chain(AgenticGroups(pick="random"), seed, 1, "t", 0), PickCounts()
        chain.complete(0, group_of(0, 0), counts)
        chain.complete(1, group_of(1, 0, goes_on=lambda place: place == 5), counts)
        found = chain.complete(1, group_of(1, 1, goes_on=lambda _: False), counts)
        assert [one.candidate.place for one in found] == [(0, 5)]
        assert counts.picked["corrector"] == 1


def test_a_group_of_failures_ends_its_chain_and_one_beside_candidates_does_not():
    chain, counts = Chain(AgenticGroups(), 0, 1, "t", 0), PickCounts()
    assert chain.complete(0, [], counts) == []
    assert chain.ended
    assert chain.why_ended == "failed"
    chain = Chain(AgenticGroups(), 0, 1, "t", 0)
    chain.complete(0, group_of(0, 0), counts)
    chain.complete(1, group_of(1, 0), counts)
    assert len(chain.complete(1, [], counts)) == 2
    chain = Chain(AgenticGroups(), 0, 1, "t", 0)
    chain.complete(0, group_of(0, 0), counts)
    chain.complete(1, group_of(1, 0, goes_on=lambda _: False), counts)
    chain.complete(1, [], counts)
    assert chain.why_ended == "no_candidate"


def test_picks_depend_on_the_run_the_task_and_the_stage_alone():
    def picked(seed: int, *path: object) -> list[object]:
        chain = Chain(AgenticGroups(), seed, *path)
        return [one.candidate.place for one in chain.complete(0, group_of(0, 0), PickCounts())]

    assert picked(0, 1, "t", 0) == picked(0, 1, "t", 0)
    others = [picked(0, 1, f"t{number}", 0) for number in range(20)]
    assert len({str(one) for one in others}) > 3
    assert len({str(picked(seed, 1, "t", 0)) for seed in range(20)}) > 3
    assert len({str(picked(0, 1, "t", index)) for index in range(20)}) > 3  # the same task twice in one step


def test_the_rule_adaptive_feeds_wrong_solutions_to_the_verifier_and_right_reports_to_the_corrector():
    _, _, counts, every = grow(AgenticGroups())
    to_verifier = [one.candidate.score for one in every if one.stage in (1, 3)]
    to_corrector = [one.candidate.score for one in every if one.stage in (2, 4)]
    assert to_verifier == [0.0] * 4
    assert to_corrector == [1.0] * 4
    assert counts.metrics() == {
        "picks/corrector/picked": 4.0,
        "picks/corrector/low_share": 0.0,
        "picks/corrector/preferred_share": 1.0,
        "picks/corrector/shortfall": 0.0,
        "picks/verifier/picked": 4.0,
        "picks/verifier/low_share": 1.0,
        "picks/verifier/preferred_share": 1.0,
        "picks/verifier/shortfall": 0.0,
    }


def test_a_table_of_ones_own_turns_the_preference_round_or_off():
    _, _, _, every = grow(AgenticGroups(prefer={"verifier": "high"}))
    assert [one.candidate.score for one in every if one.stage in (1, 3)] == [1.0] * 4
    scores = set()
    for seed in range(20):
        _, _, counts, every = grow(AgenticGroups(prefer={"verifier": "none"}), seed)
        scores |= {one.candidate.score for one in every if one.stage == 1}
        assert counts.metrics()["picks/verifier/preferred_share"] == 0.0
    assert scores == {0.0, 1.0}


def test_fills_are_counted_by_the_role_that_receives_them():
    _, _, counts, _ = grow(AgenticGroups(), score=lambda stage, number, place: 1.0)
    assert counts.shortfall == Counter({"verifier": 4, "corrector": 0})
    assert counts.metrics()["picks/verifier/preferred_share"] == 0.0
    _, _, counts, _ = grow(AgenticGroups(), score=lambda stage, number, place: None)
    assert counts.shortfall == Counter({"verifier": 4, "corrector": 4})
    assert counts.metrics()["picks/corrector/preferred_share"] == 0.0
    assert counts.metrics()["picks/corrector/low_share"] == 0.0


def test_where_candidates_go_on_to_different_calls_each_call_gets_its_own_k():
    chain, counts = Chain(AgenticGroups(k=1), 0, 1, "t", 0), PickCounts()
    candidates = [Candidate(place=(0, place), score=0.0, receiver=(f"role{place % 3}", 0)) for place in range(6)]
    found = chain.complete(0, candidates, counts)
    assert sorted(one.candidate.receiver[0] for one in found) == ["role0", "role1", "role2"]
    assert [one.number for one in found] == [0, 1, 2]


@pytest.mark.parametrize("pool", ["task", "parent"])
def test_a_chain_goes_on_from_its_saved_state_as_it_would_have(pool):
    sampler = AgenticGroups(pool=pool)
    chain, counts = Chain(sampler, 0, 7, "t/1", 2), PickCounts()
    chain.complete(0, group_of(0, 0), counts)
    chain.complete(1, group_of(1, 0), counts)
    again = Chain.from_state(sampler, 0, json.loads(json.dumps(chain.state())))
    if pool == "task":
        again.pools[1] = group_of(1, 0)  # whoever drives it makes the candidates again
    assert chain.complete(1, group_of(1, 1), counts) == again.complete(1, group_of(1, 1), counts) != []
    assert chain.state() == again.state()


def test_counts_of_picks_survive_a_checkpoint():
    _, _, counts, _ = grow(AgenticGroups())
    assert PickCounts.from_dict(json.loads(json.dumps(counts.to_dict()))) == counts


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n": 1}, "n is 1; wanted 2 or more"),
        ({"k": 0}, "k is 0; wanted 1 or more"),
        ({"stages": 0}, "stages is 0; wanted 1 or more"),
        ({"n": 4, "k": 5}, "k is 5 and a group has n = 4"),
        ({"pool": "tasks"}, "pool is 'tasks'; wanted one of task, parent"),
        ({"pick": "best"}, "pick is 'best'; wanted one of adaptive, balanced, random"),
        ({"prefer": {"verifier": "hihg"}}, "prefer.verifier is 'hihg'; wanted low, high or none; did you mean 'high'"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_words(settings, words):
    with pytest.raises(ConfigError, match="agentic groups: ") as error:
        AgenticGroups(**settings)
    assert words in str(error.value)
