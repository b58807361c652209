"""What an optimizer step did along each role's gradient: by hand, in the learner, and without changing a weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from learner_helpers import adapter_spec, identical, learner_of, model_spec, on_policy, random_samples, snapshot
from rolecall.algorithms.loss import Loss
from rolecall.dynamics.formulas import perplexity_ratio, update_metrics
from rolecall.dynamics.role_gradients import RoleGradients
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.dynamics.sketch import CountSketch, error_bound
from rolecall.dynamics.update_watch import Applied, UpdateWatch
from rolecall.errors import ConfigError
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner

Tiny = Callable[..., str]
ROLES = ("solver", "verifier", "corrector")


def one_step(watch: UpdateWatch, parameter: nn.Parameter, by_role: dict[str, list[float]], lr: float) -> RoleGradients:
    gradients = watch.collect(list(by_role))
    for role, values in by_role.items():
        (parameter * torch.tensor(values)).sum().backward()
        gradients.take(role)
    gradients.finish()
    return gradients


def clipped_step(watch: UpdateWatch, parameter: nn.Parameter) -> Applied:
    """A step of plain descent on a tenth of the gradient, between `before_step` and what this returns."""
    assert parameter.grad is not None
    parameter.grad.mul_(0.1)
    with torch.no_grad():
        parameter -= parameter.grad
    applied = watch.after_step()
    assert applied is not None
    return applied


def test_the_applied_update_is_weighed_along_each_role_by_hand() -> None:
    parameter = nn.Parameter(torch.tensor([3.0, 4.0]))
    watch = UpdateWatch([parameter])
    gradients = one_step(watch, parameter, {"a": [2.0, 0.0], "b": [0.0, -1.0]}, 1.0)
    watch.before_step(gradients)
    with torch.no_grad():
        parameter += torch.tensor([-0.3, -0.4])
    applied = watch.after_step()
    assert applied is not None
    assert applied.weight_norm == pytest.approx(5.0)
    assert applied.moved == 1.0
    assert applied.update_norm == pytest.approx(0.5)
    assert applied.along == pytest.approx({"a": 0.6, "b": -0.4})  # b's gradient asked for the other direction
    cosines, pushes = update_metrics({"a": 2.0, "b": 1.0}, applied.along, applied.update_norm)
    assert cosines == pytest.approx({"dynamics/a/cosine_update": 0.6, "dynamics/b/cosine_update": -0.8})
    sizes = {"dynamics/a/update_norm": 0.5, "dynamics/b/update_norm": 0.5}
    assert pushes == pytest.approx({"dynamics/a/push": 0.3, "dynamics/b/push": -0.4} | sizes)


def test_a_role_without_gradient_or_a_step_without_update_has_cosines_and_pushes_of_zero() -> None:
    cosines, pushes = update_metrics({"a": 0.0}, {"a": 0.0}, 1.0)
    assert (cosines["dynamics/a/cosine_update"], pushes["dynamics/a/push"]) == (0.0, 0.0)
    assert update_metrics({"a": 1.0}, {"a": 0.0}, 0.0)[0] == {"dynamics/a/cosine_update": 0.0}


def test_persistence_is_the_cosine_with_the_running_mean_of_earlier_gradients() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    watch = UpdateWatch([parameter], DynamicsSettings(persistence_decay=0.75))
    seen = []
    for values in ([1.0, 0.0], [0.0, 2.0], [1.0, 1.0]):
        parameter.grad = None
        seen.append(watch.before_step(one_step(watch, parameter, {"a": values, "b": [1.0, 1.0]}, 1.0)))
    # means of a before each step: none, (1, 0), 0.75 (1, 0) + 0.25 (0, 2) = (0.75, 0.5)
    assert seen[0] == {}
    assert seen[1] == {"a": 0.0, "b": pytest.approx(1.0)}
    assert seen[2]["a"] == pytest.approx(1.25 / (math.sqrt(0.8125) * math.sqrt(2.0)))


def test_a_single_role_is_weighed_by_its_gradient_before_clipping() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    watch = UpdateWatch([parameter])
    gradients = one_step(watch, parameter, {"a": [3.0, 4.0]}, 1.0)
    assert gradients.norm == pytest.approx(5.0)
    watch.before_step(gradients)
    applied = clipped_step(watch, parameter)
    assert applied.along == pytest.approx({"a": 2.5})  # <(3, 4), (.3, .4)>
    assert watch.means["a"].tolist() == pytest.approx([3.0, 4.0])


def test_above_the_size_limit_gradients_are_sketched_and_nothing_of_their_size_is_kept(tiny_model: Tiny) -> None:
    exact, short = (learner_of(model_spec("team", tiny_model()), LearnerConfig(lr=1e-3)) for _ in range(2))
    exact.watch_with(DynamicsSettings())
    short.watch_with(DynamicsSettings(max_parameters=0))
    short.watch.sketch = CountSketch(1024)  # far shorter than the 30,000 weights
    for step in (1, 2):
        samples = [replace(s, copy=i // 3 % 2) for i, s in enumerate(random_samples(18, roles=ROLES, seed=step))]
        on, off = (learner.update(samples, step).metrics for learner in (exact, short))
    assert {mean.numel() for mean in short.watch.means.values()} == {1024}
    assert identical(snapshot(exact), snapshot(short))
    assert on.keys() == off.keys()
    within = error_bound(1024, 0.01)  # of one inner product; those of two sketched norms have as much again
    for key, wanted in on.items():
        name = key.split("/")[2]
        if "cosine" in name or name in ("persistence", "cosine_total", "cosine"):
            assert abs(off[key] - wanted) < 2.5 * within, key
        elif name == "push":
            assert abs(off[key] - wanted) < within * on["learner/team/update_norm"], key
        elif name.startswith("amplification"):
            assert abs(off[key] - wanted) < 2.5 * within, key
        elif key.startswith("dynamics/"):  # norms, shares, the size of the update
            assert off[key] == pytest.approx(wanted, rel=1e-5), key
    cosines = [key for key in on if "cosine" in key and abs(off[key] - on[key]) > 1e-6]
    assert cosines  # they were sketched


def test_a_single_role_is_sketched_before_its_gradient_is_clipped() -> None:
    draw = torch.Generator().manual_seed(0)
    vector = torch.randn(2000, generator=draw)
    parameter = nn.Parameter(torch.zeros(2000))
    watch = UpdateWatch([parameter], DynamicsSettings(max_parameters=0))
    assert watch.sketch is not None
    gradients = one_step(watch, parameter, {"a": vector.tolist()}, 1.0)
    assert gradients.buffers == {}
    watch.before_step(gradients)
    applied = clipped_step(watch, parameter)
    # 2,000 weights fit into the sketch, which is exact then
    assert applied.along["a"] == pytest.approx(0.1 * float(vector.square().sum()), rel=1e-4)
    assert applied.update_norm == pytest.approx(0.1 * float(vector.norm()), rel=1e-4)


def test_sketched_inner_products_stay_within_what_the_norms_allow() -> None:
    parameter = nn.Parameter(torch.zeros(500))
    for seed in range(20):
        parameter.grad = None
        gradients = RoleGradients([parameter], ["a", "b"], keep=False, sketch=CountSketch(64, seed))
        for role in ("a", "b"):
            (parameter * torch.ones(500)).sum().backward()
            gradients.take(role)
        gram = gradients.finish()
        assert gram[0][0] == gram[1][1] == pytest.approx(500.0)
        assert gram[0][1] <= gram[0][0]
        assert gradients.norm == pytest.approx(2.0 * math.sqrt(500.0))


def test_without_keeping_roles_the_sum_is_the_same_bit_for_bit() -> None:
    draw = torch.Generator().manual_seed(0)
    values = {role: torch.randn(501, generator=draw).tolist() for role in ROLES}
    found = []
    for keep in (True, False):
        parameter = nn.Parameter(torch.zeros(501))
        gradients = RoleGradients([parameter], ROLES, keep=keep)
        for role in ROLES:
            (parameter * torch.tensor(values[role])).sum().backward()
            gradients.take(role)
        gram = gradients.finish()
        assert bool(gram) == keep == bool(gradients.buffers)
        assert parameter.grad is not None
        found.append((parameter.grad.clone(), gradients.norm))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("roles", [ROLES, ROLES[:1]], ids=["three roles", "one role"])
@pytest.mark.parametrize("kind", [model_spec, adapter_spec], ids=["model", "adapter"])
def test_weights_are_the_same_bit_for_bit_with_dynamics_on_and_off(
    tiny_model: Tiny, kind: Callable[..., object], roles: tuple[str, ...]
) -> None:
    ends = []
    for settings in (DynamicsSettings(), DynamicsSettings(gradients=False), DynamicsSettings(max_parameters=0)):
        config = LearnerConfig(lr=1e-3, max_grad_norm=0.1, minibatches=2)  # clipped, so the norm matters
        learner = learner_of(kind("team", tiny_model()), config)  # type: ignore[arg-type]
        learner.watch_with(settings)
        reports = [learner.update(random_samples(9, roles=roles, seed=step), step) for step in range(3)]
        assert ("dynamics/solver/grad_norm" in reports[-1].metrics) == settings.gradients
        assert ("dynamics/solver/persistence" in reports[-1].metrics) == settings.gradients
        assert "dynamics/solver/entropy" in reports[-1].metrics
        ends.append((snapshot(learner), [report.metrics["learner/team/grad_norm"] for report in reports]))
    for weights, norms in ends[1:]:
        assert identical(weights, ends[0][0])
        assert norms == ends[0][1]


def test_the_update_report_names_the_difference_that_adamw_made_to_the_weights(tiny_model: Tiny) -> None:
    learner = learner_of(model_spec("team", tiny_model()), LearnerConfig(lr=1e-3))
    before = snapshot(learner)
    metrics = learner.update(random_samples(9, roles=ROLES)).metrics
    moved = math.sqrt(
        sum(float((p.detach() - before[n]).double().square().sum()) for n, p in learner.parameters.items())
    )
    size = math.sqrt(sum(float(p.double().square().sum()) for p in before.values()))
    assert metrics["learner/team/update_norm"] == pytest.approx(moved, rel=1e-4)
    assert metrics["learner/team/update_ratio"] == pytest.approx(moved / size, rel=1e-4)
    for role in ROLES:
        # the first step of AdamW is close to -lr * sign(g): every role that is part of g is pushed its way
        assert 0.0 < metrics[f"dynamics/{role}/cosine_update"] < 1.0
        assert metrics[f"dynamics/{role}/push"] == pytest.approx(
            metrics[f"dynamics/{role}/cosine_update"] * moved, rel=1e-4
        )
        assert metrics[f"dynamics/{role}/optimizer_steps"] == 1.0
        assert metrics[f"dynamics/{role}/update_norm"] == metrics["learner/team/update_norm"]


def test_pushes_add_up_over_optimizer_steps_and_cosines_are_their_mean(tiny_model: Tiny) -> None:
    learner = learner_of(model_spec("team", tiny_model()), LearnerConfig(lr=1e-3, minibatches=3))
    report = learner.update(random_samples(18, roles=ROLES[:1]))
    assert report.steps == 3
    assert report.metrics["dynamics/solver/optimizer_steps"] == 3.0
    assert abs(report.metrics["dynamics/solver/cosine_update"]) <= 1.0
    assert 0.0 < report.metrics["dynamics/solver/push"] <= report.metrics["learner/team/update_norm"]
    assert "dynamics/solver/persistence" in report.metrics  # of the second and the third


def test_an_update_that_bfloat16_rounds_away_shows_as_weights_that_do_not_move(tiny_model: Tiny) -> None:
    moved = {}
    for precision in ("float32", "bfloat16_plain"):
        learner = learner_of(model_spec("team", tiny_model()), LearnerConfig(lr=1e-5, precision=precision))
        metrics = learner.update(random_samples(4)).metrics
        assert metrics["learner/team/grad_norm"] > 0.0
        moved[precision] = metrics["learner/team/moved_share"]
    assert moved["float32"] > 0.99
    assert moved["bfloat16_plain"] < 0.1


@pytest.mark.parametrize("most", [2**27, 0], ids=["exact", "sketched"])
def test_running_means_survive_in_the_state_of_the_learner(tiny_model: Tiny, most: int) -> None:
    whole, parts = (learner_of(model_spec("team", tiny_model())) for _ in range(2))
    for learner in (whole, parts):
        learner.watch_with(DynamicsSettings(max_parameters=most))
        learner.update(random_samples(9, roles=ROLES, seed=1), 1)
    state = parts.state_dict()
    parts.watch_with(DynamicsSettings(max_parameters=most))
    parts.load_state_dict(state)
    state["watch"]["means"]["solver"].zero_()  # a copy was taken
    one, other = (learner.update(random_samples(9, roles=ROLES, seed=2), 2).metrics for learner in (whole, parts))
    assert one == other
    assert "dynamics/solver/persistence" in one
    parts.watch_with(DynamicsSettings(max_parameters=0 if most else 2**27))
    parts.load_state_dict(state)  # means of another form begin again
    assert not parts.watch.means


def figures_by_hand(learner: Learner, samples: list, role: str) -> dict[str, float]:
    ratios, entropies = [], []
    for sample in (s for s in samples if s.role == role):
        [span] = sample.spans
        with torch.no_grad():
            logits = learner.module.model(input_ids=torch.tensor([sample.token_ids])).logits[0].log_softmax(-1)
        for at in range(span.start, span.stop):
            row = logits[at - 1]
            ratios.append(float(row[sample.token_ids[at]]) - sample.logprobs[at])
            entropies.append(-float((row.exp() * row).sum()))
    count = len(ratios)
    clip = [0 if a == 0 else 1 for a in ratios]
    assert clip
    return {
        "entropy": sum(entropies) / count,
        "chi2": sum(math.exp(r) ** 2 for r in ratios) / count - 1.0,
        "kl_sampled": sum(math.expm1(-r) + r for r in ratios) / count,
        "perplexity_ratio": math.exp(-sum(ratios) / count),
    }


def test_token_figures_of_a_role_are_those_of_its_own_tokens(tiny_model: Tiny) -> None:
    learner = learner_of(model_spec("team", tiny_model()), LearnerConfig(lr=1e-3), Loss(clip_low=0.2, clip_high=0.2))
    samples = on_policy(learner, random_samples(9, roles=ROLES))
    drawn = torch.Generator().manual_seed(1)
    noisy = [
        replace(s, logprobs=tuple(x + float(torch.randn((), generator=drawn)) * 0.3 if x else x for x in s.logprobs))
        for s in samples
    ]
    wanted = {role: figures_by_hand(learner, noisy, role) for role in ROLES}
    metrics = learner.update(noisy).metrics
    for role, figures in wanted.items():
        for name, value in figures.items():
            assert metrics[f"dynamics/{role}/{name}"] == pytest.approx(value, rel=1e-3, abs=1e-5), (role, name)
    tokens = {role: sum(s.num_trained for s in noisy if s.role == role) for role in ROLES}
    for name in ("entropy", "chi2", "clip_fraction", "kl_sampled"):
        mixed = sum(tokens[role] * metrics[f"dynamics/{role}/{name}"] for role in ROLES) / sum(tokens.values())
        assert metrics[f"learner/team/{name}"] == pytest.approx(mixed, rel=1e-4)
    assert len({metrics[f"dynamics/{role}/clip_fraction"] for role in ROLES}) > 1


def test_the_perplexity_ratio_is_above_one_when_the_learner_finds_the_tokens_less_likely() -> None:
    assert perplexity_ratio(-math.log(2.0)) == pytest.approx(2.0)
    assert perplexity_ratio(math.log(4.0)) == pytest.approx(0.25)
    assert math.isfinite(perplexity_ratio(-1e6))


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"persistence_decay": 1.0}, "persistence_decay"),
        ({"probe_turns": 0}, "probe_turns"),
        ({"probe_every_steps": -1}, "probe_every_steps"),
    ],
)
def test_settings_out_of_range_are_named(knobs: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DynamicsSettings(**knobs)  # type: ignore[arg-type]
