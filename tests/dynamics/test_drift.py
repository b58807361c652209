"""KL on a probe set: exact by hand, zero without a change, by role, and the same after a resume."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from learner_helpers import adapter_spec, identical, make_turn, model_spec, policies_of, random_samples, snapshot
from rolecall.dynamics.drift import kl_rows, mean_kl, probe_rows
from rolecall.dynamics.monitor import DynamicsMonitor
from rolecall.dynamics.settings import DynamicsSettings
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.records import Episode, Grade, GradedEpisode, GradeStatus, Outcome, OutcomeClass, Task

Tiny = Callable[..., str]


def episode(*roles: str, policies: dict[str, str], number: int = 0) -> GradedEpisode:
    turns = tuple(
        make_turn(f"{number}/{i}", [5 + i, 6, number % 200], [7, 8, 9, 2], role=role, call=i, policy=policies[role])
        for i, role in enumerate(roles)
    )
    one = Episode(
        id=str(number),
        task=Task(id=str(number), question="", answer=None),
        index=0,
        turns=turns,
        outcome=Outcome(answer=None),
        outcome_class=OutcomeClass.OK,
    )
    return GradedEpisode(episode=one, team=Grade(status=GradeStatus.WRONG, score=0.0))


def learners(folder: str, kind: Callable, *names: str, **knobs: object) -> dict[str, Learner]:
    built = policies_of([kind(name, folder) for name in names], LearnerConfig(lr=1e-2, **knobs))  # type: ignore[arg-type]
    return {name: policy.learner for name, policy in built.items()}  # type: ignore[misc]


def test_the_kl_of_two_distributions_by_hand() -> None:
    left = np.log(np.array([[0.5, 0.5], [0.25, 0.75]], dtype=np.float32))
    right = np.log(np.array([[0.25, 0.75], [0.25, 0.75]], dtype=np.float32))
    wanted = 0.5 * math.log(2.0) + 0.5 * math.log(2.0 / 3.0)
    assert kl_rows(left, right) == pytest.approx([wanted, 0.0], abs=1e-7)
    assert kl_rows(right, left)[0] == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5), abs=1e-7)
    assert mean_kl(left, right) == pytest.approx(wanted / 2, abs=1e-7)


def test_a_token_without_probability_adds_nothing_and_one_ruled_out_later_is_infinite() -> None:
    sure = np.array([[0.0, -np.inf]], dtype=np.float32)
    even = np.log(np.array([[0.5, 0.5]], dtype=np.float32))
    assert kl_rows(sure, even) == pytest.approx([math.log(2.0)])
    assert kl_rows(even, sure).tolist() == [math.inf]
    assert kl_rows(sure, sure).tolist() == [0.0]


def test_probe_rows_are_spread_over_turns_and_positions_and_bounded() -> None:
    turns = [make_turn(str(i), [i, 1, 2], [3, 4, 5, 6]) for i in range(10)] + [make_turn("empty", [1], [])]
    rows = probe_rows(turns, 5, 7)
    assert [row.token_ids[0] for row in rows] == [0, 2, 4, 6, 8]
    assert sum(len(row.positions) for row in rows) == 7
    assert all(3 <= p < 7 for row in rows for p in row.positions)
    assert all(len(row.token_ids) == row.positions[-1] + 1 for row in rows)  # nothing behind the last one is needed
    assert probe_rows(turns, 2, 100)[0].positions == (3, 4, 5, 6)
    assert probe_rows(turns[-1:], 5, 7) == []


@pytest.mark.parametrize("kind", [model_spec, adapter_spec], ids=["model", "adapter"])
def test_drift_is_zero_without_an_update_and_grows_by_role_with_one(tiny_model: Tiny, kind: Callable) -> None:
    table = {"solver": "left", "verifier": "right"}
    teams = learners(tiny_model(), kind, "left", "right")
    monitor = DynamicsMonitor(teams, table, DynamicsSettings(probe_every_steps=1))
    graded = [episode("solver", "verifier", policies=table, number=i) for i in range(4)]
    found = []
    for step in (1, 2):
        monitor.before_update(step, graded)
        teams["left"].update(random_samples(6, policy="left", seed=step), step)
        found.append(monitor.after_update(step))
    first, second = found
    assert first["dynamics/verifier/kl_base"] == first["dynamics/verifier/kl_last"] == 0.0
    assert first["dynamics/solver/kl_base"] == first["dynamics/solver/kl_last"] > 0.0
    assert second["dynamics/solver/kl_base"] > second["dynamics/solver/kl_last"] > 0.0
    assert second["dynamics/verifier/kl_base"] == 0.0
    assert first["dynamics/solver/probe_tokens"] == 16.0
    assert first["time/probe_s"] > 0.0
    assert first["time/dynamics_s"] > 0.0


def test_the_base_of_a_whole_model_is_not_kept_in_memory_and_is_that_of_the_start(tiny_model: Tiny) -> None:
    [learner] = learners(tiny_model(), model_spec, "team").values()
    rows = probe_rows([make_turn("a", [1, 2, 3], [4, 5])], 1, 2)
    start = learner.next_token_logprobs(rows)
    learner.update(random_samples(6))
    assert np.array_equal(learner.next_token_logprobs(rows, base=True), start)
    assert not np.array_equal(learner.next_token_logprobs(rows), start)
    assert learner.module._base is None  # type: ignore[attr-defined]


def test_distributions_are_those_of_the_model_at_the_temperature_of_sampling(tiny_model: Tiny) -> None:
    import torch

    [learner] = learners(tiny_model(), model_spec, "team", microbatch_tokens=1).values()
    rows = probe_rows([make_turn("a", [1, 2, 3], [4, 5]), make_turn("b", [1], [4])], 2, 9, temperature=0.5)
    found = learner.next_token_logprobs(rows)
    with torch.no_grad():
        logits = learner.module.model(input_ids=torch.tensor([[1, 2, 3, 4]])).logits[0, 2:]
    assert found[:2] == pytest.approx((logits / 0.5).log_softmax(-1).numpy(), abs=1e-5)
    assert found.shape == (3, learner.vocab_size)


def test_a_probe_changes_no_weight_and_is_made_in_due_steps_only(tiny_model: Tiny) -> None:
    ends = []
    for every in (0, 2):
        teams = learners(tiny_model(), model_spec, "team")
        monitor = DynamicsMonitor(teams, {"solver": "team"}, DynamicsSettings(probe_every_steps=every))
        keys = []
        for step in range(1, 5):
            monitor.before_update(step, [episode("solver", policies={"solver": "team"})])
            teams["team"].update(random_samples(4, seed=step), step)
            keys.append("dynamics/solver/kl_base" in monitor.after_update(step))
        assert keys == ([True, True, False, True] if every else [False] * 4)
        ends.append(snapshot(teams["team"]))
    assert identical(*ends)


def test_a_role_called_late_joins_the_probe_set_and_is_held_against_the_start(tiny_model: Tiny) -> None:
    table = {"solver": "team", "corrector": "team"}
    teams = learners(tiny_model(), model_spec, "team")
    monitor = DynamicsMonitor(teams, table, DynamicsSettings(probe_every_steps=1))
    monitor.before_update(1, [episode("solver", policies=table)])
    teams["team"].update(random_samples(6), 1)
    assert "dynamics/corrector/kl_base" not in monitor.after_update(1)
    monitor.before_update(2, [episode("solver", "corrector", policies=table, number=3)])
    found = monitor.after_update(2)  # no update in between
    assert found["dynamics/corrector/kl_last"] == 0.0
    assert found["dynamics/corrector/kl_base"] > 0.0
    assert monitor.rows["solver"][0].token_ids[2] == 0  # the set stays what it was


def test_turns_of_earlier_partners_are_not_how_a_role_speaks(tiny_model: Tiny) -> None:
    teams = learners(tiny_model(), model_spec, "team")
    monitor = DynamicsMonitor(teams, {"solver": "team"}, DynamicsSettings(probe_every_steps=1))
    earlier = episode("solver", policies={"solver": "team@memory0"}, number=3)
    monitor.before_update(1, [earlier])
    assert (monitor.rows, monitor.leakage.steps) == ({}, 0)
    monitor.before_update(2, [earlier, episode("solver", policies={"solver": "team"}, number=4)])
    assert [row.token_ids[2] for row in monitor.rows["solver"]] == [4]


def test_a_resumed_monitor_measures_the_same(tiny_model: Tiny) -> None:
    table = {"solver": "team"}
    teams = learners(tiny_model(), model_spec, "team")
    settings = DynamicsSettings(probe_every_steps=1)
    whole = DynamicsMonitor(teams, table, settings, temperatures={"solver": 0.7})
    whole.before_update(1, [episode("solver", policies=table)])
    teams["team"].update(random_samples(6), 1)
    whole.after_update(1)
    resumed = DynamicsMonitor(teams, table, settings)
    resumed.restore(json.loads(json.dumps(whole.state())))
    for monitor in (whole, resumed):
        monitor.before_update(2, [])
    teams["team"].update(random_samples(6, seed=2), 2)
    one, other = (
        {key: value for key, value in monitor.after_update(2).items() if not key.startswith("time/")}
        for monitor in (whole, resumed)
    )
    assert one == other
    assert one["dynamics/solver/kl_base"] > 0.0


def test_the_probe_set_shrinks_for_a_large_vocabulary(tiny_model: Tiny) -> None:
    table = {"solver": "team", "verifier": "team"}
    teams = learners(tiny_model(), model_spec, "team")
    vocab = teams["team"].vocab_size
    monitor = DynamicsMonitor(teams, table, DynamicsSettings(max_probe_logits=2 * 5 * vocab))
    monitor.before_update(1, [episode("solver", "verifier", policies=table, number=i) for i in range(4)])
    assert {role: sum(len(r.positions) for r in rows) for role, rows in monitor.rows.items()} == dict.fromkeys(table, 5)
