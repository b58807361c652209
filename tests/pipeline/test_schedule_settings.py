"""`[schedule]`: what is refused, in which words, and what the settings come to."""

from __future__ import annotations

import pytest

from rolecall.errors import ConfigError
from rolecall.pipeline.schedule import Schedule
from rolecall.pipeline.scheduler import Scheduler

OVERLAPPED = {"mode": "overlapped", "update_rows": 64, "max_staleness": 2}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mode": "pipelin"}, "schedule.mode is 'pipelin'; wanted one of barrier, pipeline,"),
        ({"mode": "pipelin"}, "did you mean 'pipeline'?"),
        ({"order": "deepest"}, "schedule.order is 'deepest'; wanted one of deepest_first, oldest_first,"),
        ({"on_stale": "skip"}, "schedule.on_stale is 'skip'; wanted one of wait, drop, mask"),
        ({"release": "early"}, "schedule.release is 'early'; wanted one of complete, arrived"),
        ({"mode": "pipeline_segments"}, "wants schedule.segment_tokens, tokens a tick"),
        ({"mode": "pipeline_segments", "segment_tokens": 0}, "schedule.segment_tokens is 0; wanted 1 or more"),
        ({"mode": "pipeline", "segment_tokens": 4}, "mode 'pipeline' cuts no completion"),
        ({"segment_tokens": 4}, "mode 'barrier' cuts no completion"),
        ({"max_rows": 0}, "schedule.max_rows is 0; wanted 1 or more"),
        ({"mode": "overlapped", "max_staleness": 1}, "wants schedule.update_rows"),
        ({"mode": "overlapped", "update_rows": 8}, "wants schedule.max_staleness"),
        ({**OVERLAPPED, "update_rows": 0}, "schedule.update_rows is 0; wanted 1 or more"),
        ({**OVERLAPPED, "max_staleness": -1}, "the staleness bound 'max_staleness' is -1; wanted 0 or more"),
        ({**OVERLAPPED, "max_staleness_by_policy": {"solver": -2}}, "the staleness bound 'solver' is -2"),
        ({**OVERLAPPED, "release": "arrived"}, "schedule.release 'arrived' belongs to ticks"),
        ({"mode": "pipeline", "update_rows": 8}, "schedule.update_rows belongs to mode 'overlapped'"),
        ({"mode": "pipeline", "max_staleness": 1}, "cannot be held by waiting"),
        ({"max_staleness_by_policy": {"solver": 1}}, "cannot be held by waiting"),
    ],
)
def test_what_cannot_be_is_refused_in_words(settings, words):
    with pytest.raises(ConfigError, match="schedule") as error:
        Schedule(**settings)
    assert words in str(error.value)


def test_a_bound_in_ticks_is_kept_by_dropping_or_masking():
    for rule in ("drop", "mask"):
        assert Schedule(mode="pipeline", max_staleness=1, on_stale=rule).bound("any") == 1


def test_bounds_are_by_policy_and_the_tightest_one_limits_what_is_started():
    schedule = Schedule(**OVERLAPPED, max_staleness_by_policy={"solver": 4, "verifier": 1})
    assert [schedule.bound(name) for name in ("solver", "verifier", "corrector")] == [4, 1, 2]
    assert schedule.tightest_bound == 1
    assert schedule.max_started(8) == 2 * 64
    assert Schedule(mode="pipeline").max_started(8) is None
    assert Schedule().bound("any") is None


def test_an_update_takes_whole_groups_so_that_what_may_be_started_is_counted_in_groups():
    schedule = Schedule(mode="overlapped", update_rows=10, max_staleness=0)
    assert schedule.max_started(8) == 16
    assert schedule.max_started(10) == 10


def test_a_tick_that_holds_no_group_is_refused_where_it_is_set():
    with pytest.raises(ConfigError, match="max_rows is 7 and a group has 8 completions"):
        Scheduler(Schedule(mode="pipeline", max_rows=7), tasks_per_step=4, group_size=8, versions={"shared": 0})
    schedule = Schedule(**OVERLAPPED, max_rows=7)  # overlapped, a group may be generated in parts
    Scheduler(schedule, tasks_per_step=4, group_size=8, versions={"shared": 0})
