"""Python's collector of cycles while episodes run: asked rarely, and left as it was."""

from __future__ import annotations

import gc

import pytest
from rollout_builders import Chain, by_seed, roles_for, task

from rolecall.engines.base import Request
from rolecall.engines.scripted import ScriptedEngine
from rolecall.rollout.collector import GARBAGE_THRESHOLD, Collector, rare_garbage_collection
from rolecall.rollout.samplers import IndependentEpisodes


def test_the_threshold_is_raised_while_episodes_run_and_put_back_after() -> None:
    before, seen = gc.get_threshold(), []

    def reply(request: Request) -> str:
        seen.append((gc.get_threshold()[0], gc.get_freeze_count() > 0))
        return by_seed(request)

    workflow = Chain()
    collector = Collector(workflow, roles_for(workflow), ScriptedEngine(reply))
    try:
        collector.collect(IndependentEpisodes(n=2).plans([task(0)]))
    finally:
        collector.close()
    assert len(seen) == 6
    assert set(seen) == {(max(before[0], GARBAGE_THRESHOLD), True)}
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_it_is_put_back_when_the_work_fails() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), rare_garbage_collection():
        _ = 1 / 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_a_process_that_has_frozen_or_switched_off_its_own_is_left_alone() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with rare_garbage_collection():
            assert gc.get_threshold()[0] < GARBAGE_THRESHOLD
        assert gc.get_freeze_count() == count > 0
    finally:
        gc.unfreeze()
    gc.disable()
    try:
        with rare_garbage_collection():
            assert not gc.isenabled()
            assert gc.get_freeze_count() == 0
    finally:
        gc.enable()
