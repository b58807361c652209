"""Locks what an update promises: layout does not move the gradient, roles add up, nothing moves without a reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from learner_helpers import (
    VOCAB,
    gradient,
    identical,
    learner_of,
    make_sample,
    make_turn,
    make_unit,
    model_spec,
    on_policy,
    random_samples,
    relative_error,
    snapshot,
)
from rolecall.algorithms.loss import Loss
from rolecall.errors import LearnerError
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.learner.samples import build_samples
from rolecall.records import Sampling

Tiny = Callable[..., str]
UNCLIPPED = LearnerConfig(lr=1e-3, max_grad_norm=1e9)
ROLES = ("solver", "verifier", "corrector")


@pytest.fixture
def learner(tiny_model: Tiny) -> Learner:
    return learner_of(model_spec("team", tiny_model()), UNCLIPPED, Loss(entropy_coef=0.01))


def with_config(tiny_model: Tiny, loss: Loss | None = None, **knobs: object) -> Learner:
    return learner_of(model_spec("team", tiny_model()), replace(UNCLIPPED, **knobs), loss)  # type: ignore[arg-type]


def test_one_two_and_four_microbatches_give_the_same_gradient(tiny_model: Tiny) -> None:
    samples = random_samples(8)
    whole = gradient(with_config(tiny_model), samples)
    for budget in (4 * 17, 2 * 17, 1):
        assert relative_error(gradient(with_config(tiny_model, microbatch_tokens=budget), samples), whole) < 1e-5


def test_padding_rows_by_role_changes_no_gradient(tiny_model: Tiny) -> None:
    samples = random_samples(7, roles=ROLES)
    whole = gradient(with_config(tiny_model), samples)
    alone = gradient(with_config(tiny_model, microbatch_tokens=1), samples)
    assert relative_error(alone, whole) < 1e-5


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("ratio", ["token", "turn"])
def test_merged_and_unmerged_turns_give_the_same_gradient(tiny_model: Tiny, aggregate: str, ratio: str) -> None:
    turns = {
        "a": make_turn("a", [5, 6], [7, 2]),
        "b": make_turn("b", [5, 6, 7, 2, 9], [4, 3, 2], call=1, logprob=-3.0),
        "c": make_turn("c", [5, 6, 7, 2, 9, 4, 3, 2, 1], [8], call=2),
    }
    units = [make_unit(["a"], 1.0), make_unit(["b"], -0.5), make_unit(["c"], 2.0)]
    sampling = {"solver": Sampling()}
    merged = build_samples(units, turns, sampling=sampling)
    apart = build_samples(units, turns, sampling=sampling, merge=False)
    assert (len(merged), len(apart)) == (1, 3)
    learner = with_config(tiny_model, Loss(aggregate=aggregate, ratio=ratio))
    assert relative_error(gradient(learner, merged), gradient(learner, apart)) < 1e-5


def test_the_gradient_equals_that_of_a_loss_written_out_by_hand(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model, Loss(clipped=False, ratio="one"))
    samples = random_samples(3)
    found = gradient(learner, samples)
    model = learner.module.model
    model.zero_grad()
    total = sum(sample.num_trained for sample in samples)
    for sample in samples:
        [span] = sample.spans
        logits = model(input_ids=torch.tensor([sample.token_ids])).logits[0].log_softmax(-1)
        for position in range(span.start, span.stop):
            logprob = logits[position - 1, sample.token_ids[position]]
            (-span.advantage * logprob / total).backward(retain_graph=True)
    wanted = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert relative_error(found, wanted) < 1e-5


def test_role_gradients_add_up_to_the_gradient_of_the_policy(learner: Learner) -> None:
    samples = random_samples(9, roles=ROLES)
    whole = gradient(learner, samples)
    # What one role contributes: the others' advantages set to zero, every denominator as before.
    quiet = learner_of_same(learner, Loss())
    parts = []
    for role in ROLES:
        muted = [
            s if s.role == role else replace(s, spans=tuple(replace(x, advantage=0.0) for x in s.spans))
            for s in samples
        ]
        parts.append(gradient(quiet, muted))
    summed = {name: sum(part[name] for part in parts) for name in whole}
    assert relative_error(summed, gradient(quiet, samples)) < 1e-5  # type: ignore[arg-type]
    report = quiet.update(samples)
    for role, part in zip(ROLES, parts, strict=True):
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in part.values()))
        assert report.metrics[f"dynamics/{role}/grad_norm"] == pytest.approx(norm, rel=1e-4)
    dot = sum(float((parts[0][name].double() * parts[1][name].double()).sum()) for name in whole)
    norms = [report.metrics[f"dynamics/{role}/grad_norm"] for role in ROLES]
    assert report.metrics["dynamics/solver/cosine/verifier"] == pytest.approx(dot / norms[0] / norms[1], rel=1e-3)
    assert sum(report.metrics[f"dynamics/{role}/mass_share"] for role in ROLES) == pytest.approx(1.0)
    tokens = {role: sum(s.num_trained for s in samples if s.role == role) for role in ROLES}
    shares = {role: report.metrics[f"dynamics/{role}/token_share"] for role in ROLES}
    assert shares == pytest.approx({role: tokens[role] / sum(tokens.values()) for role in ROLES})


def learner_of_same(learner: Learner, loss: Loss) -> Learner:
    return Learner("team", learner.module, UNCLIPPED, loss)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_ratios_start_at_one_on_policy_at_any_temperature(tiny_model: Tiny, temperature: float) -> None:
    learner = with_config(tiny_model)
    samples = [replace(sample, temperature=temperature) for sample in random_samples(6)]
    logits_scaled = []
    for sample in samples:  # what an engine would report: log softmax(logits / T), computed apart from the learner
        [span] = sample.spans
        with torch.no_grad():
            logits = learner.module.model(input_ids=torch.tensor([sample.token_ids])).logits[0]
        scaled = (logits / temperature).log_softmax(-1)
        row = [0.0] * len(sample.token_ids)
        for position in range(span.start, span.stop):
            row[position] = float(scaled[position - 1, sample.token_ids[position]])
        logits_scaled.append(replace(sample, logprobs=tuple(row)))
    report = learner.update(logits_scaled)
    assert report.metrics["learner/team/ratio_max_deviation"] < 1e-4
    assert report.metrics["learner/team/mismatch_max"] < 1e-4
    assert report.metrics["learner/team/clip_fraction"] == 0.0


def test_a_wrong_temperature_is_seen_as_mismatch(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model)
    samples = [replace(sample, temperature=0.6) for sample in on_policy(learner, random_samples(6))]
    assert learner.update(samples).metrics["learner/team/mismatch_max"] > 0.1


def test_mismatch_is_measured_on_tokens_of_the_present_version_only(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model)
    learner.version = 3
    [fresh] = on_policy(learner, [make_sample([1, 2], [3, 4], 1.0, version=3)])
    stale = make_sample([1, 2], [5, 6], 1.0, version=2, logprobs=(-90.0, -90.0))
    metrics = learner.update([fresh, stale]).metrics
    assert metrics["learner/team/mismatch_max"] < 1e-5
    assert metrics["learner/team/stale_share"] == pytest.approx(0.5)


def test_the_end_token_is_trained_when_padding_and_end_are_one_id(tiny_model: Tiny) -> None:
    learner = learner_of(model_spec("team", tiny_model(pad_is_eos=True, tie=False)), UNCLIPPED, Loss(ratio="one"))
    end = learner.module.model.config.eos_token_id
    assert learner.module.model.config.pad_token_id == end
    samples = [make_sample([1, 2], [3, end], 1.0), make_sample([1, 2, 4, 4, 4], [5, end], 1.0)]
    found = gradient(learner, samples)["lm_head.weight"]
    assert float(found[end].norm()) > float(found[7].norm()) > 0.0
    alone = gradient(learner, [samples[0]])["lm_head.weight"] + gradient(learner, [samples[1]])["lm_head.weight"]
    assert torch.allclose(alone / 2, found, atol=1e-6)


def test_a_policy_without_samples_is_skipped_and_nothing_of_it_moves(learner: Learner) -> None:
    learner.update(random_samples(4))
    weights, optimizer = snapshot(learner), str(learner.optimizer.state_dict())
    report = learner.update([])
    assert (report.steps, report.skipped) == (0, "no samples")
    assert report.metrics["learner/team/skipped_empty"] == 1.0
    assert identical(snapshot(learner), weights)
    assert (learner.optimizer_steps, str(learner.optimizer.state_dict())) == (1, optimizer)


def test_a_batch_of_zero_advantages_makes_no_optimizer_step_and_is_counted(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model, weight_decay=0.1)
    weights = snapshot(learner)
    samples = [replace(s, spans=tuple(replace(x, advantage=0.0) for x in s.spans)) for s in random_samples(20)]
    report = learner.update(samples)
    assert (report.steps, report.metrics["learner/team/skipped_zero"]) == (0, 1.0)
    assert identical(snapshot(learner), weights)
    assert report.metrics["dynamics/solver/grad_norm"] == 0.0
    assert 0.0 < report.metrics["learner/team/entropy"] < math.log(VOCAB)  # a share is computed all the same


def test_a_batch_of_zero_advantages_is_trained_when_another_term_asks_for_it(learner: Learner) -> None:
    samples = [replace(s, spans=tuple(replace(x, advantage=0.0) for x in s.spans)) for s in random_samples(3)]
    assert learner.update(samples).steps == 1


def test_skipping_units_of_zero_advantage_leaves_the_gradient_as_it_is(tiny_model: Tiny) -> None:
    samples = random_samples(8)
    samples[1:4] = [replace(s, spans=tuple(replace(x, advantage=0.0) for x in s.spans)) for s in samples[1:4]]
    skipped = gradient(with_config(tiny_model), samples)
    assert relative_error(skipped, gradient(with_config(tiny_model, skip_zero_advantage=False), samples)) < 1e-5


def test_probed_units_keep_the_measured_means_unbiased(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model, Loss(probe_share=0.5))
    idle = [make_sample([1, 2], [3, 4], 0.0, episode=f"e{i}") for i in range(4)]
    busy = [make_sample([9, 8, 7], [6, 5], 1.0, episode="busy")]
    mean = learner.update([*idle, *busy]).metrics["learner/team/entropy"]
    full = with_config(tiny_model, skip_zero_advantage=False).update([*idle, *busy]).metrics["learner/team/entropy"]
    assert mean == pytest.approx(full, rel=1e-5)


def test_the_anchor_of_one_role_leaves_the_loss_of_another_as_it_is_alone(tiny_model: Tiny) -> None:
    samples = random_samples(8, roles=("anchored", "free"))
    anchored = [s for s in samples if s.role == "anchored"]
    free = [s for s in samples if s.role == "free"]
    loss = Loss(kl_by_role={"anchored": 1.0, "free": 0.0}, kl_against="base")
    both = with_config(tiny_model, loss)
    with torch.no_grad():  # away from the base, so that the KL is not zero
        both.parameters["model.norm.weight"].mul_(1.5)
    report = both.update(samples)
    alone, plain = with_config(tiny_model), with_config(tiny_model)
    for other in (alone, plain):
        with torch.no_grad():
            other.parameters["model.norm.weight"].mul_(1.5)
    assert report.role_loss["free"] == pytest.approx(alone.update(free).role_loss["free"], rel=1e-5)
    bare = plain.update(anchored).role_loss["anchored"]
    assert report.role_loss["anchored"] > bare + 0.01
    assert report.role_loss["anchored"] - bare == pytest.approx(report.metrics["learner/team/kl"], rel=1e-3)


def test_ratios_to_the_last_weights_ignore_what_was_sampled(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model, ratio_against="last", minibatches=2)
    report = learner.update(random_samples(8))  # sampled log-probabilities are far off
    assert report.steps == 2
    assert 0.0 < report.metrics["learner/team/ratio_max_deviation"] < 1.0  # the second minibatch has moved


def test_a_loss_that_is_not_finite_stops_or_is_skipped_and_never_reaches_the_weights(tiny_model: Tiny) -> None:
    bad = [*random_samples(3), make_sample([1], [2], float("nan"))]
    for setting in ("stop", "skip"):
        learner = with_config(tiny_model, on_nonfinite=setting)
        weights = snapshot(learner)
        if setting == "stop":
            with pytest.raises(LearnerError, match=r"policy 'team', step 7: loss nan"):
                learner.update(bad, step=7)
        else:
            report = learner.update(bad, step=7)
            assert (report.steps, report.metrics["learner/team/skipped_nonfinite"]) == (0, 1.0)
            assert "loss nan" in str(report.skipped)
        assert identical(snapshot(learner), weights)
        assert learner.optimizer_steps == 0
        assert learner.update(random_samples(3)).steps == 1


def test_running_out_of_memory_is_skipped_and_counted_or_stops(
    tiny_model: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    for setting in ("skip", "stop"):
        learner = with_config(tiny_model, on_nonfinite=setting)
        with monkeypatch.context() as patch:
            patch.setattr(learner, "_backward", explode)
            if setting == "stop":
                with pytest.raises(LearnerError, match="out of memory"):
                    learner.update(random_samples(3))
            else:
                report = learner.update(random_samples(3))
                assert (report.steps, report.metrics["learner/team/skipped_oom"]) == (0, 1.0)


def test_gradient_is_clipped_to_the_norm_and_reported_before_clipping(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model, max_grad_norm=1e-3)
    seen: list[float] = []
    real = learner.optimizer.step

    def step() -> None:
        grads = [p.grad for p in learner.parameters.values() if p.grad is not None]
        seen.append(math.sqrt(sum(float(g.double().square().sum()) for g in grads)))
        real()

    learner.optimizer.step = step  # type: ignore[method-assign,assignment]
    report = learner.update(random_samples(5))
    assert seen == [pytest.approx(1e-3, rel=1e-4)]
    assert report.metrics["learner/team/grad_norm"] > 1e-2


def test_an_update_raises_what_was_rewarded_and_lowers_what_was_not(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model)
    good, poor = ([1, 2, 3], [4, 5]), ([1, 2, 3], [6, 7])
    before = learner.score([good, poor])
    samples = on_policy(learner, [make_sample(*good, 1.0), make_sample(*poor, -1.0)])
    for _ in range(3):
        learner.update(samples)
    after = learner.score([good, poor])
    assert sum(after[0]) > sum(before[0]) + 0.1
    assert sum(after[1]) < sum(before[1]) - 0.1


def test_a_sample_of_another_policy_or_without_tokens_is_an_error(learner: Learner) -> None:
    with pytest.raises(LearnerError, match="policy 'other' reached the learner of 'team'"):
        learner.update([make_sample([1], [2], 1.0, policy="other")])
    with pytest.raises(LearnerError, match="no trained token"):
        learner.update([replace(make_sample([1], [2], 1.0), spans=())])


def test_mixed_precision_keeps_float32_weights_and_plain_bfloat16_does_not(tiny_model: Tiny) -> None:
    for precision, dtype in (("bfloat16", torch.float32), ("bfloat16_plain", torch.bfloat16)):
        learner = with_config(tiny_model, precision=precision)
        report = learner.update(random_samples(4))
        assert report.steps == 1
        assert math.isfinite(report.metrics["learner/team/loss"])
        assert {parameter.dtype for parameter in learner.parameters.values()} == {dtype}
        exact = with_config(tiny_model).update(random_samples(4)).metrics["learner/team/entropy"]
        assert report.metrics["learner/team/entropy"] == pytest.approx(exact, abs=0.05)


def test_gradient_checkpointing_changes_no_gradient(tiny_model: Tiny) -> None:
    samples = random_samples(5)
    plain = gradient(with_config(tiny_model), samples)
    assert relative_error(gradient(with_config(tiny_model, gradient_checkpointing=True), samples), plain) < 1e-5


def test_an_entropy_bonus_raises_the_entropy(tiny_model: Tiny) -> None:
    learner = with_config(tiny_model, Loss(entropy_coef=1.0))
    samples = [replace(s, spans=tuple(replace(x, advantage=0.0) for x in s.spans)) for s in random_samples(6)]
    entropies = [learner.update(samples).metrics["learner/team/entropy"] for _ in range(4)]
    assert entropies == sorted(entropies)
    assert entropies[-1] > entropies[0] + 0.1
