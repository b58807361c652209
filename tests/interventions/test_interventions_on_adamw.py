"""What each intervention does to the weights, under AdamW, on gradients that are known.

A toy policy: two tensors, and roles whose gradients a test writes down. AdamW, clipping and the collection of role
gradients are those of the learner; only the model is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from learner_helpers import make_sample
from rolecall.dynamics.role_gradients import RoleGradients
from rolecall.interventions.settings import Intervention
from rolecall.learner.config import LearnerConfig
from rolecall.learner.interventions import Interventions
from rolecall.learner.objective import Tally
from rolecall.learner.optim import clip_factor, clip_gradients, make_optimizer

SIZES = {"matrix": (2, 3), "vector": (2,)}
SIZE = 8


class Toy:
    """One policy, its optimiser and its interventions."""

    def __init__(
        self, table: Mapping[str, Intervention], roles: Sequence[str] = ("a", "b"), *, clip: float = 1e9, **config: Any
    ) -> None:
        self.config = LearnerConfig(**{"lr": 0.01, "max_grad_norm": clip, **config})
        self.weights = {name: nn.Parameter(torch.zeros(size)) for name, size in SIZES.items()}
        self.optimizer = make_optimizer(self.weights, self.config)
        self.interventions = Interventions(table, roles, list(self.weights.values()), self.optimizer)
        self.figures = Tally()

    def step(self, **gradients: Tensor) -> Tensor:
        """One optimizer step on these gradients by role; returns how it moved the weights, flat."""
        before = self.flat()
        collected = RoleGradients(list(self.weights.values()), list(gradients))
        for role, gradient in gradients.items():
            offset = 0
            for weight in self.weights.values():
                part = gradient[offset : offset + weight.numel()].view_as(weight)
                weight.grad = part.clone() if weight.grad is None else weight.grad + part
                offset += weight.numel()
            collected.take(role)
        collected.finish()
        self.figures = Tally()
        norm = self.interventions.before_clip(collected, self.figures)
        self.collected = torch.cat([w.grad.reshape(-1).clone() for w in self.weights.values() if w.grad is not None])
        clip_gradients(self.weights, norm, self.config.max_grad_norm)
        self.optimizer.step()
        self.interventions.after_step(clip_factor(norm, self.config.max_grad_norm))
        self.optimizer.zero_grad(set_to_none=True)
        return self.flat() - before

    def flat(self) -> Tensor:
        return torch.cat([weight.detach().reshape(-1) for weight in self.weights.values()]).clone()


def noise(seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))


def unit(place: int, length: float = 1.0) -> Tensor:
    vector = torch.zeros(SIZE)
    vector[place] = length
    return vector


def moved(toy: Toy, steps: int = 12, roles: Sequence[str] = ("a", "b")) -> Tensor:
    """The way that a toy goes under noisy gradients of these roles; b pulls ten times as hard as a."""
    hard = {"a": 1.0, "b": 10.0}
    for t in range(steps):
        toy.step(**{role: noise(100 * t + i, hard[role]) for i, role in enumerate(roles)})
    return toy.flat()


def close(left: Tensor, right: Tensor, tolerance: float = 1e-5) -> bool:
    return float((left - right).norm() / right.norm()) < tolerance


def figure(toy: Toy, role: str, name: str) -> float:
    return toy.figures.means()[f"interventions/{role}/{name}"]


def test_adamw_undoes_a_scale_of_the_gradient_and_not_one_of_the_update() -> None:
    plain, scaled = Toy({}, ("a",)), Toy({}, ("a",))
    slowed = Toy({"a": Intervention(lr_scale=0.1)}, ("a",))
    for t in range(12):
        plain.step(a=noise(t))
        scaled.step(a=noise(t) * 0.1)
        slowed.step(a=noise(t))
    assert close(scaled.flat(), plain.flat(), 1e-4)  # a tenth of the gradient: the same way
    assert close(slowed.flat(), 0.1 * plain.flat())


def test_one_scale_for_all_roles_scales_the_whole_update() -> None:
    plain = moved(Toy({}))
    assert close(moved(Toy({role: Intervention(lr_scale=2.5) for role in "ab"})), 2.5 * plain)
    thirds = {role: Intervention(average_copies=True) for role in "ab"}
    toy = Toy(thirds)
    toy.interventions._copies = {"a": 1 / 3, "b": 1 / 3}
    assert close(moved(toy), plain / 3)


@pytest.mark.parametrize("apply_to", ["gradient", "update"])
def test_copies_are_averaged_over_those_of_the_episode_whichever_of_them_a_minibatch_holds(apply_to: Any) -> None:
    """Three copies in one episode and one in another, dealt to two optimizer steps: 1/3 and the mean of 1/3 and 1."""
    samples = [
        make_sample([1], [2], 1.0, role="a", copy=c, episode=e) for c, e in ((0, "x"), (1, "x"), (2, "x"), (0, "y"))
    ]
    toy = Toy({"a": Intervention(average_copies=True, apply_to=apply_to)}, ("a",))
    toy.interventions.begin(samples)
    for part, shares in ((samples[:1], [1 / 3]), (samples[2:], [1 / 3, 1.0])):
        weights = toy.interventions.weights(part, [(0.5,)] * len(part))
        scaled = shares if apply_to == "gradient" else [1.0] * len(part)
        assert weights == [(pytest.approx(0.5 * share),) for share in scaled]
        plain, found = Toy({}, ("a",)).step(a=noise(0)), toy.step(a=noise(0))
        assert figure(toy, "a", "copies") == pytest.approx(len(part) / sum(shares))
        if part == samples[:1] and apply_to == "update":
            assert close(found, plain / 3)


@pytest.mark.parametrize("scale", [0.25, 4.0])
def test_roles_that_use_the_weights_apart_have_learning_rates_of_their_own(scale: float) -> None:
    def way(table: Mapping[str, Intervention]) -> Tensor:
        toy = Toy(table, clip=0.5)
        for t in range(12):
            both = {"a": torch.cat([noise(t)[:4], torch.zeros(4)]), "b": torch.cat([torch.zeros(4), noise(-t)[4:]])}
            toy.step(**(both if t % 3 else {"a": both["a"]}))
        return toy.flat()

    plain, found = way({}), way({"b": Intervention(lr_scale=scale)})
    assert close(found[:4], plain[:4], 1e-4)
    assert close(found[4:], scale * plain[4:], 1e-4)


def test_a_role_against_the_others_is_weighed_under_the_size_of_the_whole_gradient() -> None:
    """a pulls by 1 one way, b by 3 the other: AdamW goes b's way by lr. With b at a tenth h = 0.7 - 0 (1 - 0.3) against
    a whole gradient of -2: the step is 0.7 / 2 of lr, the other way."""
    toy = Toy({"b": Intervention(lr_scale=0.1)})
    step = toy.step(a=unit(0, 1.0), b=unit(0, -3.0))
    assert step[0].item() == pytest.approx(-0.01 * 0.7 / 2.0, rel=1e-4)


def test_scaling_one_of_two_roles_that_cancel_moves_no_weight_by_more_than_adamw_could() -> None:
    """Their sum is 0, and so are both moments of AdamW: dividing a part by them would be a leap."""
    toy = Toy({"b": Intervention(lr_scale=0.5)})
    for _ in range(5):
        step = toy.step(a=unit(0, 1.0), b=unit(0, -1.0))
        assert step[0].item() == pytest.approx(-0.01, rel=1e-3)


def test_a_role_that_is_alone_in_a_step_is_scaled_once_on_the_gradient_and_once_on_the_update() -> None:
    """Half the learning rate of what AdamW makes of the damped gradient, which is nearly its whole step."""
    settings = {"damping": 0.3, "apply_to": "gradient"}
    damped, both = Toy({"a": Intervention(**settings)}), Toy({"a": Intervention(**settings, lr_scale=0.5)})
    for _ in range(20):
        for toy in (damped, both):
            toy.step(a=unit(0, 2.0))
    assert both.flat()[0].item() == pytest.approx(0.5 * damped.flat()[0].item(), rel=1e-4)
    assert damped.flat()[0].item() == pytest.approx(-0.2, rel=0.03)


def test_weight_decay_is_the_policys_and_is_not_scaled() -> None:
    def way(table: Mapping[str, Intervention]) -> Tensor:
        toy = Toy(table, ("a",), weight_decay=0.1)
        with torch.no_grad():
            for weight in toy.weights.values():
                weight.fill_(1.0)
        toy.step(a=unit(0))
        return toy.flat()

    slowed = way({"a": Intervention(lr_scale=0.5)})
    assert slowed.tolist() == pytest.approx([1.0 - 0.001 - 0.005, *[1.0 - 0.001] * 5, 1.0, 1.0])  # vectors do not decay


def test_a_gradient_that_keeps_its_direction_is_damped_and_one_that_turns_is_not() -> None:
    toy = Toy({"a": Intervention(damping=0.3)}, ("a",))
    toy.step(a=unit(0, 2.0))
    assert "interventions/a/coherence" not in toy.figures.means()  # nothing to compare with yet
    assert figure(toy, "a", "scale") == 1.0
    toy.step(a=unit(0, 5.0))
    assert figure(toy, "a", "coherence") == pytest.approx(1.0)
    assert figure(toy, "a", "damping") == pytest.approx(0.7)
    toy.step(a=unit(1, 5.0))
    assert figure(toy, "a", "coherence") == pytest.approx(0.0, abs=1e-6)
    assert figure(toy, "a", "damping") == pytest.approx(1.0)
    toy.step(a=unit(0, -5.0))
    assert figure(toy, "a", "coherence") < -0.9
    assert figure(toy, "a", "damping") == 1.0  # against its direction: not damped either


@pytest.mark.parametrize(("kind", "mean"), [("after", 0.75 * 2.0 + 0.25 * 0.7 * 5.0), ("before", 0.75 * 2.0 + 1.25)])
def test_the_mean_takes_in_the_gradient_after_damping_or_before_it(kind: Any, mean: float) -> None:
    toy = Toy({"a": Intervention(damping=0.3, damping_window=4, damping_ema=kind)}, ("a",))
    toy.step(a=unit(0, 2.0))
    toy.step(a=unit(0, 5.0))
    assert toy.interventions.means["a"][0].item() == pytest.approx(mean)
    assert figure(toy, "a", "mean_norm") == pytest.approx(mean)


def test_damping_acts_on_the_update_and_hardly_on_it_through_the_gradient() -> None:
    """A gradient that never turns: coherence 1 from the second step on, damping 0.7."""
    ways = {}
    for name, table in (
        ("plain", {}),
        ("update", {"a": Intervention(damping=0.3)}),
        ("gradient", {"a": Intervention(damping=0.3, apply_to="gradient")}),
    ):
        toy = Toy(table, ("a",))
        for _ in range(50):
            toy.step(a=unit(0, 2.0))
        ways[name] = -toy.flat()[0].item()
    assert ways["plain"] == pytest.approx(0.5)  # 50 steps of lr
    # the first gradient, not damped, fades from the first moment: its share at step t is 0.9^(t-1) 0.1 / (1 - 0.9^t)
    shares = [0.9 ** (t - 1) * 0.1 / (1 - 0.9**t) for t in range(1, 51)]
    assert ways["update"] == pytest.approx(0.01 * sum(0.7 + 0.3 * share for share in shares), rel=1e-4)
    assert ways["update"] / ways["plain"] < 0.74
    assert ways["gradient"] / ways["plain"] > 0.98


def test_damping_of_the_gradient_is_that_of_the_whole_role_before_clipping() -> None:
    toy = Toy({"a": Intervention(damping=0.5, apply_to="gradient")})
    toy.step(a=unit(0, 2.0), b=unit(1, 3.0))
    toy.step(a=unit(0, 2.0), b=unit(1, 3.0))
    assert toy.collected[:2].tolist() == pytest.approx([1.0, 3.0])


def test_strong_damping_nearly_freezes_a_role_and_the_floor_keeps_it_moving() -> None:
    """Without damping the weight moves by lr = 0.01 in each of the ten steps; what came before damping has faded."""

    def way(**settings: Any) -> float:
        toy = Toy({"a": Intervention(damping_window=4, **settings)}, ("a",))
        for _ in range(150):
            toy.step(a=unit(0))
        held = toy.flat()
        for _ in range(10):
            toy.step(a=unit(0))
        return (toy.flat() - held).norm().item()

    assert way(damping=0.999, damping_floor=0.0) == pytest.approx(0.1 * 0.001, rel=0.01)
    assert way(damping=1.0, damping_floor=0.2) == pytest.approx(0.1 * 0.2, rel=1e-4)


def test_a_mean_of_undamped_gradients_follows_a_role_that_turns_sooner() -> None:
    """A gradient of length 1 that turns by 30 degrees, c = cos 30 = 0.866 at first, strength 0.95, window 8. The step
    after: damped, the mean is (0.875 + 0.125 s cos, 0.125 s sin) with s = 1 - 0.95 * 0.866 = 0.177, and as it came
    (0.875 + 0.125 cos, 0.125 sin)."""
    turned = math.cos(math.radians(30)) * unit(0) + 0.5 * unit(1)

    def coherences(kind: Any) -> list[float]:
        settings = Intervention(damping=0.95, damping_floor=0.0, damping_window=8, damping_ema=kind)
        toy, found = Toy({"a": settings}, ("a",)), []
        toy.step(a=unit(0))
        for _ in range(8):
            toy.step(a=turned)
            found.append(figure(toy, "a", "coherence"))
        return found

    after, before = coherences("after"), coherences("before")
    assert after[0] == before[0] == pytest.approx(0.8660, abs=1e-4)
    s = 1 - 0.95 * math.cos(math.radians(30))
    for found, share in ((after, s), (before, 1.0)):
        x, y = 0.875 + 0.125 * share * math.cos(math.radians(30)), 0.125 * share * 0.5
        assert found[1] == pytest.approx((x * math.cos(math.radians(30)) + y * 0.5) / math.hypot(x, y), abs=1e-5)
    assert before[-1] - after[-1] > 0.05


def test_balancing_the_gradient_gives_every_role_the_median_norm() -> None:
    table = {role: Intervention(balance_mass=True, apply_to="gradient") for role in ("a", "b", "c")}
    toy = Toy(table, ("a", "b", "c"))
    toy.step(a=unit(0, 1.0), b=unit(1, 100.0), c=unit(2, 4.0))
    assert toy.collected[:3].tolist() == pytest.approx([4.0, 4.0, 4.0])
    assert [figure(toy, role, "mass_scale") for role in "abc"] == pytest.approx([4.0, 0.04, 1.0])


def test_balancing_in_a_shared_policy_shifts_the_way_that_adamw_goes() -> None:
    """b pulls ten times as hard as a in the same weights, the other way: it has its way, until both pull alike."""
    plain, balanced = Toy({}), Toy({r: Intervention(balance_mass=True, apply_to="gradient") for r in "ab"})
    for t in range(20):
        for toy in (plain, balanced):
            toy.step(a=unit(0, 1.0) + noise(t, 0.1), b=unit(0, -10.0) + noise(99 + t, 1.0))
    assert plain.flat()[0].item() == pytest.approx(0.2, rel=0.01)  # all the way against a
    assert abs(balanced.flat()[0].item()) < 0.1


def test_interventions_without_a_table_change_nothing_and_log_nothing() -> None:
    toy = Toy({"a": Intervention()})
    assert not toy.interventions.needs_gradients
    moved(toy)
    assert toy.figures.means() == {}
    assert toy.interventions.state_dict() == {"means": {}, "first": None, "second": None}


@pytest.mark.parametrize("apply_to", ["gradient", "update"])
def test_a_saved_state_goes_on_bit_for_bit(apply_to: Any) -> None:
    table = {
        "a": Intervention(damping=0.3, damping_window=8, apply_to=apply_to),
        "b": Intervention(balance_mass=True, lr_scale=0.5, apply_to=apply_to),
    }

    def steps(toy: Toy, first: int, last: int) -> None:
        for t in range(first, last):
            toy.step(**{role: noise(10 * t + i) for i, role in enumerate("ab" if t % 4 else "b")})

    whole, part, resumed = Toy(table, clip=1.0), Toy(table, clip=1.0), Toy(table, clip=1.0)
    steps(whole, 0, 9)
    steps(part, 0, 5)
    with torch.no_grad():
        for name, weight in resumed.weights.items():
            weight.copy_(part.weights[name])
    resumed.optimizer.load_state_dict(part.optimizer.state_dict())
    resumed.interventions.load_state_dict(part.interventions.state_dict())
    steps(resumed, 5, 9)
    assert torch.equal(resumed.flat(), whole.flat())
