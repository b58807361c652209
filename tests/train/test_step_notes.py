"""What a step is told of in words is told once: by the failures, by the reasons of a silent step, or by its alarms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rolecall.algorithms import make_algorithm
from rolecall.algorithms.diagnose import reasons
from rolecall.dynamics.alarms import Alarm
from rolecall.notes import step_notes
from rolecall.progress import PlainLines
from rolecall.records import Stop
from rolecall.testing_credit import Said, made_episode
from rolecall.train import train


def cut_off() -> Any:
    """A step in which the solver's turns are all cut off, and why it teaches nothing: zero spread, and the cut."""
    step = [made_episode(Said(role="solver", value=None, stop=Stop.LENGTH), index=i) for i in range(4)]
    policy = step[0].episode.turns[0].policy
    found = reasons(make_algorithm("agent_grpo").advantages(step), step)
    assert [(one.policy, one.role, one.mark) for one in found] == [
        (policy, None, None),
        (policy, "solver", "truncated"),
    ]
    return step, found, {"solver": policy, "verifier": policy, "judge": "other"}


def alarm(key: str, subject: str) -> Alarm:
    return Alarm(key=key, subject=subject, step=3, seen="s", usual="u", move="m")


@pytest.mark.parametrize(
    ("key", "subject", "left"),
    [
        ("rewards_zero", "solver", []),  # it names the cause of the solver, and why the policy is silent
        ("never_trains", "verifier", [1]),
        ("much_truncated", "solver", [0]),
        ("much_unparsed", "solver", [0, 1]),
        ("rewards_zero", "judge", [0, 1]),  # another policy
        ("clip_high", "solver", [0, 1]),
    ],
)
def test_a_reason_is_left_out_where_an_alarm_of_the_step_gives_it(key: str, subject: str, left: list[int]) -> None:
    step, found, roles = cut_off()
    raised = [alarm(key, subject)]
    assert list(step_notes(step, found, raised, roles)) == [*(found[i].text for i in left), raised[0].text]


def test_without_alarms_every_reason_is_told() -> None:
    step, found, roles = cut_off()
    assert list(step_notes(step, found, [], roles)) == [one.text for one in found]


def test_failures_are_told_with_their_first_cause_and_not_again_as_marks(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small(
        steps=3,
        workflow={"name": "user_parts:Raises"},
        algorithm={"name": "user_parts:letters", "n": 4, "reward": "user_parts:Generous"},
        evaluation={"every_steps": 0},
    )
    train(config, tmp_path / "r", PlainLines(3, ()))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step ") and ": " in line]
    told = {step: [line.partition(": ")[2] for line in lines if line.startswith(f"step {step}: ")] for step in (1, 3)}
    assert [words[:24] for words in told[1]] == ["16 of 16 episodes failed", "policy 'shared', no adva"]
    assert [words[:24] for words in told[3]] == ["16 of 16 episodes failed", "rewards_zero, solver: ev"]
    assert "every reward is 0 or missing; cause: " in told[3][1]
