"""What a loss makes of tokens: mastered ones masked, ratios of one or against each segment's policy.

Expected numbers are worked out by hand, or by autograd on a loss that the test writes out itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_builders import (
    Tiny,
    advantages_of,
    autograd,
    evaluate,
    learner_with,
    log,
    logits_of,
    microbatch,
    targets_of,
)

from learner_helpers import (
    gradient,
    make_sample,
    make_turn,
    make_unit,
    random_samples,
    relative_error,
)
from rolecall.algorithms.loss import Loss
from rolecall.credit import MeanStd, assign
from rolecall.learner.learner import Learner
from rolecall.learner.logprobs import TokenScores
from rolecall.learner.objective import Objective, References
from rolecall.learner.samples import build_samples
from rolecall.records import Completion, CreditUnit, Sample, Sampling, Stop, Turn

# Mastered positive tokens (DMMPT, UloRL)

MASKED = Loss(ratio="one", clipped=False, mask_mastered=True)
THREE_TURNS = [make_sample([1], [2, 3, 4], 1.0), make_sample([1], [5, 6], 1.0), make_sample([7], [8, 9], -1.0)]
"""Turns of 3, 2 and 2 tokens with A = 1, 1 and -1."""
PROBABILITIES = log(0.995, 0.5, 0.999, 0.995, 0.999, 0.995, 0.999)
ENTROPIES = torch.tensor([0.1, 0.3, 0.05, 0.3, 0.2, 0.01, 0.01])
"""Means by turn: 0.15, 0.25 and 0.01 nats, so that sigma = 0.2 lets the second turn through."""


def test_a_mastered_token_is_positive_and_likely_and_in_a_turn_of_low_entropy() -> None:
    """Only the first and third: the second is unlikely, the next two are in an open turn, the last two are negative."""
    made, slope, metrics = evaluate(MASKED, THREE_TURNS, PROBABILITIES, entropies=ENTROPIES)
    assert made.mastered_N is not None
    assert made.mastered_N.tolist() == [True, False, True, False, False, False, False]
    assert made.loss_N.tolist() == pytest.approx([0.0, -1.0, 0.0, -1.0, -1.0, 1.0, 1.0])
    assert slope.tolist() == pytest.approx([0.0, -1.0, 0.0, -1.0, -1.0, 1.0, 1.0])
    assert metrics["mastered_share"] == metrics["dynamics/solver/mastered_share"] == pytest.approx(2 / 7)


@pytest.mark.parametrize(
    ("knobs", "mastered"),
    [
        ({"mastered_tau": 0.4}, [True, True, True, False, False, False, False]),
        ({"mastered_tau": 0.998}, [False, False, True, False, False, False, False]),
        ({"mastered_sigma": 0.3}, [True, False, True, True, True, False, False]),
        ({"mastered_sigma": 0.1}, [False] * 7),
    ],
)
def test_tau_bounds_the_probability_and_sigma_the_mean_entropy_of_the_turn(knobs, mastered) -> None:
    made, _, _ = evaluate(replace(MASKED, **knobs), THREE_TURNS, PROBABILITIES, entropies=ENTROPIES)
    assert made.mastered_N is not None
    assert made.mastered_N.tolist() == mastered


def test_sigma_of_zero_masks_nothing_not_even_where_there_is_no_entropy_at_all() -> None:
    made, _, _ = evaluate(replace(MASKED, mastered_sigma=0.0), THREE_TURNS, PROBABILITIES)
    assert made.mastered_N is not None
    assert not made.mastered_N.any()


def test_no_mask_without_the_setting_and_no_metric_of_it() -> None:
    made, _, metrics = evaluate(replace(MASKED, mask_mastered=False), THREE_TURNS, PROBABILITIES, entropies=ENTROPIES)
    assert made.mastered_N is None
    assert "mastered_share" not in metrics
    assert made.loss_N.tolist() == pytest.approx([-1.0] * 5 + [1.0] * 2)


def test_the_mask_leaves_kl_and_entropy_terms_as_they_are() -> None:
    """k2 against the start of the update, d = -0.1: 0.005 a token; the entropy bonus of 0.5 a token on top."""
    loss = replace(MASKED, kl_coef=1.0, kl_estimator="k2", kl_against="last", entropy_coef=0.5)
    made, _, _ = evaluate(loss, THREE_TURNS, PROBABILITIES, entropies=ENTROPIES, last=PROBABILITIES - 0.1)
    assert made.loss_N[0].item() == pytest.approx(0.005 - 0.5 * 0.1, abs=1e-6)
    assert made.loss_N[1].item() == pytest.approx(-1.0 + 0.005 - 0.5 * 0.3, abs=1e-6)


COLD = 0.1
"""A temperature at which a random model of two layers is sure of some tokens."""


@torch.no_grad()
def likeliest(learner: Learner, prompt: Sequence[int], size: int) -> tuple[int, ...]:
    """The policy's greedy completion."""
    ids = list(prompt)
    for _ in range(size):
        ids.append(int(learner.module.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def confident_samples(learner: Learner) -> list[Sample]:
    """Random completions, every other one greedy instead, all at a low temperature."""
    samples = []
    for number, sample in enumerate(random_samples(10, seed=3)):
        [span] = sample.spans
        ids = sample.token_ids
        if number % 2:
            ids = ids[: span.start] + likeliest(learner, ids[: span.start], span.stop - span.start)
        samples.append(replace(sample, token_ids=ids, temperature=COLD))
    return samples


LOW = replace(MASKED, mastered_tau=0.9, mastered_sigma=0.5)
"""Bounds that its tokens and turns cross on both sides at that temperature."""


def test_the_masked_gradient_is_that_of_a_loss_written_out_and_divides_by_all_tokens(tiny_model: Tiny) -> None:
    learner = learner_with(tiny_model, LOW)
    samples = confident_samples(learner)
    total, value, masked = sum(sample.num_trained for sample in samples), torch.zeros(()), 0
    for sample in samples:
        all_logprobs = logits_of(learner, sample)
        logprobs = all_logprobs.gather(1, targets_of(sample)[:, None])[:, 0]
        entropy = -(all_logprobs.exp() * all_logprobs).sum(1).mean().item()
        mask = (advantages_of(sample) > 0) & (logprobs.exp() >= 0.9) & torch.tensor(entropy < 0.5)
        masked += int(mask.sum())
        value = value - (advantages_of(sample) * logprobs)[~mask].sum() / total
    assert 3 <= masked <= total - 10
    wanted = autograd(learner, value)
    assert relative_error(gradient(learner, samples), wanted) < 1e-5
    report = learner.update(samples)
    assert report.metrics["learner/team/mastered_share"] == pytest.approx(masked / total)
    assert report.metrics["dynamics/solver/mastered_share"] == pytest.approx(masked / total)


def test_packing_changes_neither_the_mask_nor_its_gradient(tiny_model: Tiny) -> None:
    samples = confident_samples(learner_with(tiny_model, LOW))
    whole = learner_with(tiny_model, LOW, skip_zero_advantage=False)
    wanted, share = gradient(whole, samples), whole.update(samples).metrics["learner/team/mastered_share"]
    assert 0.0 < share < 1.0
    for budget in (64, 20, 1):
        apart = learner_with(tiny_model, LOW, microbatch_tokens=budget, skip_zero_advantage=False)
        assert relative_error(gradient(apart, samples), wanted) < 1e-5
        assert apart.update(samples).metrics["learner/team/mastered_share"] == pytest.approx(share)


def test_the_entropy_is_the_turns_also_where_turns_are_merged_into_one_row(tiny_model: Tiny) -> None:
    learner = learner_with(tiny_model, LOW)
    turns: dict[str, Turn] = {}
    prompt: tuple[int, ...] = (3, 4)
    for call in range(4):
        completion = (250, 251, 252) if call == 1 else likeliest(learner, prompt, 3 + call)
        turns[str(call)] = make_turn(str(call), prompt, completion, call=call)
        prompt = (*prompt, *completion, 9)
    units = [make_unit([name], 1.0) for name in turns]
    sampling = {"solver": Sampling(temperature=COLD)}
    rows = [build_samples(units, turns, sampling=sampling, merge=merge) for merge in (True, False)]
    assert [len(samples) for samples in rows] == [1, 4]
    merged, apart = (gradient(learner, samples) for samples in rows)
    assert relative_error(merged, apart) < 1e-5
    shares = [learner_with(tiny_model, LOW).update(s).metrics["learner/team/mastered_share"] for s in rows]
    assert shares[0] == pytest.approx(shares[1])
    assert 0.0 < shares[0] < 1.0


@st.composite
def tokens(draw: st.DrawFn) -> list[tuple[float, list[tuple[float, float]]]]:
    """Turns: an advantage, and (probability, entropy) of each token, all away from the bounds."""
    token = st.tuples(st.sampled_from((0.3, 0.9, 0.995)), st.sampled_from((0.01, 0.1, 0.7)))
    turn = st.tuples(st.sampled_from((-0.5, 0.0, 1.5)), st.lists(token, min_size=1, max_size=6))
    return draw(st.lists(turn, min_size=1, max_size=6))


@given(tokens(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_any_layout_of_turns_gives_the_same_masked_loss(turns, shuffle) -> None:
    """All turns in one microbatch, and each turn in one of its own, in another order: one loss, to 1e-5."""
    loss = Loss(ratio="one", mask_mastered=True, mastered_sigma=0.35)
    total = sum(len(of_turn) for _, of_turn in turns)

    def value(group: Sequence[tuple[float, list[tuple[float, float]]]]) -> float:
        samples = [
            make_sample([1] * (1 + place), list(range(2, 2 + len(of_turn))), advantage, episode=str(place))
            for place, (advantage, of_turn) in enumerate(group)
        ]
        batch = microbatch(samples)
        ordered = [pair for number in batch.numbers for pair in group[number][1]]
        scores = TokenScores(log(*(p for p, _ in ordered)), torch.tensor([h for _, h in ordered]))
        made = Objective(loss=loss)(batch, scores, References())
        return float((made.loss_N / total).sum())

    whole = value(turns)
    alone = list(turns)
    shuffle.shuffle(alone)
    assert sum(value([one]) for one in alone) == pytest.approx(whole, rel=1e-5, abs=1e-6)
    by_hand = 0.0
    for advantage, of_turn in turns:
        low = sum(h for _, h in of_turn) / len(of_turn) < 0.35
        by_hand -= sum(advantage for p, _ in of_turn if not (advantage > 0 and p >= 0.99 and low)) / total
    assert whole == pytest.approx(by_hand, rel=1e-5, abs=1e-6)


# The ratio: one (POIS), or by token against each segment's own policy (SAIS)


def spanning(versions: tuple[int, ...], logprobs: Sequence[float], advantage: float = 1.0) -> Sample:
    """A completion whose tokens were sampled under several versions, as a turn gives it to the learner."""
    done = Completion(
        token_ids=tuple(range(5, 5 + len(versions))), logprobs=tuple(logprobs), versions=versions, stop=Stop.EOS
    )
    turn = replace(make_turn("t", (1, 2), ()), completion=done)
    [sample] = build_samples([make_unit(["t"], advantage)], {"t": turn}, sampling={"solver": Sampling()})
    return sample


def test_sais_takes_each_tokens_ratio_to_the_policy_of_its_own_segment() -> None:
    """Two tokens under version 3 with p = 0.5, two under version 4 with p = 0.25; now 0.6, 0.4, 0.3 and 0.5.

    Ratios 1.2, 0.8, 1.2 and 2; A = 1, clip at 1.28: losses -1.2, -0.8, -1.2, -1.28, and the last has no gradient."""
    sample = spanning((3, 3, 4, 4), log(0.5, 0.5, 0.25, 0.25).tolist())
    made, slope, metrics = evaluate(Loss(ratio="token"), [sample], log(0.6, 0.4, 0.3, 0.5))
    assert made.ratio_N.tolist() == pytest.approx([1.2, 0.8, 1.2, 2.0])
    assert made.loss_N.tolist() == pytest.approx([-1.2, -0.8, -1.2, -1.28])
    assert slope.tolist() == pytest.approx([-1.2, -0.8, -1.2, 0.0])
    assert metrics["clip_fraction"] == 0.25


def test_pois_forgets_the_segments_and_clips_nothing() -> None:
    sample = spanning((3, 3, 4, 4), log(0.5, 0.5, 0.25, 0.25).tolist())
    made, slope, metrics = evaluate(Loss(ratio="one"), [sample], log(0.6, 0.4, 0.3, 0.5))
    assert made.ratio_N.tolist() == [1.0] * 4
    assert slope.tolist() == pytest.approx([-1.0] * 4)
    assert (metrics["clip_fraction"], metrics["ratio_max_deviation"], metrics["ratio_mean"]) == (0.0, 0.0, 1.0)


def test_section_9_check_6_pois_is_reinforce_with_a_group_baseline(tiny_model: Tiny) -> None:
    """Two groups of four completions of one input, rewards in {0, 1}, sampled under versions 1 and 2 by other policies:
    the ratio is 1, nothing is clipped, and the gradient is that of -(R - mean) / std log pi over all tokens."""
    learner = learner_with(tiny_model, Loss(ratio="one"))
    learner.version = 2
    rewards = {"a": (1.0, 0.0, 0.0, 1.0), "b": (0.0, 0.0, 0.0, 1.0)}
    prompts = {"a": (5, 6, 7), "b": (9, 10)}
    turns: dict[str, Turn] = {}
    units: list[CreditUnit] = []
    for group, given_rewards in rewards.items():
        for place, reward in enumerate(given_rewards):
            name, size = f"{group}{place}", 2 + place
            done = Completion(
                token_ids=tuple(20 + place + i for i in range(size)),
                logprobs=tuple(-0.5 - 0.1 * i for i in range(size)),
                versions=(1, *(2,) * (size - 1)),
                stop=Stop.EOS,
            )
            turns[name] = replace(make_turn(name, prompts[group], ()), completion=done)
            units.append(replace(make_unit([name], 0.0, episode=name), peers=group, reward=reward))
    assigned = assign(units, MeanStd(ddof=0, epsilon=0.0)).units
    samples = build_samples(assigned, turns, sampling={"solver": Sampling()})
    found = gradient(learner, samples)

    total, value = sum(len(turn.completion.token_ids) for turn in turns.values()), torch.zeros(())
    spread = {"a": (0.5, 0.5), "b": (0.25, math.sqrt(3) / 4)}  # mean and standard deviation of the group, by hand
    for name, turn in turns.items():
        mean, std = spread[name[0]]
        ids = torch.tensor([[*turn.prompt_ids, *turn.completion.token_ids]])
        logprobs = learner.module.model(input_ids=ids).logits[0].log_softmax(-1)
        start = len(turn.prompt_ids)
        for offset, token in enumerate(turn.completion.token_ids):
            advantage = (rewards[name[0]][int(name[1])] - mean) / std
            value = value - advantage * logprobs[start + offset - 1, token] / total
    assert relative_error(found, autograd(learner, value)) < 1e-5

    report = learner.update(samples)
    assert report.steps == 1
    assert report.metrics["learner/team/ratio_mean"] == 1.0
    assert report.metrics["learner/team/ratio_max_deviation"] == 0.0
    assert report.metrics["learner/team/clip_fraction"] == 0.0
    assert report.metrics["learner/team/chi2"] != 0.0  # though what was sampled is far off


# Dynamic sampling (DAPO): groups without spread


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean"])
def test_dynamic_sampling_gives_the_loss_of_the_batch_without_groups_that_have_no_spread(
    tiny_model: Tiny, aggregate: str
) -> None:
    """Group a has rewards 1, 0, 1, 0; in b and c all are right, or all wrong."""
    rewards = {"a": (1.0, 0.0, 1.0, 0.0), "b": (1.0,) * 4, "c": (0.0,) * 4}
    units, turns = [], {}
    for group, given_rewards in rewards.items():
        for place, reward in enumerate(given_rewards):
            name = f"{group}{place}"
            turns[name] = make_turn(name, (5, 6), tuple(range(7, 9 + place)), logprob=-1.5)
            units.append(replace(make_unit([name], 0.0, episode=name), peers=group, reward=reward))
    assigned = assign(units, MeanStd(ddof=0, epsilon=0.0)).units
    samples = build_samples(assigned, turns, sampling={"solver": Sampling()})
    with_spread = [sample for sample in samples if sample.episode_id.startswith("a")]
    assert (len(samples), len(with_spread)) == (12, 4)

    dropped = Loss(aggregate=aggregate, zero_advantage_in_denominator=False)
    found = gradient(learner_with(tiny_model, dropped), samples)
    assert relative_error(found, gradient(learner_with(tiny_model, Loss(aggregate=aggregate)), with_spread)) < 1e-6
    loss = learner_with(tiny_model, dropped).update(samples).metrics["learner/team/loss"]
    alone = learner_with(tiny_model, dropped).update(with_spread).metrics["learner/team/loss"]
    assert loss == pytest.approx(alone, rel=1e-6)
    assert abs(loss) > 1e-3
    counted = learner_with(tiny_model, Loss(aggregate=aggregate)).update(samples).metrics["learner/team/loss"]
    assert counted == pytest.approx(loss / 3, rel=1e-6)  # three groups of equal tokens and turns in the denominator


def test_a_role_with_a_kl_of_its_own_is_never_idle_and_the_others_are_where_they_have_no_advantage() -> None:
    anchored = Objective(loss=Loss(kl_by_role={"voter": 0.01}))
    assert not anchored.is_idle("voter", [0.0, 0.0])
    assert anchored.is_idle("judge", [0.0, 0.0])
    assert not anchored.is_idle("judge", [0.0, 0.5])
    spared = Objective(loss=Loss(kl_coef=0.01, kl_by_role={"voter": 0.0}))
    assert spared.is_idle("voter", [0.0])
    assert not spared.is_idle("judge", [0.0])
