"""What a matrix makes of its cells' processes, which are scripts of a line or two here.

Behaviours locked here: the index names every cell of the file, whatever part of it is run; a reason is that of the last
process; what went on is measured again; broken files and a folder that disappears cost a cell, never the matrix; a
process that does not end when asked is ended.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from rolecall.config import overlay
from rolecall.errors import UsageError
from rolecall.matrix import Course, Matrix, MatrixFolder, load_matrix, plan, run_matrix
from rolecall.matrix.controls import generated, num_answers, stands

RECIPE: dict[str, Any] = {
    "steps": 3,
    "workflow": {"name": "single_agent", "prompts": "tiny", "answer_format": "text"},
    "tasks": {"name": "reasoning_gym", "family": "chain_sum", "size": 100},
    "algorithm": {"name": "workflow_grpo", "n": 4},
    "model": {"model": "builtin:tiny"},
}
MATRIX: dict[str, Any] = {
    "name": "small",
    "base": "base.toml",
    "axes": {"workflow": {"One": {}, "Two": {"workflow": {"name": "majority_vote", "num_voters": 2}}}},
    "limits": {"jobs": 1, "min_free_gib": 0.001},
}
CONTROL = {"SA": {"set": {"steps": 500}, "tokens_of": {"workflow": "Two"}}}

ENDS = """
echo '{"steps": 3, "best_step": 2, "tokens": {"generated": 60}}' > $run/summary.json
echo '{"sampled": {"tokens": 20, "team": {"num_tasks": 10}}}' > $run/evaluation_after.json
touch $run/report.html
"""
"""A run of three steps that has come to its end."""

MAJORITY = """
mkdir -p $run/evaluations
echo "{\\"checkpoint\\": \\"step-00000002\\", \\"samples\\": $samples}" > $run/evaluations/$save.json
"""


class Cells:
    """A matrix whose cells' processes run `scripts[name]`, or else `ENDS`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.scripts: dict[str, str] = {}
        self.said: list[str] = []

    def matrix(self, **changes: Any) -> Matrix:
        (self.folder / "base.toml").write_text(tomli_w.dumps(RECIPE))
        (self.folder / "matrix.toml").write_text(tomli_w.dumps(overlay(MATRIX, changes)))
        return load_matrix(self.folder / "matrix.toml")

    def run(self, matrix: Matrix | None = None, say: Callable[[str], None] | None = None) -> Course:
        cases = [f"{name}) {script}\n;;" for name, script in self.scripts.items()]
        (self.folder / "python").write_text(
            "#!/bin/sh\n"
            'if [ "$3" = train ]; then run=$6; job=$(basename $6); else run=$4; samples=$6; save=$8; job=majority; fi\n'
            f"case $job in\n{chr(10).join(cases)}\nmajority) {MAJORITY}\n;;\n*) {ENDS}\n;;\nesac\n"
        )
        (self.folder / "python").chmod(0o755)
        return run_matrix(matrix or self.matrix(), MatrixFolder(path=self.out), say or self.said.append)

    def index(self) -> Any:
        return json.loads((self.out / "matrix.json").read_text())


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cells:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("rolecall.matrix.execute.POLL_S", 0.01)
    return Cells(tmp_path)


def test_the_index_names_every_cell_when_a_part_is_run(cells: Cells) -> None:
    matrix = cells.matrix()
    assert cells.run(matrix.only(("One",))).done == ["One"]
    assert [row["name"] for row in cells.index()["cells"]] == ["One", "Two"]
    course = cells.run(matrix.only(("Two",)))
    assert (course.done, course.complete) == (["Two"], True)
    assert [row["name"] for row in cells.index()["cells"]] == ["One", "Two"]


def test_a_reason_is_that_of_the_last_process_and_not_of_an_earlier_one(cells: Cells) -> None:
    cells.scripts["One"] = "echo 'rolecall: no such task'; exit 2"
    assert cells.run().failed == {"One": "exit code 2: rolecall: no such task"}
    cells.scripts["One"] = "kill -9 $$"
    course = cells.run()
    assert course.failed == {
        "One": "exit code -9: ended by signal 9 (out of memory, or killed); last line: no word in the log"
    }
    assert cells.index()["failures"]["One"]["times"] == 2


def test_a_control_is_measured_again_when_it_or_its_team_has_gone_on(cells: Cells) -> None:
    cells.scripts["SA"] = ENDS.replace('"tokens": 20', '"tokens": 10')  # one token a task, the team has two
    matrix = cells.matrix(controls=CONTROL)
    course = cells.run(matrix)
    assert course.done == ["One", "Two", "SA", "SA.majority-of-One", "SA.majority-of-Two"]
    folder = MatrixFolder(path=cells.out)
    assert num_answers(folder, "SA", "Two") == 2
    assert cells.run(matrix).done == []
    after = cells.out / "Two" / "evaluation_after.json"
    after.write_text(after.read_text().replace('"tokens": 20', '"tokens": 50'))
    assert num_answers(folder, "SA", "Two") == 5
    again = cells.run(matrix)
    assert (again.done, again.failed) == (["SA.majority-of-Two"], {})
    summary = cells.out / "SA" / "summary.json"
    summary.write_text(summary.read_text().replace('"best_step": 2', '"best_step": 3'))
    assert not stands(folder, "SA", "One")
    states = {one["name"]: one["state"] for one in plan(matrix, folder)}
    assert states == {
        "One": "done",
        "Two": "done",
        "SA": "done",
        "SA.majority-of-One": "new",
        "SA.majority-of-Two": "new",
    }


def test_controls_run_when_all_teams_were_done_before(cells: Cells) -> None:
    cells.run(cells.matrix(controls=CONTROL).only(("One", "Two")))
    course = cells.run(cells.matrix(controls=CONTROL))
    assert course.skipped == ["One", "Two"]
    assert course.done == ["SA", "SA.majority-of-One", "SA.majority-of-Two"]
    assert course.complete


@pytest.mark.parametrize(
    "text", ["", "[" * 100000, "[]", "{}", '{"failures": []}', '{"failures": {"One": 5, "Two": {"times": "x"}}}']
)
def test_an_index_that_is_broken_is_written_anew(cells: Cells, text: str) -> None:
    cells.out.mkdir()
    (cells.out / "matrix.json").write_text(text)
    cells.scripts["Two"] = "exit 1"
    course = cells.run()
    assert (course.done, list(course.failed)) == (["One"], ["Two"])
    assert cells.index()["failures"]["Two"]["times"] == 1


@pytest.mark.parametrize(
    "text", ["", "[" * 100000, "[]", "{}", '{"tokens": [], "steps": "3", "cliff": 1}', '{"steps": null}']
)
def test_a_summary_that_is_broken_is_no_end(cells: Cells, text: str) -> None:
    matrix = cells.matrix()
    folder = MatrixFolder(path=cells.out)
    folder.prepare(matrix.cells[0], token_budget=None)
    for name in ("summary.json", "evaluation_after.json"):
        (cells.out / "One" / name).write_text(text)
    (cells.out / "One" / "report.html").write_text("<p>")
    assert folder.state(matrix.cells[0]) == "unfinished"
    assert generated(folder, "One") is None
    assert num_answers(folder, "One", "One") == 1


def test_a_run_whose_configuration_cannot_be_read_is_not_begun_anew(cells: Cells) -> None:
    folder, run = MatrixFolder(path=cells.out), cells.out / "One"
    (run / "metrics").mkdir(parents=True)
    (run / "config.toml").write_text("[learner]\nan_old_knob = true\n")
    assert folder.state(cells.matrix().cells[0]) == "new", "nothing was measured yet"
    (run / "metrics" / "00000000-00000000.parquet").touch()
    with pytest.raises(UsageError, match=r"holds a run of another version, or of a broken configuration .*an_old_knob"):
        cells.run()
    assert "an_old_knob" in (run / "config.toml").read_text()


def test_a_control_of_a_team_that_generated_nothing_is_missing_and_the_others_go_on(cells: Cells) -> None:
    cells.scripts["Two"] = ENDS.replace('"generated": 60', '"generated": 0')
    course = cells.run(cells.matrix(controls=CONTROL))
    assert course.done == ["One", "Two"]
    assert course.failed == {"SA": "control SA: cell Two has generated no tokens; it needs a whole run"}
    assert "needs SA, which has not come to its end" in course.waits["SA.majority-of-One"]


def test_a_control_whose_steps_end_before_its_tokens_is_missing_until_it_has_gone_on(cells: Cells) -> None:
    cells.scripts["SA"] = ENDS.replace('"steps": 3', '"steps": 500').replace('"generated": 60', '"generated": 40')
    matrix = cells.matrix(controls=CONTROL)
    why = "ended after 500 steps with 40 of the 60 tokens of Two: give the control's set more steps, and run "
    for course in (cells.run(matrix), cells.run(matrix)):  # as it ends, and as one that is done
        assert course.failed == {"SA": why + "the matrix again"}
        assert list(course.waits) == ["SA.majority-of-One", "SA.majority-of-Two"]
    del cells.scripts["SA"]
    more = {"SA": {**CONTROL["SA"], "set": {"steps": 900}}}
    assert cells.run(cells.matrix(controls=more)).done == ["SA", "SA.majority-of-One", "SA.majority-of-Two"]


def test_a_folder_that_disappears_costs_its_cells_and_not_the_matrix(cells: Cells) -> None:
    cells.scripts["One"] = f"rm -r {cells.out}; exit 1"
    course = cells.run()
    assert list(course.failed) == ["One", "Two"]
    assert course.failed["Two"].startswith("could not be started: ")


def test_a_run_that_the_guard_stopped_goes_on_under_another_rule(cells: Cells) -> None:
    validated = {"axes": {"workflow": {"One": {"tasks": {"sizes": {"validation": 5}}}}}}

    def state(**settings: Any) -> str:
        cell = cells.matrix(where=[{"when": {"workflow": "One"}, "set": {"evaluation": settings}}], **validated).cells[
            0
        ]
        return MatrixFolder(path=cells.out).state(cell)

    cells.run(cells.matrix(**validated))
    run = cells.out / "One"

    def stopped(how: str, rollbacks: int) -> None:
        cliff = {"stopped": True, "on_cliff": how, "rollbacks": [{"step": 1, "to": 0}] * rollbacks}
        (run / "summary.json").write_text(json.dumps({"steps": 2, "cliff": cliff}))

    stopped("stop", 0)
    assert state(on_cliff="stop") == "done"
    assert state(on_cliff="warn") == "unfinished"
    stopped("rollback", 2)
    assert state(on_cliff="rollback", max_rollbacks=2) == "done"
    assert state(on_cliff="rollback", max_rollbacks=3) == "unfinished"


def test_an_interrupted_matrix_ends_a_process_that_does_not_listen(
    cells: Cells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rolecall.matrix.execute.STOP_S", 0.3)
    pid = cells.folder / "pid"
    cells.scripts["One"] = f"trap '' TERM INT; echo $$ > {pid}.new; mv {pid}.new {pid}; while true; do sleep 0.05; done"

    def interrupt(*_: Any) -> None:
        if pid.exists():
            raise KeyboardInterrupt

    monkeypatch.setattr("rolecall.matrix.execute.Executor._look", interrupted(interrupt))
    with pytest.raises(KeyboardInterrupt):
        cells.run()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert cells.said[-1].startswith("interrupted: waiting until One has ended")


def interrupted(interrupt: Callable[..., None]) -> Callable[..., None]:
    """`Executor._look`, after which Ctrl-C may come."""
    from rolecall.matrix.execute import Executor

    look = Executor._look

    def then(self: Executor, one: Any) -> None:
        look(self, one)
        interrupt()

    return then


def test_another_matrix_in_the_folder_is_refused_by_name(cells: Cells) -> None:
    cells.run()
    with pytest.raises(UsageError, match=r"holds the matrix 'small', and this one is 'other'"):
        cells.run(replace(cells.matrix(), name="other"))
