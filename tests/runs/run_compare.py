"""What two run folders differ in, but for what measures time; and small runs to compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

from rolecall.learner.checkpoint import best
from rolecall.run_folder import RunFolder
from rolecall.trackers import EVENTS, read_events

TIMES = ("wall_s", "generate_s", "tokens_per_s")


def is_time(key: str) -> bool:
    """Also what graders did: one that was started again has cached nothing yet."""
    return key.startswith(("time/", "graders/")) or key.endswith(("_per_s", "lag_s"))


def differences(one: Path, other: Path) -> list[str]:
    """Every way in which two finished runs differ; [] when one is as good as the other."""
    found = []
    parts = (
        ("names of files", names),
        ("config.toml", lambda path: (path / "config.toml").read_text()),
        ("environment.json", lambda path: json.loads((path / "environment.json").read_text())),
        ("metric keys", lambda path: sorted((step, key) for step, key, _ in RunFolder.open(path).read_metrics())),
        ("metrics", metrics),
        ("episodes", lambda path: rows(path, "episodes")),
        ("evaluation episodes", lambda path: rows(path, "evaluations")),
        ("evaluation_before.json", lambda path: json.loads((path / "evaluation_before.json").read_text())),
        ("evaluation_after.json", lambda path: json.loads((path / "evaluation_after.json").read_text())),
        ("alarms.json", lambda path: json.loads((path / "alarms.json").read_text())),
        ("summary.json", lambda path: without_times(json.loads((path / "summary.json").read_text()))),
        ("points in TensorBoard", points),
        ("best checkpoint", lambda path: best(path / "checkpoints") and best(path / "checkpoints").name),
    )
    for name, read in parts:
        if (a := read(one)) != (b := read(other)):
            found.append(f"{name}: {short(a, b)}")
    for path in sorted((one / "checkpoints").rglob("*")):
        twin = other / path.relative_to(one)
        if path.is_file() and twin.is_file() and not same(path, twin):
            found.append(str(path.relative_to(one)))
    return found


def names(path: Path) -> list[str]:
    """All files, but for the parts that metrics and episodes are cut into, and event files of TensorBoard."""
    cut = ("metrics", "episodes", "tensorboard")
    files = (file.relative_to(path) for file in path.rglob("*") if file.is_file())
    return sorted(str(file) for file in files if file.parts[0] not in cut or file.suffix == ".tmp")


def metrics(path: Path) -> list[tuple[int, str, float]]:
    return [row for row in RunFolder.open(path).read_metrics() if not is_time(row[1])]


def rows(path: Path, kind: str) -> list[dict[str, Any]]:
    """All rows of a kind of file, in order of step."""
    found = [row for file in sorted((path / kind).glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    return sorted(found, key=lambda row: row["step"])


def points(path: Path) -> list[tuple[int, str]]:
    """Step and tag of every point that any reader of the event files sees."""
    files = sorted((path / "tensorboard").glob(EVENTS))
    found = [(event.step, value.tag) for file in files for event in read_events(file) for value in event.summary.value]
    return sorted(found)


def without_times(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: without_times(value) for key, value in data.items() if key not in TIMES}
    return data


def same(one: Path, other: Path) -> bool:
    """Equal bit for bit; what was pickled by content, and a manifest without the hashes of pickles."""
    if one.suffix == ".pt":
        return equal(torch.load(one, weights_only=True), torch.load(other, weights_only=True))
    if one.name in ("manifest.json", "extra.json"):
        a, b = (json.loads(path.read_text()) for path in (one, other))
        return without_times({**a, "files": sorted(a.get("files", []))}) == without_times(
            {**b, "files": sorted(b.get("files", []))}
        )
    if one.name == "adapter_config.json":  # PEFT writes a set in the order of the process's hashes
        a, b = (json.loads(path.read_text()) for path in (one, other))
        return {**a, "target_modules": sorted(a["target_modules"])} == {
            **b,
            "target_modules": sorted(b["target_modules"]),
        }
    return one.read_bytes() == other.read_bytes()


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def short(one: Any, other: Any) -> str:
    """The first place where two values part."""
    if isinstance(one, list) and isinstance(other, list):
        extra = [row for row in one if row not in other][:3], [row for row in other if row not in one][:3]
        return f"{len(one)} and {len(other)} rows; {str(extra)[:600]}"
    return f"{str(one)[:300]} and {str(other)[:300]}"
