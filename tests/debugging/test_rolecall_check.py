"""`rolecall check`: finds out what a thing is, and says of each fault what was seen, wanted and to be done."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rolecall import commands_debug
from rolecall.debugging.check import check_target
from rolecall.errors import UsageError


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parent))
    yield
    sys.modules.pop("checked_parts", None)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Asks", "workflow"), ("Generous", "reward"), ("leave_one_out", "algorithm"), ("good_engine", "engine")],
)
def test_a_good_part_of_each_kind_is_recognised_and_has_no_complaints(name, kind):
    checked = check_target(f"checked_parts:{name}")
    assert (checked.kind, checked.complaints) == (kind, ())


@pytest.mark.parametrize(
    ("name", "kind", "seen", "wanted"),
    [
        ("Lucky", "workflow", "draws random numbers of its own (line", "Draw random numbers from team.rng"),
        ("BadClaim", "workflow", "BadClaim.claim('solver', None, True) raised AttributeError", "Claim or None for any"),
        ("Hoards", "workflow", "is set {1, 2}, which cannot be stored", "an effect returns plain data"),
        ("Loose", "workflow", "can be changed while it is used", "frozen=True"),
        ("Forgot", "workflow", "'patience' is no field", "above the class"),
        ("Forgetful", "reward", "gives nothing for turn 'a/0/0'", "wanted one for every turn"),
        ("Crashes", "reward", "raised IndexError: tuple index out of range (line", "checked_parts.py"),
        ("biased", "algorithm", "has the advantage 1.0", "wanted exactly 0"),
        ("FallsBack", "engine", "a request for an unknown policy gave", "wanted an EngineError"),
        ("NoScores", "engine", "has no score, version, close", "wanted all of generate"),
    ],
)
def test_a_fault_is_named_with_what_was_seen_and_what_was_wanted(name, kind, seen, wanted):
    checked = check_target(f"checked_parts:{name}")
    assert checked.kind == kind
    assert checked.complaints
    assert seen in checked.complaints[0]
    assert wanted in checked.complaints[0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("solve_verify_correct", "workflow"), ("team_outcome", "reward"), ("rae", "algorithm"), ("scripted", "engine")],
)
def test_what_rolecall_ships_passes_by_its_short_name(name, kind):
    assert check_target(name) == check_target(name, kind)
    assert check_target(name).complaints == ()


def test_the_local_engine_keeps_to_the_contract_of_engines():
    assert check_target("local").complaints == ()


def test_knobs_are_set_and_an_unknown_one_is_a_mistake_of_the_caller():
    assert check_target("checked_parts:Asks", settings={"times": 3}).complaints == ()
    with pytest.raises(UsageError, match="has no setting 'tims'; did you mean 'times'"):
        check_target("checked_parts:Asks", settings={"tims": 3})
    with pytest.raises(UsageError, match="needs a value for 'weights'"):
        check_target("mixed")


def test_a_kind_that_cannot_be_seen_is_asked_for():
    with pytest.raises(UsageError, match="say which it is meant to be with --kind"):
        check_target("checked_parts:unmarked")
    assert check_target("checked_parts:unmarked", "algorithm").complaints == ()
    with pytest.raises(UsageError, match="is a int, and not seen to be"):
        check_target("checked_parts:A_NUMBER")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("solve_verify_corect", "did you mean 'solve_verify_correct'"),
        ("no_such_module:Thing", "no module 'no_such_module' on the Python path"),
        ("checked_parts:Askss", "did you mean 'Asks'"),
    ],
)
def test_a_name_of_nothing_is_one_clear_message(target, words):
    with pytest.raises(UsageError, match=words):
        check_target(target)


def test_a_file_whose_name_begins_with_a_digit_can_be_checked(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "examples"))
    assert check_target("03_own_workflow:Choose").complaints == ()
    assert check_target("02_own_reward:RightAndShort").complaints == ()
    assert check_target("05_own_algorithm:half_team").complaints == ()


def run(*arguments: str):  # type: ignore[no-untyped-def]
    app = typer.Typer()
    commands_debug.register(app)
    return CliRunner().invoke(app, ["check", *arguments])


def test_the_exit_code_is_1_with_complaints_and_0_without():
    assert run("checked_parts:Asks").exit_code == 0
    done = run("checked_parts:Lucky")
    assert done.exit_code == 1
    assert "1 complaint" in done.output


def test_many_complaints_of_one_cause_are_cut_short_and_json_has_them_all():
    assert "18 more" in run("checked_parts:Forgetful").output
    done = run("checked_parts:Forgetful", "--json")
    found = json.loads(done.output)
    assert done.exit_code == 1
    assert (found["kind"], len(found["complaints"])) == ("reward", 23)
