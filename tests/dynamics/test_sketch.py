"""The count-sketch: linear, a sum over shards, and within its stated bound as often as it says."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rolecall.dynamics.role_gradients import inner_product
from rolecall.dynamics.sketch import WIDTH, CountSketch, error_bound

SIZE = 3000


def vectors(cosine: float, seed: int = 0, size: int = SIZE) -> tuple[Tensor, Tensor]:
    """Two vectors of unequal norms with the cosine given, whose coordinates are of very unequal size."""
    draw = torch.Generator().manual_seed(seed)
    scale = torch.rand(size, generator=draw).pow(4)
    x, noise = (torch.randn(size, generator=draw) * scale for _ in range(2))
    x, noise = x / x.norm(), noise / noise.norm()
    noise = noise - torch.dot(noise, x) * x
    return 3.0 * x, 0.5 * (cosine * x + math.sqrt(1.0 - cosine**2) * noise / noise.norm())


def errors(cosine: float, width: int, draws: int) -> Tensor:
    """(<Sx, Sy> - <x, y>) / (||x|| ||y||) over independent sketches."""
    x, y = vectors(cosine)
    found = [float(torch.dot(sketch(x), sketch(y))) for sketch in (CountSketch(width, seed) for seed in range(draws))]
    return (torch.tensor(found) - torch.dot(x, y)) / (x.norm() * y.norm())


@pytest.mark.parametrize("cosine", [0.0, 0.3, -0.9, 1.0])
def test_inner_products_are_within_the_stated_bound_as_often_as_stated(cosine: float) -> None:
    width, draws = 256, 400
    found = errors(cosine, width, draws)
    for failure in (0.5, 0.1):
        broken = int((found.abs() > error_bound(width, failure)).sum())
        assert broken <= failure * draws
    # no bias, and the variance that the bound is made of: (1 + cos^2) / width, a little less within chunks
    deviation = math.sqrt((1.0 + cosine**2) / width)
    assert abs(float(found.mean())) < 4.0 * deviation / math.sqrt(draws)
    assert 0.8 * deviation < float(found.std()) < 1.1 * deviation


def test_the_bound_holds_for_two_coordinates_in_the_same_place_of_their_chunks() -> None:
    width, draws = 64, 400
    x, y = torch.zeros(SIZE), torch.zeros(SIZE)
    x[5], y[5 + 3 * width] = 1.0, 1.0  # orthogonal; wrong whenever the shifts make them meet
    found = torch.tensor([float(torch.dot(s(x), s(y))) for s in (CountSketch(width, seed) for seed in range(draws))])
    assert set(found.tolist()) == {-1.0, 0.0, 1.0}
    assert int((found.abs() > error_bound(width, 0.1)).sum()) <= 0.1 * draws


def test_vectors_of_one_sign_are_not_overestimated() -> None:
    width, draws = 256, 200
    x, y = torch.ones(SIZE), torch.linspace(0.5, 1.5, SIZE)
    exact, most = float(torch.dot(x, y)), float(x.norm() * y.norm())
    found = torch.tensor([float(torch.dot(s(x), s(y))) for s in (CountSketch(width, seed) for seed in range(draws))])
    assert abs(float(found.mean()) - exact) < 4.0 * most * math.sqrt(2.0 / width / draws)
    assert int(((found - exact).abs() / most > error_bound(width, 0.1)).sum()) <= 0.1 * draws


def test_a_wider_sketch_errs_less() -> None:
    narrow, wide = (float(errors(0.3, width, 60).std()) for width in (64, 1024))
    assert wide == pytest.approx(narrow / 4.0, rel=0.4)


def test_a_sketch_is_linear() -> None:
    x, y = vectors(0.3)
    sketch = CountSketch(256)
    assert torch.allclose(sketch(2.0 * x - 3.0 * y), 2.0 * sketch(x) - 3.0 * sketch(y), atol=1e-5)
    mean = x.clone().lerp_(y, 0.1)
    assert torch.allclose(sketch(mean), sketch(x).lerp_(sketch(y), 0.1), atol=1e-6)


@pytest.mark.parametrize("cuts", [(1000, 2000), (1, 255, 256, 257, 1024), (2999,)])
def test_sketches_of_shards_add_up_to_that_of_the_whole(cuts: tuple[int, ...]) -> None:
    x, _ = vectors(0.3)
    whole = CountSketch(256)(x)
    shards = torch.zeros(256)
    for start, stop in zip((0, *cuts), (*cuts, SIZE), strict=True):
        shards += CountSketch(256)(x[start:stop], offset=start)  # each process draws for itself
    assert torch.allclose(shards, whole, atol=1e-6)
    assert not torch.allclose(CountSketch(256)(x, offset=7), whole, atol=1e-2)


def test_a_vector_no_longer_than_the_sketch_is_kept_exactly() -> None:
    x, y = vectors(0.3, size=1000)
    sketch = CountSketch(1024)
    assert torch.dot(sketch(x), sketch(y)) == pytest.approx(float(torch.dot(x, y)), rel=1e-5)
    assert sorted(sketch(x).abs().tolist())[24:] == sorted(x.abs().tolist())


def test_sketches_of_another_seed_are_others_and_those_of_one_are_the_same() -> None:
    x, _ = vectors(0.3)
    assert torch.equal(CountSketch(256, 1)(x), CountSketch(256, 1)(x))
    assert not torch.equal(CountSketch(256, 1)(x), CountSketch(256, 2)(x))


def test_the_width_that_is_used_keeps_cosines_within_a_hundredth() -> None:
    x, y = vectors(0.4, size=3 * WIDTH + 17)
    sketch = CountSketch()
    found = inner_product(sketch(x), sketch(y)) / float(x.norm() * y.norm())
    assert abs(found - 0.4) < 0.01
    assert float(sketch(x).norm() / x.norm()) == pytest.approx(1.0, abs=0.005)
    assert error_bound(WIDTH, 0.02) < 0.01
    assert error_bound(WIDTH, 0.005) < 0.02


@pytest.mark.parametrize("width", [0, 32, 100, 1000])
def test_a_width_that_is_no_power_of_two_is_refused(width: int) -> None:
    with pytest.raises(ValueError, match="wanted a power of two"):
        CountSketch(width)
