"""Distributions by their quantiles, the counter that they are drawn by, and what a run folder recorded."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, median

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rolecall.errors import ConfigError
from rolecall.simulation.lengths import (
    Fixed,
    LogNormal,
    ParetoTail,
    Recorded,
    draw,
    mean_tokens,
    mix,
    share_at_limit,
    uniform,
)
from rolecall.simulation.recorded import recorded_lengths


def test_the_median_and_one_sigma_of_a_lognormal():
    lengths = LogNormal(1000, 0.5)
    assert lengths.quantile(0.5) == pytest.approx(1000)
    assert lengths.quantile(0.841344746) == pytest.approx(1000 * 1.6487212707, rel=1e-6)  # e ** 0.5


def test_a_pareto_tail_begins_where_the_body_ends_and_falls_as_a_power():
    lengths = ParetoTail(LogNormal(1000, 0.5), tail_share=0.1, tail_index=2.0)
    start = LogNormal(1000, 0.5).quantile(0.9)
    assert lengths.quantile(0.5) == pytest.approx(1000)
    assert lengths.quantile(0.9 + 1e-12) == pytest.approx(start)
    assert lengths.quantile(0.975) == pytest.approx(2 * start)  # a quarter of the tail is left: 4 ** (1/2) times
    assert lengths.quantile(0.999) == pytest.approx(10 * start)


def test_a_recorded_length_is_as_likely_as_another():
    lengths = Recorded((10, 20, 40))
    assert [lengths.quantile(u) for u in (0.01, 0.33, 0.34, 0.66, 0.67, 0.99)] == [10, 10, 20, 20, 40, 40]


def test_a_draw_is_cut_at_the_limit_and_never_empty():
    hashes = [mix(i) for i in range(2000)]
    drawn = [draw(LogNormal(1000, 1.0), one, 1500) for one in hashes]
    assert max(drawn) == 1500
    assert draw(LogNormal(1e-9, 0.0), 5, 100) == 1
    assert median(drawn) == pytest.approx(1000, rel=0.05)
    # ln(1.5) / 1.0 = 0.405 standard deviations: 34.3 % are above
    assert sum(one == 1500 for one in drawn) / 2000 == pytest.approx(0.343, abs=0.03)
    assert share_at_limit(LogNormal(1000, 1.0), 1500) == pytest.approx(0.343, abs=0.002)


@pytest.mark.parametrize(
    "lengths",
    [LogNormal(1e308, 10.0), LogNormal(10.0, 1e6), ParetoTail(LogNormal(10.0, 1.0), tail_share=0.1, tail_index=1e-6)],
)
def test_lengths_that_no_number_holds_are_cut_at_the_limit_like_others(lengths):
    found = [draw(lengths, mix(counter), 64) for counter in range(200)]
    assert max(found) == 64
    assert min(found) >= 1
    assert mean_tokens(lengths, 64) <= 64


def test_the_mean_under_a_limit():
    assert mean_tokens(Fixed(300), 1000) == 300
    assert mean_tokens(LogNormal(1000, 0.5), 10**9) == pytest.approx(1000 * 1.1331484, rel=2e-3)  # e ** (0.5 ** 2 / 2)
    assert mean_tokens(Recorded((10, 20, 60)), 50) == pytest.approx(80 / 3, rel=1e-3)


def test_uniform_numbers_are_spread_evenly_and_never_reach_the_ends():
    numbers = [uniform(mix(i)) for i in range(10000)]
    assert fmean(numbers) == pytest.approx(0.5, abs=0.01)
    assert fmean(x * x for x in numbers) == pytest.approx(1 / 3, abs=0.01)
    assert 0 < uniform(0) < uniform((1 << 64) - 1) < 1
    assert len(set(map(mix, range(10000)))) == 10000


def episodes(folder: Path, *turns: list[tuple[str, int]]) -> None:
    rows = [
        {
            "graded": {
                "episode": {
                    "turns": [
                        {"key": [role, 0, 0], "completion": {"token_ids": list(range(size))}} for role, size in one
                    ]
                }
            }
        }
        for one in turns
    ]
    (folder / "episodes").mkdir(parents=True)
    table = pa.table({"record": [json.dumps(row) for row in rows]})
    pq.write_table(table, folder / "episodes" / "000001.parquet")


def test_lengths_by_role_come_from_the_episodes_of_a_run(tmp_path: Path):
    episodes(tmp_path, [("solver", 7), ("verifier", 3)], [("solver", 5), ("verifier", 4), ("solver", 0)])
    assert recorded_lengths(tmp_path, "solver") == Recorded((5, 7))
    assert recorded_lengths(tmp_path, "verifier") == Recorded((3, 4))


def test_a_role_that_never_spoke_and_a_folder_that_is_none_are_named(tmp_path: Path):
    episodes(tmp_path, [("solver", 7)])
    with pytest.raises(ConfigError, match="no completion of role 'corrector'"):
        recorded_lengths(tmp_path, "corrector")
    with pytest.raises(ConfigError, match="episode files: 0"):
        recorded_lengths(tmp_path / "none", "solver")
