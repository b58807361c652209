from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rolecall.engines.local_sampling import SamplingRows, mix, sample, truncate, uniforms
from rolecall.records import Sampling


def test_the_mix_is_splitmix64():
    # the first outputs of splitmix64 seeded with 0, from its published reference code
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = np.array([1, 2, 3], dtype=np.uint64) * golden
    assert [hex(int(x)) for x in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


def test_a_uniform_depends_on_seed_and_position_and_nothing_else():
    seeds = np.array([5, 6, 2**64 - 1], dtype=np.uint64)
    together = uniforms(seeds, np.array([0, 3, 9]))
    alone = [uniforms(seeds[i : i + 1], np.array([position]))[0] for i, position in enumerate((0, 3, 9))]
    assert together.tolist() == alone
    assert uniforms(seeds[:1], np.array([0])) != uniforms(seeds[:1], np.array([1]))
    assert uniforms(seeds[:1], np.array([0])) != uniforms(seeds[1:2], np.array([0]))


def test_uniforms_of_neighbouring_seeds_and_positions_are_uniform_and_independent():
    seeds = np.repeat(np.arange(200, dtype=np.uint64), 200)
    positions = np.tile(np.arange(200), 200)
    u = uniforms(seeds, positions).astype(np.float64)
    assert u.min() >= 0.0
    assert u.max() < 1.0
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    expected = len(u) / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8  # chi-squared, 19 degrees, p = 0.001
    grid = u.reshape(200, 200)
    for a, b in ((grid[1:], grid[:-1]), (grid[:, 1:], grid[:, :-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 4 / math.sqrt(a.size)


def rows(num: int, **settings: float) -> SamplingRows:
    return SamplingRows.of([Sampling(**settings)] * num)  # type: ignore[arg-type]


def test_inverse_cdf_picks_the_token_whose_share_holds_the_uniform():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]])).repeat(5, 1)
    u = torch.tensor([0.0, 0.499, 0.501, 0.749, 0.751])
    tokens, logprobs = sample(logits, rows(5), u)
    assert tokens.tolist() == [0, 0, 1, 1, 2]
    assert logprobs.tolist() == pytest.approx([math.log(p) for p in (0.5, 0.5, 0.25, 0.25, 0.25)])


def test_temperature_divides_the_logits_and_the_logprobs_say_so():
    # at temperature 0.5 probabilities are squared and renormalised: .5 .25 .25 -> 4/6 1/6 1/6
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    token, logprob = sample(logits, rows(1, temperature=0.5), torch.tensor([0.7]))
    assert token.item() == 1
    assert logprob.item() == pytest.approx(math.log(1 / 6))


def test_top_k_comes_before_top_p():
    # top-k 2 leaves .4 and .3, renormalised .571 and .429: top-p .55 then keeps the first alone; top-p first would
    # have kept two tokens (.4 < .55)
    logits = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1]]))
    token, logprob = sample(logits, rows(1, top_k=2, top_p=0.55), torch.tensor([0.99]))
    assert token.item() == 0
    assert logprob.item() == pytest.approx(0.0)
    token, logprob = sample(logits, rows(1, top_k=2), torch.tensor([0.99]))
    assert (token.item(), logprob.item()) == (1, pytest.approx(math.log(0.3 / 0.7)))


def test_top_p_keeps_the_token_that_crosses_the_mass():
    logits = torch.log(torch.tensor([[0.1, 0.5, 0.15, 0.25]]))
    kept = truncate(logits, None, torch.tensor([0.6]))
    assert torch.isfinite(kept).tolist() == [[False, True, False, True]]
    _, logprob = sample(logits, rows(1, top_p=0.6), torch.tensor([0.0]))
    assert logprob.item() == pytest.approx(math.log(0.5 / 0.75))


def test_rows_of_one_batch_keep_their_own_settings():
    logits = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1]])).repeat(4, 1)
    settings = [Sampling(), Sampling(top_k=1), Sampling(temperature=0.0), Sampling(top_p=0.5, temperature=2.0)]
    u = torch.tensor([0.95, 0.95, 0.95, 0.95])
    tokens, logprobs = sample(logits, SamplingRows.of(settings), u)
    for i, setting in enumerate(settings):
        token, logprob = sample(logits[i : i + 1], SamplingRows.of([setting]), u[i : i + 1])
        assert token.item() == tokens[i].item()
        assert logprob.item() == pytest.approx(logprobs[i].item())
    assert tokens.tolist()[:3] == [3, 0, 0]
    assert logprobs[2].item() == pytest.approx(math.log(0.4))  # greedy: of the un-tempered distribution


def test_ties_at_the_limit_of_top_k_leave_exactly_k_tokens():
    kept = truncate(torch.zeros(1, 5), torch.tensor([2]), None)
    assert torch.isfinite(kept).tolist() == [[True, True, False, False, False]]


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, -1.0, -torch.inf]]).repeat(3, 1)
    tokens, _ = sample(logits, rows(3), torch.tensor([0.0, 0.5, 1.0 - 2.0**-24]))
    assert set(tokens.tolist()) == {1, 3}


def test_over_a_large_vocabulary_tokens_come_as_often_as_their_probability_says():
    # half of the mass on the first token, the rest spread over 150,000: the last 75,000 hold a quarter
    logits = torch.zeros(1, 150_000)
    logits[0, 0] = math.log(149_999)
    grid = (torch.arange(400) + 0.5) / 400
    tokens = torch.cat([sample(logits, rows(1), u[None])[0] for u in grid])
    assert (tokens == 0).sum().item() == 200
    assert (tokens >= 75_000).sum().item() == pytest.approx(100, abs=1)
