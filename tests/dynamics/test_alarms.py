"""Alarms: raised once and in time, with the cause named; silent on healthy metrics; forgotten and raised again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from rolecall.dynamics.alarm_rules import RULES
from rolecall.dynamics.alarms import Alarm, AlarmBoard
from rolecall.dynamics.settings import AlarmSettings
from rolecall.errors import ConfigError

ROLES = {"solver": "team", "verifier": "team"}


def healthy(**changes: float) -> dict[str, float]:
    """One step of a run that goes well; a change of None removes the key. `__` stands for `/`."""
    metrics: dict[str, Any] = {"learner/team/grad_norm": 0.3, "learner/team/mismatch": 1e-5, "learner/team/lr": 1e-5}
    metrics |= {"learner/team/moved_share": 1.0, "learner/team/skipped_nonfinite": 0.0}
    metrics |= {"behaviour/verifier/says_correct": 0.6, "behaviour/verifier/says_wrong": 0.35}
    metrics |= {"behaviour/verifier/judged_right": 0.5}
    for role in ROLES:
        metrics |= {
            f"behaviour/{role}/num_turns": 64.0,
            f"behaviour/{role}/truncated": 0.02,
            f"behaviour/{role}/unparsed": 0.03,
            f"reward/{role}/total": 0.5,
            f"credit/{role}/units": 64.0,
            f"credit/{role}/advantage_mass": 30.0,
            f"credit/{role}/zero_spread_share": 0.2,
            f"credit/{role}/alone": 0.0,
            f"dynamics/{role}/grad_norm": 0.2,
            f"dynamics/{role}/mass_share": 0.5,
            f"dynamics/{role}/entropy": 0.4,
            f"dynamics/{role}/clip_fraction": 0.02,
            f"dynamics/{role}/kl_last": 1e-3,
        }
    metrics |= {key.replace("__", "/"): value for key, value in changes.items()}
    return {key: value for key, value in metrics.items() if value is not None}


def board(**settings: Any) -> AlarmBoard:
    return AlarmBoard(RULES, ROLES, AlarmSettings(**settings))


def feed(one: AlarmBoard, steps: int, start: int = 1, **changes: Any) -> list[Alarm]:
    return [alarm for step in range(start, start + steps) for alarm in one.update(step, healthy(**changes))]


def raised(steps: int = 6, before: int = 4, **changes: Any) -> list[Alarm]:
    """The alarms of `steps` bad steps after `before` healthy ones."""
    one = board()
    assert feed(one, before) == []
    return feed(one, steps, before + 1, **changes)


ZERO = {"credit__solver__advantage_mass": 0.0, "dynamics__solver__grad_norm": 0.0}
ALL_ZERO = {**ZERO, "reward__solver__total": 0.0, "credit__solver__zero_spread_share": 1.0}

CASES: dict[str, tuple[Mapping[str, Any], str, str, str, int]] = {
    "no advantage": ({**ZERO, "credit__solver__zero_spread_share": 0.97}, "never_trains", "solver", "97% of peers", 5),
    "no units": (
        {**ZERO, "credit__solver__units": None, "reward__solver__total": 0.5},
        "never_trains",
        "solver",
        "no credit unit",
        5,
    ),
    "never called": (
        {"behaviour__verifier__num_turns": None, "credit__verifier__units": None, "reward__verifier__total": None}
        | {"credit__verifier__advantage_mass": None, "dynamics__verifier__grad_norm": None},
        "never_trains",
        "verifier",
        "never called",
        5,
    ),
    "advantage without gradient": ({"dynamics__solver__grad_norm": 0.0}, "never_trains", "solver", "no gradient", 5),
    "parser": ({**ALL_ZERO, "behaviour__solver__unparsed": 0.9}, "rewards_zero", "solver", "cause: parser", 3),
    "grader": (
        {**ALL_ZERO, "reward__solver__total": None, "reward__solver__ungraded": 1.0},
        "rewards_zero",
        "solver",
        "cause: grader",
        3,
    ),
    "truncation": (
        {**ALL_ZERO, "behaviour__solver__truncated": 0.8, "behaviour__solver__unparsed": 0.8},
        "rewards_zero",
        "solver",
        "cause: truncation",
        3,
    ),
    "failed": ({**ALL_ZERO, "reward__solver__failed": 0.7}, "rewards_zero", "solver", "cause: failed episodes", 3),
    "zero spread": (ALL_ZERO, "rewards_zero", "solver", "cause: zero spread", 3),
    "agrees": ({"behaviour__verifier__says_correct": 0.99}, "always_agrees", "verifier", "99% while 50%", 5),
    "rejects": ({"behaviour__verifier__says_wrong": 1.0}, "always_rejects", "verifier", "100% while 50%", 5),
    "wolf": (
        {"behaviour__verifier__num_right_judged": 24.0, "behaviour__verifier__num_false_alarms": 15.0},
        "cries_wolf",
        "verifier",
        "62% of the last 24 right answers",
        5,
    ),
    "captured": (
        {"dynamics__solver__mass_share": 0.95, "dynamics__verifier__mass_share": 0.05},
        "mass_captured",
        "team",
        "'solver' holds 95%",
        5,
    ),
    "entropy": ({"dynamics__verifier__entropy": 0.01}, "entropy_collapse", "verifier", "2.5% of the 0.4", 5),
    "explodes": ({"learner__team__grad_norm": 3.1}, "gradient_explodes", "team", "gradient norm 3.1", 1),
    "not finite": (
        {"learner__team__grad_norm": None, "learner__team__skipped_nonfinite": 1.0},
        "gradient_explodes",
        "team",
        "not finite",
        1,
    ),
    "kl": ({"dynamics__solver__kl_last": 0.02}, "kl_jump", "solver", "0.02 nats", 1),
    "mismatch": ({"learner__team__mismatch": 0.01}, "mismatch", "team", "0.01 nats", 1),
    "clipped": ({"dynamics__solver__clip_fraction": 0.4}, "clip_high", "solver", "40% of its tokens", 5),
    "truncated": ({"behaviour__solver__truncated": 0.6}, "much_truncated", "solver", "60% of its turns", 5),
    "unparsed": ({"behaviour__solver__unparsed": 0.6}, "much_unparsed", "solver", "60% of its turns", 5),
    "lost": ({"learner__team__moved_share": 0.05}, "update_lost", "team", "5.0% of the weights", 2),
    "copies": (
        {"dynamics__solver__amplification": 2.9, "dynamics__solver__amplification_control": 2.5}
        | {"dynamics__solver__copies": 3.0, "dynamics__solver__copy_units": 96.0},
        "copies_aligned",
        "solver",
        "3 copies add up to 2.90 times one (dealt at random: 2.50), in a batch of 96",
        2,
    ),
    "direction": (
        {"dynamics__solver__cosine_total": 0.97, "dynamics__verifier__cosine_total": -0.1},
        "direction_captured",
        "team",
        "the way of 'solver' (cosine 0.97)",
        5,
    ),
    "chi2": ({"dynamics__verifier__chi2": 1.5}, "chi2_high", "verifier", "1.5 a token", 2),
    "leaks": (
        {"behaviour__solver__told_apart_lost": 0.3, "behaviour__solver__taken_for__verifier": 0.25},
        "role_leaks",
        "solver",
        "30% fewer than at the start are known for its own; 25% are taken for 'verifier'",
        5,
    ),
    "confused": ({"behaviour__solver__confused": 0.25}, "format_confused", "solver", "25% of its turns", 3),
    "plans": (
        {"behaviour__solver__different_plans": 0.02, "behaviour__solver__repeated": 0.1},
        "identical_plans",
        "solver",
        "98% of what it plans is the same for all copies, and 10%",
        5,
    ),
    "template": (
        {"behaviour__solver__different_plans": 0.9, "behaviour__solver__repeated": 0.97},
        "identical_plans",
        "solver",
        "97% of its plans",
        5,
    ),
    "copier": (
        {"behaviour__solver__num_wrong_given": 24.0, "behaviour__solver__num_copied_wrong": 24.0},
        "copies_input",
        "solver",
        "100% of the last 24 wrong answers",
        5,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_trouble_raises_its_one_alarm_once_and_after_its_patience(name: str) -> None:
    changes, key, subject, words, patience = CASES[name]
    [alarm] = raised(12, **changes)
    assert (alarm.key, alarm.subject) == (key, subject)
    assert words in alarm.seen
    assert alarm.step == 4 + patience
    assert alarm.usual
    assert alarm.move
    assert alarm.seen in alarm.text
    assert alarm.move in alarm.text


def test_a_healthy_run_raises_none() -> None:
    one = board()
    assert feed(one, 50) == []
    assert one.active == ()


def test_every_rule_has_a_case() -> None:
    tested = {key for _, key, *_ in CASES.values()} | {"validation_fell", "cliff"}
    rules = {rule.__name__ for rule in RULES}
    named = {"always_agrees": "verdicts_stuck", "always_rejects": "verdicts_stuck"}
    named |= {"much_truncated": "much_lost", "much_unparsed": "much_lost"}
    assert {named.get(key, key) for key in tested} == rules


@pytest.mark.parametrize(
    "changes",
    [
        {"behaviour__verifier__says_correct": 1.0, "behaviour__verifier__judged_right": 0.99},
        {"behaviour__verifier__says_wrong": 1.0, "behaviour__verifier__judged_right": 0.02},
        {"behaviour__verifier__num_right_judged": 40.0, "behaviour__verifier__num_false_alarms": 19.0},
        {"behaviour__verifier__num_right_judged": 1.0, "behaviour__verifier__num_false_alarms": 1.0},
        {"reward__solver__total": 0.0},  # rewards that cancel out leave advantages
        {"dynamics__solver__kl_last": 0.009},  # nine times the usual, and tiny
        {"learner__team__grad_norm": 2.9},
        {"learner__team__moved_share": None, "learner__team__mismatch": None},
        {"behaviour__verifier__repeated": 1.0},
        {"dynamics__solver__cosine_total": 0.97, "dynamics__verifier__cosine_total": 0.1},
        {"behaviour__solver__num_wrong_given": 1.0, "behaviour__solver__num_copied_wrong": 1.0},
    ],
    ids=[
        "truth is right too",
        "truth is wrong too",
        "some false alarms",
        "too few right answers",
        "zero sum",
        "tiny KL",
        "large, not enormous",
        "nothing measured",
        "verdicts that are all alike",
        "one leads, the other gains",
        "too few wrong answers",
    ],
)
def test_what_only_looks_like_trouble_raises_none(changes: Mapping[str, Any]) -> None:
    assert raised(12, **changes) == []


def judged(right: float, alarms: float, **more: float) -> dict[str, float]:
    counts = {"behaviour__verifier__num_right_judged": right, "behaviour__verifier__num_false_alarms": alarms}
    return {**counts, "behaviour__verifier__judged_right": right / 64, **more}


def test_false_alarms_are_counted_over_as_many_steps_as_hold_enough_right_answers() -> None:
    """Two right answers a step, both called wrong: after ten steps there are twenty, and five steps later an alarm."""
    one = board()
    assert feed(one, 13, **judged(2.0, 2.0)) == []
    [alarm] = feed(one, 1, 14, **judged(2.0, 2.0))
    assert (alarm.key, alarm.step) == ("cries_wolf", 14)
    assert "100% of the last 20 right answers" in alarm.seen
    assert "balance_verdicts = true" in alarm.move
    assert "3% of what it judges is right" in alarm.move
    feed(one, 12, 15, **judged(40.0, 15.0))  # the last step alone holds enough: 15 of 40
    assert one.active == ()


def test_a_verifier_that_says_nothing_but_wrong_raises_one_alarm_or_the_other() -> None:
    everything = {"behaviour__verifier__says_wrong": 1.0, "behaviour__verifier__says_correct": 0.0}
    mixed = feed(board(), 8, **judged(32.0, 32.0, **everything))
    assert [alarm.key for alarm in mixed] == ["always_rejects"]
    rare = feed(board(), 24, **judged(2.0, 2.0, **everything))  # too few right answers for the other to speak
    assert [alarm.key for alarm in rare] == ["cries_wolf"]


def test_two_roles_in_policies_of_their_own_cannot_capture_each_others_mass() -> None:
    one = AlarmBoard(RULES, {"solver": "a", "verifier": "b"})
    for step in range(1, 12):
        metrics = healthy(dynamics__solver__mass_share=1.0, dynamics__verifier__mass_share=1.0)
        assert one.update(step, metrics) == []


def test_an_alarm_comes_again_only_after_its_trouble_was_well_gone_for_as_long() -> None:
    one = board()
    bad, between = {"dynamics__solver__clip_fraction": 0.4}, {"dynamics__solver__clip_fraction": 0.25}
    assert len(feed(one, 8, **bad)) == 1
    assert one.active == (("clip_high", "solver"),)
    feed(one, 20, **between)  # under the bound and not well back: the alarm stands
    assert one.active == (("clip_high", "solver"),)
    assert feed(one, 8, **bad) == []
    feed(one, 4)
    assert one.active == (("clip_high", "solver"),)
    feed(one, 1)
    assert one.active == ()
    assert feed(one, 4, **bad) == []
    assert len(feed(one, 1, **bad)) == 1
    assert len(one.log) == 2


def test_a_trouble_that_comes_and_goes_never_outlasts_the_patience() -> None:
    one = board()
    for _ in range(10):
        assert feed(one, 4, dynamics__solver__clip_fraction=0.4) == []
        assert feed(one, 1) == []


def validation(mean: float, half: float = 0.05) -> dict[str, float]:
    return {
        "validation__team": mean,
        "validation__team_low": mean - half,
        "validation__team_high": mean + half,
    }


def test_validation_below_its_peak_by_more_than_the_interval_of_the_difference() -> None:
    one = board()
    width = math.hypot(0.05, 0.05)
    for step, mean in enumerate((0.5, 0.7, 0.65, 0.7 - width + 1e-3), start=1):
        assert one.update(step, healthy(**validation(mean))) == []
    [alarm] = one.update(5, healthy(**validation(0.7 - width - 1e-3)))
    assert (alarm.key, alarm.subject) == ("validation_fell", "team")
    assert "below its peak of 0.700" in alarm.seen
    assert f"within {width:.3f}" in alarm.usual
    assert one.update(6, healthy()) == []  # no validation in this step: nothing is said
    assert one.active == (("validation_fell", "team"),)


def test_a_cliff_is_told_once_and_again_only_after_it_was_climbed_back() -> None:
    def seen(step: int, last: float, fallen: float) -> list[Alarm]:
        figures = {"peak": 0.7, "peak_step": 2.0, "last": last, "interval": 0.06, "fallen": fallen}
        return one.update(step, healthy(**{f"cliff__{name}": value for name, value in figures.items()}))

    one = board()
    assert seen(1, 0.7, 0.0) == []
    [alarm] = seen(2, 0.6, 1.0)
    assert (alarm.key, alarm.subject) == ("cliff", "team")
    assert alarm.seen == "the mean of the last two validations is 0.600; the peak was 0.700 at step 2"
    assert seen(3, 0.6, 1.0) == []
    assert seen(4, 0.65, 0.0) == []  # no fall any more, and not well back: it stands
    assert one.active == (("cliff", "team"),)
    assert seen(5, 0.69, 0.0) == []
    assert one.active == ()
    assert [alarm.key for alarm in seen(6, 0.5, 1.0)] == ["cliff"]


def test_mismatch_is_bounded_by_dtype() -> None:
    one = AlarmBoard(RULES, ROLES, coarse=["team"])
    assert one.update(1, healthy(learner__team__mismatch=0.01)) == []
    assert [alarm.key for alarm in one.update(2, healthy(learner__team__mismatch=0.1))] == ["mismatch"]


def test_a_resumed_board_raises_the_same_alarms_in_the_same_steps() -> None:
    series = [healthy() for _ in range(6)]
    series += [healthy(**CASES["captured"][0], **CASES["entropy"][0]) for _ in range(3)]
    series += [healthy(**CASES["captured"][0], **CASES["entropy"][0], learner__team__grad_norm=9.0) for _ in range(6)]
    whole, parts = board(), board()
    for step, metrics in enumerate(series):
        whole.update(step, metrics)
    for step, metrics in enumerate(series):
        kept = json.loads(json.dumps(parts.state()))
        parts = board()
        parts.restore(kept)
        parts.update(step, metrics)
    assert parts.log == whole.log
    assert parts.active == whole.active
    assert {alarm.key for alarm in whole.log} == {"mass_captured", "entropy_collapse", "gradient_explodes"}
    assert json.loads(json.dumps(parts.state())) == json.loads(json.dumps(whole.state()))


def test_the_state_stays_small_over_a_long_run() -> None:
    one = board(window=10)
    feed(one, 30)
    size = len(json.dumps(one.state()))
    feed(one, 100)
    assert len(json.dumps(one.state())) == size


def test_settings_out_of_range_are_named() -> None:
    for knobs, words in (
        ({"patience": 0}, "patience"),
        ({"right_judged": 0}, "right_judged"),
        ({"captured": 1.5}, "captured"),
        ({"wrong_given": 0}, "wrong_given"),
        ({"leaked": 0.0}, "leaked"),
        ({"kl_jump": 1.0}, "kl_jump"),
    ):
        with pytest.raises(ConfigError, match=words):
            AlarmSettings(**knobs)  # type: ignore[arg-type]
