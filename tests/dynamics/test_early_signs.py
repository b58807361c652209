"""Early signs over made runs whose answer is known."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rolecall.cli import app
from rolecall.dynamics.early_signs import SIGNS, Record, Row, Table, judge, warning
from rolecall.run_folder import RunFolder

ROLES = {"voter": "voter", "solver": "team", "judge": "team"}
RISES = (0.4, 0.5, 0.7, 0.8, 0.8, 0.8)
FALLS = (0.4, 0.5, 0.8, 0.8, 0.4, 0.4)  # every ten steps: smoothed 0.8, then 0.6 at step 40


def rows(means: tuple[float, ...] = RISES, **series: Mapping[int, float]) -> list[Row]:
    """Validation every ten steps, and other series with `__` for `/`."""
    found: list[Row] = []
    for number, mean in enumerate(means):
        found += [(10 * number, f"validation/team{end}", mean + d) for end, d in (("", 0), ("_low", -0.03))]
        found.append((10 * number, "validation/team_high", mean + 0.03))
    for name, values in series.items():
        found += [(step, name.replace("__", "/"), value) for step, value in values.items()]
    return found


def chi2(start: int, role: str = "voter", high: float = 2.0) -> dict[str, dict[int, float]]:
    """A run of 50 steps whose chi-squared is high from `start` on."""
    return {f"dynamics__{role}__chi2": {step: high if step >= start else 0.0 for step in range(1, 51)}}


def record(tables: list[Table], name: str = "chi2", **options: Any) -> Record:
    (found,) = judge(tables, [sign for sign in SIGNS if sign.name == name], **options)
    return found


def test_a_warning_is_the_last_of_two_measurements_in_a_row() -> None:
    series = {1: 1.0, 2: 0.0, 3: 1.0, 9: 1.5, 10: 2.0}
    assert warning(series, 1.0) == 9
    assert warning(series, 1.0, patience=3) == 10
    assert warning(series, 1.0, patience=1) == 1
    assert warning(series, 1.75) is None


def test_leads_are_counted_in_steps_from_the_warning_to_the_fall() -> None:
    early = Table.of(rows(FALLS, **chi2(19)), ROLES)  # warns at 20
    assert early.fall == 40
    late = Table.of(rows(FALLS, **chi2(39)), ROLES)  # warns at 40, when the fall is seen: too late
    never = Table.of(rows(FALLS, **chi2(99)), ROLES)
    quiet = Table.of(rows(RISES, **chi2(99)), ROLES)
    alarmed = Table.of(rows(RISES, **chi2(5)), ROLES)
    found = record([early, late, never, quiet, alarmed, Table.of(rows(), ROLES)])
    assert (found.num_falls, found.leads) == (3, (20,))
    assert (found.num_quiet, found.num_false, found.unmeasured) == (2, 1, 1)


def test_no_claim_is_made_below_ten_falls_however_well_a_sign_did() -> None:
    falls = [Table.of(rows(FALLS, **chi2(10)), ROLES)] * 9
    quiet = [Table.of(rows(RISES, **chi2(99)), ROLES)] * 30
    found = record([*falls, *quiet])
    assert found.words == (
        "chi2 at 1 or above warned before 9 of 9 falls, a median of 29 steps (29 to 29) before, and in 0 of 30 runs "
        "without a fall. It rests on 9 falls: no claim below 10"
    )
    assert found.to_dict()["claim"] is False
    more = record([*falls, *falls[:1], *quiet])
    assert more.tells
    assert more.words.endswith("It tells runs that fall from others (hits 100% [72%, 100%], false alarms 0% [0%, 11%])")


def test_a_sign_that_always_warns_tells_nothing() -> None:
    tables = [Table.of(rows(means, **chi2(1)), ROLES) for means in (FALLS, RISES) for _ in range(20)]
    found = record(tables)
    assert len(found.leads) == found.num_false == 20
    assert not found.tells
    assert "does not tell runs that fall from others" in found.words


def test_a_difference_within_its_interval_tells_nothing() -> None:
    """6 of 10 falls and 3 of 10 others: 0.3 apart. Wilson: 0.6 from 0.313, 0.3 up to 0.603; the width is 0.418."""
    falls = [Table.of(rows(FALLS, **chi2(10 if i < 6 else 99)), ROLES) for i in range(10)]
    quiet = [Table.of(rows(RISES, **chi2(10 if i < 3 else 99)), ROLES) for i in range(10)]
    found = record([*falls, *quiet])
    assert (found.hits.low, found.false_alarms.high) == (
        pytest.approx(0.3127, abs=1e-3),
        pytest.approx(0.6032, abs=1e-3),
    )
    assert not found.tells


def test_without_runs_that_did_not_fall_nothing_is_claimed() -> None:
    found = record([Table.of(rows(FALLS, **chi2(10)), ROLES)] * 12)
    assert "its false alarms are not known: no claim" in found.words


def test_a_run_that_could_not_have_been_seen_to_fall_is_no_run_without_a_fall() -> None:
    short = Table.of(rows(RISES[:2], **chi2(5)), ROLES)
    none = Table.of(rows((), **chi2(5)), ROLES)
    broken = Table.of(rows((0.4, 0.5, math.nan), **chi2(5)), ROLES)
    assert [table.watched for table in (short, none, broken, Table.of(rows(RISES[:3]), ROLES))] == [False] * 3 + [True]
    found = record([short, none, broken, Table.of(rows(FALLS, **chi2(5)), ROLES)])
    assert (found.num_falls, found.num_quiet, found.num_false, found.unmeasured) == (1, 0, 0, 0)


def test_another_threshold_changes_what_warns() -> None:
    table = Table.of(rows(FALLS, **chi2(10, high=0.6)), ROLES)
    assert record([table]).leads == ()
    assert record([table], thresholds={"chi2": 0.5}).leads == (29,)


def test_amplification_is_read_over_the_number_of_copies_and_only_with_copies() -> None:
    series = {"dynamics__voter__amplification": {1: 2.9, 6: 1.9}, "dynamics__voter__copies": {1: 3.0, 6: 2.0}}
    series |= {"dynamics__solver__amplification": {1: 1.0}, "dynamics__solver__copies": {1: 1.0}}
    found = next(sign for sign in SIGNS if sign.name == "amplification").read(Table.of(rows(**series), ROLES))
    assert found == {1: pytest.approx(2.9 / 3), 6: pytest.approx(0.95)}


def test_mass_is_read_of_shared_policies_only() -> None:
    series = {"dynamics__voter__mass_share": {1: 1.0}, "dynamics__solver__mass_share": {1: 0.3}}
    series |= {"dynamics__judge__mass_share": {1: 0.7}, "learner__team__capture_index": {1: 0.2}}
    table = Table.of(rows(**series), ROLES)
    readings = {sign.name: sign.read(table) for sign in SIGNS}
    assert readings["mass"] == {1: 0.7}
    assert readings["capture"] == {1: 0.2}
    assert readings["persistence"] == {}


def written(path: Path, means: tuple[float, ...], start: int) -> Path:
    """A run folder with no more than the command reads."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text("")
    (path / "summary.json").write_text(json.dumps({"roles_to_policies": ROLES}))
    folder, by_step = RunFolder(path), dict[int, dict[str, float]]()
    for step, key, value in rows(means, **chi2(start)):
        by_step.setdefault(step, {})[key] = value
    for step, values in by_step.items():
        folder.write_metrics(step, values)
    return path


def test_the_command_reads_run_folders_and_folders_of_runs(tmp_path: Path) -> None:
    written(tmp_path / "matrix" / "runs" / "a", FALLS, 10)
    written(tmp_path / "matrix" / "runs" / "b", RISES, 99)
    alone = written(tmp_path / "c", RISES, 10)
    shown = CliRunner().invoke(app, ["signs", str(tmp_path / "matrix"), str(alone)])
    assert shown.exit_code == 0, shown.output
    assert "3 runs, 1 of them with a fall of validation" in shown.output
    assert "a: seen at step 40 of 50" in shown.output
    assert (
        "chi2 at 1 or above warned before 1 of 1 falls, a median of 29 steps before, and in 1 of 2 runs" in shown.output
    )
    assert "It rests on 1 fall: no claim below 10" in shown.output
    assert "left out" not in shown.output
    assert "mass at 0.9 or above warned before 0 of 0 falls" in shown.output
    short = written(tmp_path / "d", RISES[:2], 10)
    words = CliRunner().invoke(app, ["signs", str(alone), str(short)]).output
    assert f"1 left out, with too few validations to show a fall: {short}" in " ".join(words.split())
    told = CliRunner().invoke(app, ["signs", str(alone), str(short), "--json", "--threshold", "chi2=3"])
    found = json.loads(told.output)
    assert found["runs"] == {str(alone): None, str(short): None}
    assert found["unwatched"] == [str(short)]
    assert {one["sign"]: one["runs_without_fall"] for one in found["signs"]}["chi2"] == 1
    assert {one["sign"]: one["false_alarms"] for one in found["signs"]}["chi2"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--threshold", "chi=1"], "did you mean 'chi2'"),
        (["--threshold", "chi2=x"], "'x' is no number"),
        (["--threshold", "chi2=nan"], "'nan' is no number"),
    ],
)
def test_a_threshold_that_cannot_be_is_refused(tmp_path: Path, arguments: list[str], words: str) -> None:
    run = written(tmp_path / "a", RISES, 99)
    result = CliRunner().invoke(app, ["signs", str(run), *arguments])
    assert result.exit_code != 0
    assert words in (result.output + str(result.exception))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("summary.json", "{", "summary.json cannot be read"),
        ("summary.json", "[]", "summary.json holds no JSON object"),
        ("summary.json", "{}", "nothing says which roles it has"),
        ("metrics/00000000-00000000.parquet", "x", "00000000-00000000.parquet cannot be read"),
    ],
)
def test_a_run_that_cannot_be_read_whole_is_named_and_counts_nowhere(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    run = written(tmp_path / "a", RISES, 99)
    written(tmp_path / "b", RISES, 99)
    (run / name).write_text(text)
    result = CliRunner().invoke(app, ["signs", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "1 run, 0 of them with a fall" in result.output
    said = " ".join(result.output.split())
    assert f"left out, it cannot be read whole: {run}: " in said
    assert words in said
    told = json.loads(CliRunner().invoke(app, ["signs", str(tmp_path), "--json"]).output)
    assert list(told["unreadable"]) == [str(run)]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["signs", str(tmp_path)])
    assert "holds none" in (result.output + str(result.exception))
