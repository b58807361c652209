"""The files of a run folder: how they are cut, and what a failed start leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rolecall.run_folder as run_folder
from rolecall.config import RunConfig
from rolecall.run_folder import RunFolder

Small = Callable[..., RunConfig]


def test_folded_episodes_are_cut_into_groups_that_a_reader_opens_one_at_a_time(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "COMPACT_AT", 2)
    folder = RunFolder.create(tmp_path / "r", small(), overwrite=False)
    for step in (1, 2, 3):
        folder.write_episodes(step, [{"step": step, "episode": f"e{step}.{i}", "record": "{}"} for i in range(1000)])
        folder.write_metrics(step, {f"a/{i}": 0.0 for i in range(1000)})
    folder.forget_after(2)
    folder.close()
    (episodes,) = (tmp_path / "r" / "episodes").glob("*.parquet")
    (metrics,) = (tmp_path / "r" / "metrics").glob("*.parquet")
    found = pq.read_metadata(episodes)
    assert [found.row_group(group).num_rows for group in range(found.num_row_groups)] == [1024, 976]
    assert pq.read_metadata(metrics).num_row_groups == 1
