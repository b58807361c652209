"""From a matrix file to its cells.

Behaviours locked here: names as in the study; overrides by axis, then `where`, then a control's own; a mistake names
the cell or the value before anything runs; the dry run lists every cell with its state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from rolecall.cli import app
from rolecall.config import overlay
from rolecall.errors import ConfigError, UsageError
from rolecall.matrix import Matrix, load_matrix
from rolecall.matrix.execute import side_by_side
from rolecall.matrix.folder import MatrixFolder
from rolecall.matrix.spec import Limits

RECIPE: dict[str, Any] = {
    "steps": 3,
    "workflow": {"name": "single_agent", "prompts": "tiny", "answer_format": "text"},
    "tasks": {"name": "reasoning_gym", "family": "chain_sum", "size": 100},
    "algorithm": {"name": "workflow_grpo", "n": 4},
}
MATRIX: dict[str, Any] = {
    "name": "two",
    "base": "base.toml",
    "axes": {
        "workflow": {
            "Voting": {"workflow": {"name": "voting"}},
            "OW": {"workflow": {"name": "orchestrator_workers"}, "algorithm": {"merge_copies": ["worker"]}},
        },
        "sharing": {"IP": {"sharing": "isolated"}, "SP": {"sharing": "shared"}},
        "scale": {"0.8M": {"model": {"model": "builtin:tiny"}}},
        "task": {"Sums": {}},
    },
}


@pytest.fixture
def matrix(tmp_path: Path) -> Callable[..., Matrix]:
    """A function that reads the matrix above with changes."""

    def read(**changes: Any) -> Matrix:
        (tmp_path / "base.toml").write_text(tomli_w.dumps(RECIPE))
        (tmp_path / "matrix.toml").write_text(tomli_w.dumps(overlay(MATRIX, changes)))
        return load_matrix(tmp_path / "matrix.toml")

    return read


def names(matrix: Matrix) -> list[str]:
    return [cell.name for cell in matrix.cells]


def test_cells_are_named_by_workflow_sharing_scale_and_task(matrix):
    assert names(matrix()) == ["Voting-IP-0.8M-Sums", "Voting-SP-0.8M-Sums", "OW-IP-0.8M-Sums", "OW-SP-0.8M-Sums"]


def test_algorithm_arm_and_seed_stand_in_the_name_where_there_are_several(matrix):
    one = matrix(axes={"algorithm": {"GRPO": {}}}, seeds=[3])
    assert names(one)[0] == "Voting-IP-0.8M-Sums"
    assert one.cells[0].config.seed == 3
    many = matrix(
        axes={"algorithm": {"GRPO": {}, "DrMAS": {"algorithm": {"name": "dr_mas"}}}, "arm": {"plain": {}, "slow": {}}},
        seeds=[0, 1],
    )
    assert names(many)[0] == "Voting-IP-0.8M-Sums-GRPO-plain-s0"
    assert len(many.cells) == len(set(names(many))) == 32


def test_all_cells_of_one_seed_come_before_those_of_the_next(matrix):
    assert [cell.seed for cell in matrix(seeds=[5, 2]).cells] == [5] * 4 + [2] * 4


def test_a_cell_is_the_recipe_under_the_overrides_of_its_axes(matrix):
    cell = matrix().cells[2]
    assert cell.config.name == cell.name == "OW-IP-0.8M-Sums"
    assert cell.config.sharing == "isolated"
    assert cell.config.workflow.name == "orchestrator_workers"
    assert cell.config.workflow.params == {}, "another component does not inherit the knobs of the recipe's"
    assert cell.config.algorithm.params == {"n": 4, "merge_copies": ["worker"]}


def test_where_overrides_the_cells_that_have_all_of_its_values(matrix):
    found = matrix(where=[{"when": {"workflow": "OW", "sharing": "SP"}, "set": {"steps": 9}}])
    assert [cell.config.steps for cell in found.cells] == [3, 3, 3, 9]


def test_cells_with_all_values_of_a_table_are_left_out(matrix):
    assert names(matrix(leave_out=[{"workflow": "OW", "sharing": "SP"}]))[2:] == ["OW-IP-0.8M-Sums"]


def test_a_value_may_extend_a_recipe(matrix, tmp_path):
    (tmp_path / "games.toml").write_text(tomli_w.dumps({"tasks": {"name": "reasoning_gym", "family": "gcd"}}))
    found = matrix(axes={"task": {"Games": {"extends": "games.toml", "steps": 4}}})
    cell = next(cell for cell in found.cells if cell.axes["task"] == "Games")
    assert (cell.config.tasks.params["family"], cell.config.steps) == ("gcd", 4)


def test_a_control_is_one_cell_a_scale_task_and_seed_with_the_tokens_of_a_team(matrix):
    control = {"set": {"workflow": {"name": "single_agent"}, "steps": 500}, "tokens_of": {"sharing": "SP"}}
    found = matrix(controls={"SA": control}, seeds=[0, 1])
    assert names(found)[8:] == ["SA-0.8M-Sums-s0", "SA-0.8M-Sums-s1"]
    first = found.cells[8]
    assert first.tokens_of == "Voting-SP-0.8M-Sums-s0"
    assert first.teams == tuple(names(found)[:4])
    assert (first.config.workflow.name, first.config.steps) == ("single_agent", 500)


def test_a_control_of_a_cell_that_is_left_out_is_an_error(matrix):
    control = {"set": {"workflow": {"name": "single_agent"}}, "tokens_of": {"sharing": "SP"}}
    with pytest.raises(ConfigError, match=r"control SA-0.8M-Sums is to have the tokens of Voting-SP-0.8M-Sums, which"):
        matrix(controls={"SA": control}, leave_out=[{"sharing": "SP"}])


def test_only_keeps_what_the_kept_controls_are_measured_by(matrix):
    control = {"set": {"workflow": {"name": "single_agent"}}, "tokens_of": {"workflow": "OW", "sharing": "SP"}}
    found = matrix(controls={"SA": control})
    assert names(found.only(("SA-",))) == ["OW-SP-0.8M-Sums", "SA-0.8M-Sums"]
    with pytest.raises(UsageError, match=r"no cell of .* has Debate in its name"):
        found.only(("Debate",))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"axes": {"workflows": {"Voting": {}}}}, "no axis is called 'workflows'; did you mean 'workflow'"),
        ({"where": [{"when": {"workflow": "Votin"}, "set": {}}]}, "has no 'Votin'; did you mean 'Voting'"),
        ({"leave_out": [{"sharing": "PI"}]}, "has no 'PI'; known: IP, SP"),
        ({"where": [{"when": {"arm": "slow"}, "set": {}}]}, "names the axis 'arm', which it lacks"),
        ({"axes": {"task": {"a/b": {}}}}, "'a/b' is no part of a cell's name"),
        ({"axes": {"sharing": {"IP": {"sharring": 1}}}}, "cell Voting-IP-0.8M-Sums: unknown key 'sharring'"),
        ({"axes": {"workflow": {"OW": {"algorithm": {"merge_copies": ["voter"]}}}}}, "cell OW-IP-0.8M-Sums: algorithm"),
        ({"seeds": [1, 1]}, "wanted each once"),
        ({"seed": 1}, "unknown key 'seed'; did you mean 'seeds'"),
        ({"base": "none.toml"}, "none.toml' cannot be read"),
        ({"base": "a\0b.toml"}, "has a character of code 0 in its path"),
        ({"seeds": [True]}, "seeds.0 is True; wanted a number"),
        ({"seeds": ["1"]}, "seeds.0 is '1'; wanted a number"),
        ({"limits": {"jobs": True}}, "limits.jobs is True; wanted a number"),
        ({"seeds": [-1]}, "cell Voting-IP-0.8M-Sums: seed: "),
        ({"leave_out": [{"workflow": "OW"}, {"workflow": "Voting"}]}, "leave_out leaves no cell"),
        ({"leave_out": [{}]}, "leave_out leaves no cell"),
        (
            {"leave_out": [{"workflow": "OW"}], "where": [{"when": {"workflow": "OW"}, "set": {"steps": 9}}]},
            "no cell has all of where's {'workflow': 'OW'}",
        ),
        ({"axes": {"task": {"A": {}, "a": {}}}}, "two cells called 'Voting-IP-0.8M-a'"),
        ({"axes": {"task": {"a" * 99: {}}}}, "letters; wanted at most 100"),
        (
            {"axes": {"sharing": {"IP": {"seed": 4}}}},
            "axes.sharing.IP sets 'seed', which nothing reads: give it in seeds",
        ),
        ({"where": [{"when": {"workflow": "OW"}, "set": {"name": "x"}}]}, "where.0.set sets 'name'"),
        ({"controls": {"SA": {"set": {"token_budget": 9}, "tokens_of": {}}}}, "controls.SA.set sets 'token_budget'"),
        ({"controls": {"OW": {"set": {}, "tokens_of": {}}}}, "'OW' is a control and a value of axis 'workflow'"),
        (
            {"controls": {"SA": {"set": {"tasks": {"sizes": {"test": 0}}}, "tokens_of": {}}}},
            "control SA-0.8M-Sums has no test tasks to answer by majority",
        ),
        ({"name": "../elsewhere"}, "name is '../elsewhere'; wanted up to 100 letters"),
        ({"name": ""}, "name is ''; wanted up to 100 letters"),
        ({"limits": {"memory_per_cell_gib": float("inf")}}, "limits.memory_per_cell_gib: Input should be a finite"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(matrix, changes, words):
    with pytest.raises(ConfigError) as error:
        matrix(**changes)
    assert words in str(error.value)


@pytest.mark.parametrize("name", ["logs", "Matrix.json", "map.html", "map_roles.csv"])
def test_a_cell_does_not_take_the_name_of_a_file_of_its_matrix(matrix, tmp_path, name):
    (tmp_path / "base.toml").write_text(tomli_w.dumps(RECIPE))
    file = tmp_path / "matrix.toml"
    file.write_text(tomli_w.dumps({**MATRIX, "axes": {"workflow": {name: {}}}}))
    with pytest.raises(ConfigError, match=f"a cell cannot be called '{name}', as a file of the matrix"):
        load_matrix(file)


def test_two_cells_whose_values_make_one_name_are_an_error(tmp_path):
    (tmp_path / "base.toml").write_text(tomli_w.dumps(RECIPE))
    file = tmp_path / "matrix.toml"
    axes = {"workflow": {"A-B": {}, "A": {}}, "sharing": {"C": {}, "B-C": {}}}
    file.write_text(tomli_w.dumps({**MATRIX, "axes": axes}))
    with pytest.raises(ConfigError, match="two cells called 'A-B-C'"):
        load_matrix(file)


def test_brackets_without_end_are_no_matrix(tmp_path):
    (tmp_path / "matrix.toml").write_text("a = " + "[" * 20000)
    with pytest.raises(ConfigError, match="is not TOML"):
        load_matrix(tmp_path / "matrix.toml")


def test_the_dry_run_lists_every_cell_as_json(matrix, tmp_path):
    matrix(controls={"SA": {"set": {"workflow": {"name": "single_agent"}}, "tokens_of": {}}})
    out = tmp_path / "out"
    arguments = ["matrix", str(tmp_path / "matrix.toml"), "--out", str(out), "--dry-run"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    listed = json.loads(result.output)
    assert [one["name"] for one in listed if one["kind"] != "majority"][-1] == "SA-0.8M-Sums"
    assert {one["state"] for one in listed} == {"new"}
    assert listed[0]["axes"] == {"workflow": "Voting", "sharing": "IP", "scale": "0.8M", "task": "Sums"}
    assert sum(one["kind"] == "majority" for one in listed) == 4
    assert not out.exists()
    assert "as many tokens as Voting-IP-0.8M-Sums" in CliRunner().invoke(app, arguments).output


def test_the_dry_run_names_a_model_that_is_not_there_once(matrix, tmp_path):
    matrix(axes={"scale": {"0.8M": {"model": {"model": "runs/models/none"}}}})
    arguments = ["matrix", str(tmp_path / "matrix.toml"), "--out", str(tmp_path / "out"), "--dry-run"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert result.output.count("before it can run: ") == 1
    assert "'runs/models/none' is no folder" in result.output
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)


def test_a_recipe_is_told_from_a_matrix(tmp_path: Path) -> None:
    (tmp_path / "demo.toml").write_text(tomli_w.dumps(RECIPE))
    with pytest.raises(ConfigError, match=r"is a recipe and no matrix; train it with: rolecall train .*demo.toml"):
        load_matrix(tmp_path / "demo.toml")


def test_json_without_the_dry_run_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["matrix", str(tmp_path / "none.toml"), "--json"])
    assert isinstance(result.exception, UsageError)
    assert "--json lists the cells of --dry-run" in str(result.exception)


def test_cells_side_by_side_are_what_cores_and_memory_allow(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr("rolecall.matrix.execute.free_memory_gib", lambda: 7.0)
    assert side_by_side(Limits(cores_per_cell=2, memory_per_cell_gib=1.0)) == 4
    assert side_by_side(Limits(cores_per_cell=1, memory_per_cell_gib=2.0)) == 3
    assert side_by_side(Limits(cores_per_cell=16)) == 1
    assert side_by_side(Limits(jobs=5, cores_per_cell=16)) == 5
    monkeypatch.setattr("rolecall.matrix.execute.free_memory_gib", lambda: float("inf"))  # a system that does not say
    assert side_by_side(Limits()) == 8


def test_a_cell_that_was_killed_between_its_summary_and_its_report_is_not_done(
    matrix: Callable[..., Matrix], tmp_path: Path
) -> None:
    cell = matrix().cells[0]
    folder = MatrixFolder(path=tmp_path / "out")
    folder.prepare(cell, token_budget=None)
    assert folder.state(cell) == "unfinished"
    (folder.run(cell.name) / "summary.json").write_text(json.dumps({"steps": cell.config.steps}))
    assert folder.state(cell) == "unfinished"
    (folder.run(cell.name) / "report.html").write_text("<p>")
    assert folder.state(cell) == "done"
