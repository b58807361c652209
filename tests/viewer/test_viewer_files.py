"""The files of a run as the viewer sees them: which count, what changed, what cannot be read, how the run stands."""

from __future__ import annotations

import json
import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from viewer_runs import METRICS, add_step, finish, make_run, write

from rolecall.errors import UsageError
from rolecall.viewer.arrays import floats, integers, scalar, truths
from rolecall.viewer.metrics import Metrics, alarms, role_names, thinned
from rolecall.viewer.parts import NotThere, step_parts
from rolecall.viewer.runs import Root, RunPath
from rolecall.viewer.serve import open_root


def status(folder):
    run = RunPath(name=folder.name, path=folder)
    return run.status(run.config(), run.json("summary.json"))


def age(folder, seconds):
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (time.time() - seconds,) * 2)


def fold(folder, kind, first, last):
    """What a run does when its files are many: one file over a span, and then the small ones go."""
    parts = sorted((folder / kind).glob("*.parquet"))
    rows = [row for part in parts for row in pq.read_table(part).to_pylist()]
    write(folder / kind / f"{first:08d}-{last:08d}.parquet", rows, pq.read_schema(parts[0]))
    return parts


def test_a_small_file_whose_rows_are_folded_into_a_large_one_is_not_counted_twice(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    fold(run, "metrics", 1, 4)
    assert [part.span for part in step_parts(run / "metrics")] == [(1, 4)]
    metrics = Metrics(run / "metrics")
    metrics.refresh()
    assert metrics.series("reward/team")[0].tolist() == [1, 2, 3, 4]


def test_a_file_that_is_still_being_written_is_not_read(tmp_path):
    run = make_run(tmp_path / "run", steps=1)
    (run / "metrics" / ".00000002-00000002.parquet.tmp").write_bytes(b"PAR1 half of")
    (run / "metrics" / "notes.parquet").write_bytes(b"not ours")
    assert [part.span for part in step_parts(run / "metrics")] == [(1, 1)]


def test_a_new_step_is_read_without_reading_the_old_files_again(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", steps=3)
    metrics = Metrics(run / "metrics")
    metrics.refresh()
    read = []
    from rolecall.viewer import metrics as module

    plain = module.read_columns
    monkeypatch.setattr(module, "read_columns", lambda part, columns: read.append(part.span) or plain(part, columns))
    add_step(run, 4)
    metrics.refresh()
    assert read == [(4, 4)]
    assert metrics.series("reward/team")[0].tolist() == [1, 2, 3, 4]


def test_a_truncated_metrics_file_is_named_and_the_others_are_shown(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    broken = run / "metrics" / "00000002-00000002.parquet"
    broken.write_bytes(broken.read_bytes()[:-200])
    metrics = Metrics(run / "metrics")
    metrics.refresh()
    assert metrics.series("reward/team")[0].tolist() == [1, 3]
    (problem,) = metrics.problems
    assert problem.startswith(
        "metrics/00000002-00000002.parquet cannot be read and is left out; wanted a whole Parquet"
    )


def test_a_step_done_again_after_a_resume_counts_once_with_its_later_value(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    rows = [{"step": step, "key": "reward/team", "value": value} for step, value in [(1, 0.1), (2, 0.2), (2, 0.9)]]
    write(folder / "00000001-00000002.parquet", rows, METRICS)
    metrics = Metrics(folder)
    metrics.refresh()
    assert [column.tolist() for column in metrics.series("reward/team")] == [[1, 2], [0.1, 0.9]]


def test_the_values_of_a_step_are_those_of_that_step_alone(tmp_path):
    run = make_run(tmp_path / "run", steps=2)
    metrics = Metrics(run / "metrics")
    metrics.refresh()
    assert metrics.at(2)["policy/shared/version"] == 2.0
    assert metrics.at(9) == {}


def test_columns_become_arrays_with_what_is_missing_marked():
    table = pa.table({"n": pa.chunked_array([[1, None], [3]], pa.int32()), "x": pa.chunked_array([[0.5], [None, 2.0]])})
    assert integers(table["n"]).tolist() == [1, -1, 3]
    assert integers(table["n"].slice(1)).tolist() == [-1, 3]
    np.testing.assert_equal(floats(table["x"]), [0.5, np.nan, 2.0])
    assert truths(pc.equal(table["n"], scalar(3))).tolist() == [False, False, True]
    names = pa.chunked_array([["a", "ä€", None, ""]])
    assert [truths(pc.equal(names, scalar(name))).tolist().index(True) for name in ("a", "ä€", "")] == [0, 1, 3]
    assert integers(pa.chunked_array([], pa.int64())).tolist() == []
    assert floats(pa.chunked_array([], pa.float64())).tolist() == []


def test_thinning_keeps_both_ends_and_every_spike():
    values = np.zeros(10_000)
    values[4321], values[77] = 5.0, -3.0
    steps, thin = thinned((np.arange(10_000), values), 600)
    assert (steps[0], steps[-1]) == (0, 9999)
    assert len(steps) <= 602
    assert dict(zip(steps, thin, strict=True))[4321] == 5.0
    assert dict(zip(steps, thin, strict=True))[77] == -3.0


def test_a_value_that_is_not_finite_is_a_gap_and_not_a_number():
    assert thinned((np.arange(3), np.array([1.0, np.nan, np.inf])), 600) == ([0, 1, 2], [1.0, None, None])


def test_alarms_have_the_words_of_the_run_and_say_whether_their_kind_still_stands(tmp_path):
    rows = [{"step": step, "key": "alarms/active", "value": float(step >= 2)} for step in (1, 2, 3)]
    rows += [{"step": 2, "key": "alarms/clip_high", "value": 1.0}]
    rows += [{"step": step, "key": "alarms/always_agrees", "value": 2.0} for step in (2, 3)]
    write(tmp_path / "00000001-00000003.parquet", rows, METRICS)
    metrics = Metrics(tmp_path)
    metrics.refresh()
    raised = [
        {"key": key, "subject": who, "step": 2, "seen": "a", "usual": "b", "move": "c", "text": f"{key}, {who}: words"}
        for key, who in (("clip_high", "solver"), ("always_agrees", "verifier"))
    ]
    shown = [{name: one[name] for name in ("key", "subject", "step", "text")} for one in raised]
    assert alarms([*raised, {"of": "another version"}], metrics) == [
        shown[1] | {"last": 3, "stands": True},
        shown[0] | {"last": 2, "stands": False},
    ]
    assert alarms(None, metrics) == []


def test_roles_come_in_the_workflows_order_from_the_summary_else_from_what_is_measured():
    keys = ["behaviour/solver/truncated", "behaviour/verifier/truncated", "reward/corrector/total", "engine/tokens"]
    assert role_names(keys, {}, {}) == ["solver", "verifier", "corrector"]
    assert role_names(keys, {}, {"roles_to_policies": {"b": "x", "a": "x"}}) == ["b", "a"]


def test_a_run_is_running_while_files_come_and_stopped_when_they_do_not(tmp_path):
    run = make_run(tmp_path / "run", steps=3, of=10)
    assert (status(run).state, status(run).step, status(run).steps) == ("running", 3, 10)
    age(run, 600)
    assert status(run).state == "stopped"


def test_a_run_whose_process_is_gone_is_stopped_soon_and_one_whose_process_lives_may_be_silent(tmp_path):
    run = make_run(tmp_path / "run", steps=3, of=10)
    (run / ".lock").write_text(f"{os.getpid()}\n")
    age(run, 600)
    assert status(run).state == "running"
    (run / ".lock").write_text(f"{2**22 - 3}\n")
    age(run, 60)
    assert status(run).state == "stopped"


def test_a_run_is_finished_when_its_summary_covers_the_last_step_and_running_when_it_goes_on(tmp_path):
    run = make_run(tmp_path / "run", steps=3)
    finish(run, 3)
    assert status(run).state == "finished"
    add_step(run, 4)
    assert status(run).state == "running"


def test_runs_are_found_below_the_root_and_never_outside_it(tmp_path):
    make_run(tmp_path / "runs" / "a", steps=1)
    make_run(tmp_path / "runs" / "table" / "b", steps=1)
    make_run(tmp_path / "secret", steps=1)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    root = Root(tmp_path / "runs")
    assert list(root.runs()) == ["a", "table/b"]
    for name in ("../secret", "link", "a/../../secret", str(tmp_path / "secret"), "", "a/metrics"):
        with pytest.raises(NotThere, match="runs there: a, table/b"):
            root.run(name)


def test_a_single_run_can_be_the_root(tmp_path):
    run = make_run(tmp_path / "only", steps=1)
    assert list(Root(run).runs()) == ["only"]


def test_a_configuration_that_cannot_be_read_is_a_problem_and_not_the_end(tmp_path):
    run = make_run(tmp_path / "run", steps=1)
    (run / "config.toml").write_text("steps = = 3")
    (run / "summary.json").write_text('{"steps": ')
    found = RunPath(name="run", path=run)
    assert found.config() == {}
    assert found.json("summary.json") == {}
    assert [problem.split(" ")[0] for problem in found.problems] == ["config.toml", "summary.json"]


def test_a_folder_that_is_not_there_and_a_file_are_refused_with_words(tmp_path):
    with pytest.raises(
        UsageError, match=r"there is no folder .*; give a run folder, or the folder that holds your runs"
    ):
        open_root(tmp_path / "nothing")
    (tmp_path / "file").write_text(json.dumps({}))
    with pytest.raises(UsageError, match="is a file; give a run folder"):
        open_root(tmp_path / "file")
