"""Who is remembered, and who plays with whom: plain data, worked out by hand or counted over many draws."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from rolecall.errors import ConfigError
from rolecall.interventions.partners import (
    Dealt,
    PartnerSettings,
    RankedMemory,
    Remembered,
    deal,
    leaders,
    slots_of,
)

ROLES = {"solver": "shared", "verifier": "shared", "judge": "frozen"}
SETTINGS = PartnerSettings(share=0.25, slots=3)


def version(step: int, accuracy: float) -> Remembered:
    return Remembered(step=step, accuracy=accuracy, versions={"shared": step})


def memory(*accuracies: float, width: float = 0.1, most: int = 16) -> RankedMemory:
    found = RankedMemory(width, most)
    for step, accuracy in enumerate(accuracies):
        found.add(version(step, accuracy))
    return found


def dealt(kept: RankedMemory, settings: PartnerSettings = SETTINGS, *, num_tasks: int = 8, **changes: Any) -> Dealt:
    told: dict[str, Any] = {"roles": ROLES, "train_roles": ["solver", "verifier"], "trained": ["shared"]}
    return deal(kept, settings, num_tasks=num_tasks, **{**told, "seed": 0, "step": 1, **changes})


def test_a_bucket_is_the_accuracy_in_widths() -> None:
    found = memory(0.0, 0.09, 0.1, 0.3, 0.35, 1.0).buckets()
    assert {bucket: [one.accuracy for one in kept] for bucket, kept in found.items()} == {
        0: [0.0, 0.09],
        1: [0.1],
        3: [0.3, 0.35],
        10: [1.0],
    }


def test_every_rank_is_drawn_as_often_however_many_versions_it_has() -> None:
    """Nine versions of one rank and one of another: half of the draws each; within a rank all alike."""
    kept = memory(*[0.5] * 9, 0.9)
    rng = random.Random(0)
    counts = Counter(kept.draw(rng).step for _ in range(18_000))
    assert counts[9] == pytest.approx(9_000, abs=300)
    assert all(counts[step] == pytest.approx(1_000, abs=150) for step in range(9))


def test_a_full_memory_drops_the_oldest_of_the_fullest_rank() -> None:
    kept = memory(0.5, 0.1, 0.5, 0.5, most=3)
    assert [one.step for one in kept.kept] == [1, 2, 3]
    kept.add(version(4, 0.12))  # two of each rank now: the lower one gives
    assert [one.step for one in kept.kept] == [2, 3, 4]


def test_a_version_that_has_not_moved_is_not_remembered_twice() -> None:
    kept = memory(0.5)
    kept.add(Remembered(step=7, accuracy=0.9, versions={"shared": 0}))
    assert [one.step for one in kept.kept] == [0]


def test_in_each_dealt_task_one_trained_role_is_current_and_the_others_play_earlier_versions() -> None:
    kept = memory(0.2, 0.4, 0.6)
    for step in range(20):
        found = dealt(kept, step=step)
        assert len(found.tables) == 2  # a quarter of eight
        for table in found.tables.values():
            assert set(table) in ({"solver"}, {"verifier"})  # the frozen judge has no earlier versions
            assert set(table.values()) <= set(found.loaded)
        assert set(found.loaded) <= {"shared@memory0", "shared@memory1", "shared@memory2"}
        assert all(policy == "shared" for policy, _ in found.loaded.values())
        assert set(found.loaded) == {slot for table in found.tables.values() for slot in table.values()}


def test_the_share_holds_in_the_mean_and_both_roles_lead() -> None:
    kept, settings = memory(0.2), PartnerSettings(share=0.3)
    found = [dealt(kept, settings, num_tasks=4, step=step) for step in range(1000)]
    assert sum(len(one.tables) for one in found) / 4000 == pytest.approx(0.3, abs=0.01)
    plays = Counter(role for one in found for table in one.tables.values() for role in table)
    assert plays["solver"] / sum(plays.values()) == pytest.approx(0.5, abs=0.05)


def test_a_deal_depends_on_the_seed_and_the_step_alone() -> None:
    kept = memory(0.2, 0.4, 0.6)
    random.seed(1)
    one = dealt(kept, step=3)
    random.seed(2)
    assert dealt(kept, step=3) == one
    assert any(dealt(kept, step=step) != one for step in range(4, 8))
    assert dealt(kept, step=3, seed=1) != one or dealt(kept, step=4, seed=1) != dealt(kept, step=4)


def test_nothing_is_dealt_before_anything_is_remembered() -> None:
    assert dealt(memory()) == Dealt()
    assert dealt(memory(0.5), PartnerSettings()) == Dealt()


def test_a_role_leads_only_beside_one_that_has_earlier_versions() -> None:
    assert leaders(ROLES, ["solver", "verifier"], ["shared"]) == ["solver", "verifier"]
    apart = {"solver": "a", "verifier": "b"}
    assert leaders(apart, ["solver"], ["a", "b"]) == ["solver"]  # the verifier samples its updating policy
    assert leaders({"solver": "a", "verifier": "endpoint"}, ["solver"], ["a"]) == []


def test_slots_are_named_only_where_partners_are_on() -> None:
    assert slots_of(["a", "b"], PartnerSettings()) == {}
    assert slots_of(["a", "b"], PartnerSettings(share=0.1, slots=1)) == {"a@memory0": "a", "b@memory0": "b"}


def test_what_is_remembered_survives_json() -> None:
    one = Remembered(step=1, accuracy=0.25, versions={"p": 2}, scores={"p": [[-0.5, -1.25]]})
    assert Remembered(**json.loads(json.dumps(one.to_dict()))) == one


@pytest.mark.parametrize(
    "settings", [{"share": 1.0}, {"bucket_width": 0.0}, {"bucket_width": 1e-320}, {"slots": 0}, {"max_versions": 0}]
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"partners.{next(iter(settings))} is"):
        PartnerSettings(**settings)
