from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from learner_helpers import make_sample, make_turn, make_unit
from rolecall.errors import LearnerError
from rolecall.learner.packing import Weighted, pack, split_minibatches
from rolecall.learner.samples import build_samples, by_policy
from rolecall.learner.weights import Denominator, denominator, span_weights
from rolecall.records import Sampling, Span, Turn

PLAIN = {"solver": Sampling(), "solver_a": Sampling(), "solver_b": Sampling(), "gen1": Sampling(), "gen2": Sampling()}


def test_trained_tokens_are_exactly_the_sampled_ones_and_the_end_token_is_among_them() -> None:
    turn = make_turn("a", [5, 6, 7], [8, 9, 2])
    [sample] = build_samples([make_unit(["a"], 1.5)], {"a": turn}, sampling=PLAIN)
    assert sample.token_ids == (5, 6, 7, 8, 9, 2)
    assert sample.spans == (Span(turn_id="a", start=3, stop=6, advantage=1.5, version=0),)
    assert sample.logprobs == (0.0, 0.0, 0.0, -1.0, -1.0, -1.0)


def test_turns_merge_while_each_prompt_extends_the_sequence_exactly() -> None:
    first = make_turn("a", [5, 6], [7, 2])
    second = make_turn("b", [5, 6, 7, 2, 9], [4, 2], call=1)
    third = make_turn("c", [5, 6, 7, 3, 9, 4, 2, 1], [3], call=2)  # its template dropped a token: another sequence
    turns = {turn.id: turn for turn in (first, second, third)}
    units = [make_unit(["a"], 1.0), make_unit(["b"], -1.0), make_unit(["c"], 0.5)]
    merged, apart = build_samples(units, turns, sampling=PLAIN)
    assert merged.token_ids == (5, 6, 7, 2, 9, 4, 2)
    assert [(span.turn_id, span.start, span.stop, span.advantage) for span in merged.spans] == [
        ("a", 2, 4, 1.0),
        ("b", 5, 7, -1.0),
    ]
    assert apart.token_ids == (5, 6, 7, 3, 9, 4, 2, 1, 3)
    assert len(build_samples(units, turns, sampling=PLAIN, merge=False)) == 3


def test_turns_of_other_copies_roles_and_episodes_never_merge() -> None:
    prompt, answer = [5, 6], [7, 2]
    longer = [*prompt, *answer, 9]
    turns = {
        "a": make_turn("a", prompt, answer),
        "copy": make_turn("copy", longer, answer, copy=1),
        "role": make_turn("role", longer, answer, role="solver_a"),
        "episode": make_turn("episode", longer, answer, call=1),
    }
    units = [
        make_unit(["a"], 1.0),
        make_unit(["copy"], 1.0),
        make_unit(["role"], 1.0, role="solver_a"),
        make_unit(["episode"], 1.0, episode="other"),
    ]
    assert len(build_samples(units, turns, sampling=PLAIN)) == 4


def test_candidates_that_continue_one_turn_do_not_train_it_twice() -> None:
    turns = {
        "a": make_turn("a", [5], [7]),
        "b0": make_turn("b0", [5, 7], [8], call=1),
        "b1": make_turn("b1", [5, 7], [9], call=1),
    }
    samples = build_samples([make_unit(list(turns), 1.0)], turns, sampling=PLAIN)
    assert sorted(span.turn_id for sample in samples for span in sample.spans) == ["a", "b0", "b1"]


def test_a_turn_on_several_branches_is_trained_once_with_its_mean_advantage() -> None:
    counts: Counter[str] = Counter()
    turns = {"a": make_turn("a", [5], [7, 2])}
    units = [make_unit(["a"], 1.0, episode="left"), make_unit(["a"], -0.5, episode="right")]
    [sample] = build_samples(units, turns, sampling=PLAIN, counts=counts)
    assert sample.num_trained == 2
    assert sample.spans[0].advantage == pytest.approx(0.25)
    assert counts["shared"] == 1


def test_roles_with_underscores_and_digits_keep_their_own_samples_and_policies() -> None:
    roles = ("solver_a", "solver_b", "gen1", "gen2")
    turns = {role: make_turn(role, [5], [7], role=role, policy=f"policy of {role}") for role in roles}
    units = [make_unit([role], 1.0, role=role, policy=f"policy of {role}") for role in roles]
    groups = by_policy(build_samples(units, turns, sampling=PLAIN))
    assert {name: [sample.role for sample in group] for name, group in groups.items()} == {
        f"policy of {role}": [role] for role in roles
    }


def test_roles_outside_train_roles_and_empty_completions_are_left_out_and_counted() -> None:
    counts: Counter[str] = Counter()
    turns = {"a": make_turn("a", [5], []), "b": make_turn("b", [5], [6], role="gen1")}
    units = [make_unit(["a"], 1.0), make_unit(["b"], 1.0, role="gen1")]
    assert build_samples(units, turns, sampling=PLAIN, train_roles=["solver"], counts=counts) == []
    assert (counts["empty"], counts["untrained_role"]) == (1, 1)


@pytest.mark.parametrize("settings", [Sampling(top_k=2), Sampling(top_p=0.9)])
def test_samples_cut_by_top_k_or_top_p_are_an_error_unless_allowed(settings: Sampling) -> None:
    turns, units = {"a": make_turn("a", [5], [7])}, [make_unit(["a"], 1.0)]
    with pytest.raises(LearnerError, match="renormalised over the tokens kept"):
        build_samples(units, turns, sampling={"solver": settings})
    assert len(build_samples(units, turns, sampling={"solver": settings}, allow_truncated_support=True)) == 1


def test_greedy_samples_and_unknown_turns_are_errors() -> None:
    turns, units = {"a": make_turn("a", [5], [7])}, [make_unit(["a"], 1.0)]
    with pytest.raises(LearnerError, match="greedily"):
        build_samples(units, turns, sampling={"solver": Sampling(temperature=0.0)})
    with pytest.raises(LearnerError, match="names turn 'z'"):
        build_samples([make_unit(["z"], 1.0)], turns, sampling=PLAIN)


def test_token_mean_gives_every_token_of_the_step_the_same_weight() -> None:
    samples = [make_sample([1], [2, 3, 4], 1.0), make_sample([1], [5], 0.0)]
    total = denominator(samples)
    assert total == Denominator(tokens=4, turns=2)
    assert span_weights(samples, total) == [(0.25,), (0.25,)]


def test_sequence_mean_gives_every_turn_the_same_weight() -> None:
    samples = [make_sample([1], [2, 3, 4, 5], 1.0), make_sample([1], [5], 1.0)]
    weights = span_weights(samples, denominator(samples), "sequence_mean")
    assert weights == [(pytest.approx(1 / 8),), (pytest.approx(1 / 2),)]


def test_whether_zero_advantages_count_in_the_denominator_is_declared() -> None:
    samples = [make_sample([1], [2, 3, 4], 1.0), make_sample([1], [5], 0.0)]
    assert denominator(samples, count_zero_advantage=False) == Denominator(tokens=3, turns=1)


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean"])
def test_a_step_without_any_advantage_is_a_mean_over_all_samples_and_not_a_sum(aggregate: str) -> None:
    samples = [make_sample([1], [2, 3, 4, 5], 0.0), make_sample([1], [6, 7, 8, 9], 0.0)]
    none = denominator(samples, count_zero_advantage=False)
    assert none == Denominator(tokens=0, turns=0)
    assert span_weights(samples, none, aggregate) == [(0.125,), (0.125,)]


def test_a_role_weight_multiplies_and_leaves_the_denominator() -> None:
    samples = [make_sample([1], [2], 1.0), make_sample([1], [2], 1.0, role="verifier")]
    weights = span_weights(samples, denominator(samples), "token_mean", {"verifier": 0.5})
    assert weights == [(0.5,), (0.25,)]


def test_minibatches_keep_trajectories_together_and_lose_nothing() -> None:
    samples = [make_sample([i], [2, 3], 1.0, episode=f"e{i // 2}") for i in range(20)]
    parts = split_minibatches(samples, 4, seed=0, step=3)
    assert [len(part) for part in parts] == [4, 6, 4, 6]
    assert sorted(sample.token_ids for part in parts for sample in part) == sorted(s.token_ids for s in samples)
    homes = [{sample.episode_id for sample in part} for part in parts]
    assert all(not (a & b) for i, a in enumerate(homes) for b in homes[i + 1 :])
    assert parts == split_minibatches(samples, 4, seed=0, step=3)
    assert parts != split_minibatches(samples, 4, seed=0, step=4)


def spanning(versions: list[int]) -> Turn:
    turn = make_turn("a", [5, 6], [7, 8, 9, 2])
    return replace(turn, completion=replace(turn.completion, versions=tuple(versions)))


def test_a_completion_that_spans_versions_keeps_the_version_of_every_token() -> None:
    [sample] = build_samples([make_unit(["a"], 1.0)], {"a": spanning([3, 3, 4, 5])}, sampling=PLAIN)
    [span] = sample.spans
    assert (span.version, span.versions) == (3, (3, 3, 4, 5))
    rows = [Weighted(sample=sample, weights=(1.0,), number=0)]
    [batch] = pack(rows, 100, device=torch.device("cpu"), share=False)["solver"]
    assert batch.versions_N.tolist() == [3, 3, 4, 5]


def test_tokens_older_than_the_bound_are_conditioned_on_and_not_trained() -> None:
    counts = Counter[str]()
    unit = make_unit(["a"], 1.0)
    [sample] = build_samples(
        [unit],
        {"a": spanning([3, 3, 4, 5])},
        sampling=PLAIN,
        min_version={unit.policy: 4},
        counts=counts,
    )
    [span] = sample.spans
    assert sample.token_ids == (5, 6, 7, 8, 9, 2)
    assert (span.start, span.stop, span.version, span.versions) == (4, 6, 4, (4, 5))
    assert sample.logprobs == (0.0, 0.0, 0.0, 0.0, -1.0, -1.0)
    assert (counts["stale_tokens"], counts["stale"]) == (2, 0)


def test_a_completion_that_is_too_old_as_a_whole_is_left_out_and_counted() -> None:
    counts = Counter[str]()
    unit = make_unit(["a"], 1.0)
    found = build_samples(
        [unit],
        {"a": spanning([3, 3, 3, 3])},
        sampling=PLAIN,
        min_version={unit.policy: 4},
        counts=counts,
    )
    assert found == []
    assert (counts["stale_tokens"], counts["stale"]) == (4, 1)
