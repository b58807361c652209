"""What the page warns of, in words; and that a good run is left in peace."""

from __future__ import annotations

import json

import pytest
from report_builders import make_run, usual_metrics

from rolecall.report import make_page
from rolecall.report.checks import findings
from rolecall.report.read import read_run

STEPS = range(1, 9)


def found(tmp_path, changes=None, **run):
    """(level, title) of what a run with changed metrics is warned of."""
    metrics = usual_metrics() | {
        k: v if isinstance(v, dict) else dict.fromkeys(STEPS, v) for k, v in (changes or {}).items()
    }
    folder = make_run(tmp_path / "demo", metrics=metrics, **run)
    return [(one.level, f"{one.title}. {one.text}") for one in findings(read_run(folder))]


def warned(tmp_path, words, level="look", changes=None, **run):
    lines = found(tmp_path, changes, **run)
    hits = [line for line in lines if words in line[1]]
    assert [hit[0] for hit in hits] == [level], lines


def test_a_good_run_has_no_warning(tmp_path):
    assert {level for level, _ in found(tmp_path)} == {"fine"}


def test_a_role_whose_advantages_are_all_0_never_trains(tmp_path):
    warned(tmp_path, "verifier never trains", "bad", {"credit/verifier/advantage_mass": 0.0})


def test_a_role_that_is_not_trained_is_not_blamed_for_it(tmp_path):
    lines = found(tmp_path, {"credit/verifier/advantage_mass": 0.0}, config={"train_roles": ["solver", "corrector"]})
    assert not any("never trains" in text for _, text in lines)


def test_advantages_that_fade_out_are_told_from_those_that_never_were(tmp_path):
    fading = {step: 20.0 if step < 5 else 0.0 for step in STEPS}
    warned(tmp_path, "solver has stopped training", "look", {"credit/solver/advantage_mass": fading})


@pytest.mark.parametrize(("share", "level"), [(0.3, "look"), (0.8, "bad")])
@pytest.mark.parametrize(("name", "words"), [("unparsed", "cannot be parsed"), ("truncated", "are cut off")])
def test_replies_that_are_unparsed_or_cut_off(tmp_path, name, words, share, level):
    warned(tmp_path, words, level, {f"behaviour/solver/{name}": share})


def test_validation_that_fell_after_its_peak_by_more_than_its_intervals(tmp_path):
    fall = {"": 0.6, "_low": 0.55, "_high": 0.65}
    changes = {f"validation/team{end}": {2: 0.9 + value - 0.6, 8: value} for end, value in fall.items()}
    warned(tmp_path, "Validation fell after its peak", "bad", changes)


def test_a_fall_outside_the_interval_of_the_difference_is_one_although_the_two_intervals_meet(tmp_path):
    ends = (("", 0.0), ("_low", -0.05), ("_high", 0.05))  # 8 points, and sqrt(.05^2 + .05^2) is 7.1
    changes = {f"validation/team{end}": {2: 0.9 + d, 8: 0.82 + d} for end, d in ends}
    warned(tmp_path, "Validation fell after its peak", "bad", changes)


def test_a_fall_within_the_intervals_is_not_a_cliff(tmp_path):
    changes = {
        f"validation/team{end}": {2: 0.9 + d, 8: 0.86 + d} for end, d in (("", 0), ("_low", -0.05), ("_high", 0.05))
    }
    assert not any(level == "bad" for level, _ in found(tmp_path, changes))


@pytest.mark.parametrize(("after", "words", "level"), [(0.55, "overlap", "look"), (0.3, "got worse", "bad")])
def test_accuracy_that_did_not_rise(tmp_path, after, words, level):
    warned(tmp_path, words, level, after=after)


def test_a_team_below_its_first_answer(tmp_path):
    warned(tmp_path, "later roles make answers worse", "bad", after=0.3)


def test_a_disagreement_of_engine_and_learner(tmp_path):
    warned(tmp_path, "Engine and learner disagree", "bad", {"parity/shared/max_abs_diff": 0.5})


def test_a_verifier_that_agrees_with_everything(tmp_path):
    changes = {"says_correct": 0.99, "recall": 0.02, "false_alarm": 0.0}
    changes = {f"behaviour/verifier/{name}": value for name, value in changes.items()}
    warned(tmp_path, "verifier agrees with everything", "look", changes)


def test_a_verifier_that_is_right_to_agree_is_left_in_peace(tmp_path):
    changes = {"says_correct": 0.97, "recall": 0.95, "false_alarm": 0.01}
    lines = found(tmp_path, {f"behaviour/verifier/{name}": value for name, value in changes.items()})
    assert {level for level, _ in lines} == {"fine"}


def test_a_corrector_that_copies(tmp_path):
    figures = {"copied_input": 0.9, "repaired": 0.05, "kept_right": 0.5, "num_wrong_given": 40, "num_right_given": 4.0}
    changes = {f"behaviour/corrector/{name}": value for name, value in figures.items()}
    warned(tmp_path, "corrector copies 90.0", "look", changes)
    text = next(text for _, text in found(tmp_path / "again", changes) if "copies" in text)
    assert "repairs 5.0\u202f% of the 120 wrong ones and keeps 50.0\u202f% of the 12 right ones" in text


def test_roles_that_pull_against_each_other(tmp_path):
    changes = {"dynamics/solver/cosine/verifier": -0.6, "dynamics/verifier/cosine/solver": -0.6}
    warned(tmp_path, "solver and verifier pull against each other", "look", changes)


def test_a_role_with_hardly_any_of_its_policys_gradient(tmp_path):
    warned(tmp_path, "of its policy's gradient", "look", {"dynamics/corrector/mass_share": 0.001})


def test_replies_that_are_compared_without_a_difference_say_what_that_means(tmp_path):
    words = (
        "85\u202f% of what solver does is compared without a difference. A reply is paid by the difference to its peers"
    )
    warned(tmp_path, words, "look", {"credit/solver/zero_spread_share": 0.85})


def test_updates_that_were_skipped(tmp_path):
    warned(tmp_path, "not finite; lower learner.lr", "bad", {"learner/shared/skipped_nonfinite": {3: 2.0}})


def test_episodes_that_failed_are_counted_of_those_started(tmp_path):
    warned(tmp_path, "64 timeout, of 512 started", "bad", {"episodes/timeout": 8.0})


def test_entropy_that_collapsed(tmp_path):
    warned(
        tmp_path, "Entropy of policy shared collapsed", "look", {"learner/shared/entropy": {s: 0.5**s for s in STEPS}}
    )


ALARM = {"key": "clip_high", "subject": "solver", "step": 3, "seen": "40 % clipped", "usual": "few", "move": "lower lr"}


@pytest.mark.parametrize(("last", "ends"), [(4, "stood last in step 4"), (8, "still stands")])
def test_alarms_of_the_run_are_repeated_in_its_own_words(tmp_path, last, ends):
    words = "clip_high, solver: 40 % clipped (usual: few). lower lr"
    alarms = [ALARM | {"text": words}]
    stood = {"alarms/clip_high": {2: 0.0, **dict.fromkeys(range(3, last + 1), 1.0)}}
    expected = f"Alarm in step 3: clip high. {words} (clip_high {ends}.)"
    warned(tmp_path, expected, "look", stood, alarms=alarms)


def test_an_alarm_that_cannot_be_read_is_named(tmp_path):
    warned(tmp_path, "alarms.json holds", "look", alarms=["of another version"])


def test_steps_without_metrics_are_counted(tmp_path):
    metrics = {key: {s: v for s, v in by.items() if s != 4} for key, by in usual_metrics().items()}
    folder = make_run(tmp_path / "demo", metrics=metrics)
    assert any("1 between step 1 and step 8" in one.text for one in findings(read_run(folder)))


def test_the_worst_stands_first(tmp_path):
    lines = found(tmp_path, {"credit/solver/advantage_mass": 0.0, "behaviour/corrector/copied_input": 0.9})
    levels = [level for level, _ in lines]
    assert levels == sorted(levels, key=("bad", "look", "note", "fine").index)


def test_many_findings_are_folded_but_what_is_wrong_stays_open(tmp_path):
    changes = {
        f"behaviour/{role}/{name}": 0.2
        for role in ("solver", "verifier", "corrector")
        for name in ("unparsed", "truncated")
    }
    changes |= {f"credit/{role}/advantage_mass": 0.0 for role in ("solver", "verifier", "corrector")}
    metrics = usual_metrics() | {key: dict.fromkeys(STEPS, value) for key, value in changes.items()}
    page = make_page([make_run(tmp_path / "demo", metrics=metrics)])
    assert page.index("corrector never trains") < page.index("4 more to look at") < page.index("checks passed")


def test_what_the_cliff_guard_did_is_told_and_what_interventions_left_is_drawn(tmp_path):
    metrics = usual_metrics() | {"interventions/solver/scale": dict.fromkeys(STEPS, 0.7)}
    folder = make_run(tmp_path / "demo", metrics=metrics)
    summary = json.loads((folder / "summary.json").read_text())
    cliff = {"cliff": True, "fell": True, "last": 0.5, "peak": 0.9, "peak_step": 4, "stopped": True}
    summary["cliff"] = {**cliff, "rollbacks": [{"step": 6, "to": 4}]}
    (folder / "summary.json").write_text(json.dumps(summary))
    told = {f"{one.title}. {one.text}" for one in findings(read_run(folder)) if one.level == "look"}
    assert any(text.startswith("Rolled back from step 6 to step 4") for text in told)
    assert any("The cliff guard stopped the run" in text and "90.0\u202f% at step 4" in text for text in told)
    assert "What interventions left of its pull" in make_page([folder])


def test_a_run_that_ends_below_its_base_is_held_against_it_and_not_against_its_peak(tmp_path):
    folder = make_run(tmp_path / "demo")
    summary = json.loads((folder / "summary.json").read_text())
    summary["cliff"] = {"cliff": True, "fell": False, "last": 0.1, "peak": 0.35, "peak_step": 1, "base": 0.6}
    (folder / "summary.json").write_text(json.dumps(summary))
    (text,) = [one.text for one in findings(read_run(folder)) if one.title == "The run ends below where it began"]
    assert text.startswith("the mean of the last two validations is 10.0\u202f%; before training 60.0\u202f%.")


def test_a_page_without_interventions_says_nothing_of_them(tmp_path):
    assert "interventions left" not in make_page([make_run(tmp_path / "demo")])
