"""A run is a folder: the resolved configuration, the environment, metrics and episodes, checkpoints, the summary.

Every file is written aside and renamed, so a kill leaves the old file or the new one, never half of either.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from rolecall.config import RunConfig, make_config, read_recipe
from rolecall.errors import ConfigError, UsageError

METRICS_SCHEMA = pa.schema([("step", pa.int64()), ("key", pa.string()), ("value", pa.float64())])
EPISODE_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("episode", pa.string()),
        ("task", pa.string()),
        ("outcome", pa.string()),
        ("answer", pa.string()),
        ("team_score", pa.float64()),
        ("num_turns", pa.int32()),
        ("record", pa.string()),
    ]
)
COMPACT_AT = 64
PACKAGES = ("rolecall", "torch", "transformers", "tokenizers", "peft", "numpy", "reasoning-gym", "math-verify")


class RunFolder:
    """The files of one run under `path`; made by `create`, found again by `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: RunConfig, *, overwrite: bool) -> RunFolder:
        """Make a new run folder; one that exists is an error unless it is a run and `overwrite` says to replace it."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not (path / "config.toml").is_file():
                raise UsageError(f"{str(path)!r} exists and is not a run folder; choose another folder with --run")
            if not overwrite:
                raise UsageError(
                    f"{str(path)!r} already holds a run; go on with it (--resume), replace it (--overwrite), or choose "
                    "another folder with --run"
                )
            shutil.rmtree(path)
        folder = cls(path)
        try:
            for name in ("metrics", "episodes", "checkpoints"):
                (path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"run folder {str(path)!r} cannot be made ({error.strerror}); choose another with --run"
            ) from None
        folder.write_text("config.toml", tomli_w.dumps(plain(config.model_dump())))
        folder.write_json("environment.json", environment())
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an earlier run."""
        if not (path / "config.toml").is_file():
            raise UsageError(f"{str(path)!r} is not a run folder (no config.toml in it); give the folder of a run")
        return cls(path)

    def config(self) -> RunConfig:
        """The resolved configuration of the run."""
        return make_config(read_recipe(self.path / "config.toml"), source=str(self.path / "config.toml"))

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def write_text(self, name: str, text: str) -> None:
        target = self.path / name
        aside = target.with_name(f".{target.name}.tmp")
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, target)

    def write_json(self, name: str, data: Any) -> None:
        self.write_text(name, json.dumps(data, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"run folder {str(self.path)!r} has no {name}; the run has not come that far") from None

    def write_metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Rows of (step, key, value); values that are not numbers are a mistake of ours."""
        columns = {
            "step": [step] * len(values),
            "key": list(values),
            "value": [float(value) for value in values.values()],
        }
        self._write_table("metrics", step, pa.table(columns, schema=METRICS_SCHEMA))

    def write_episodes(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """One row an episode; `record` is the whole episode as JSON."""
        self._write_table("episodes", step, pa.Table.from_pylist([dict(r) for r in rows], schema=EPISODE_SCHEMA))

    def write_evaluation(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """The episodes of an evaluation, as `evaluations/<name>.parquet`, in the columns of `write_episodes`."""
        target = self.path / "evaluations" / f"{name}.parquet"
        target.parent.mkdir(exist_ok=True)
        aside = target.with_name(f".{target.name}.tmp")
        pq.write_table(pa.Table.from_pylist([dict(r) for r in rows], schema=EPISODE_SCHEMA), aside, compression="zstd")
        os.replace(aside, target)

    def read_metrics(self) -> list[tuple[int, str, float]]:
        """All metric rows in order of step."""
        tables = [pq.read_table(path) for path in self._parts("metrics")]
        rows = [row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]
        return sorted(rows, key=lambda row: row[0])

    def forget_after(self, step: int) -> None:
        """Remove metrics and episodes past `step`: the steps that a resumed run does again."""
        for kind in ("metrics", "episodes"):
            for path in self._parts(kind):
                first, last = _span(path)
                if first > step:
                    path.unlink()
                elif last > step:
                    kept = pq.read_table(path, filters=[("step", "<=", step)])
                    self._write_table(kind, first, kept, last=step)
                    path.unlink()

    def _parts(self, kind: str) -> list[Path]:
        """The files of one kind; one whose span lies inside another's is a leftover of a kill while folding."""
        parts = sorted((self.path / kind).glob("[0-9]*.parquet"))
        spans = {part: _span(part) for part in parts}
        return [part for part in parts if not any(_inside(spans[part], spans[other]) for other in parts)]

    def _write_table(self, kind: str, step: int, table: pa.Table, last: int | None = None) -> None:
        target = self.path / kind / f"{step:08d}-{step if last is None else last:08d}.parquet"
        aside = target.with_name(f".{target.name}.tmp")
        pq.write_table(table, aside, compression="zstd")
        os.replace(aside, target)
        parts = self._parts(kind)
        if len(parts) >= COMPACT_AT:
            self._compact(parts)

    def _compact(self, parts: list[Path]) -> None:
        """Fold many small files into one that covers their span; the small ones go once it stands."""
        first, last = _span(parts[0])[0], max(_span(part)[1] for part in parts)
        target = parts[0].with_name(f"{first:08d}-{last:08d}.parquet")
        aside = target.with_name(f".{target.name}.tmp")
        pq.write_table(pa.concat_tables([pq.read_table(part) for part in parts]), aside, compression="zstd")
        os.replace(aside, target)
        for part in parts:
            if part != target:
                part.unlink()


def _span(path: Path) -> tuple[int, int]:
    first, _, last = path.stem.partition("-")
    return int(first), int(last or first)


def _inside(span: tuple[int, int], other: tuple[int, int]) -> bool:
    return span != other and other[0] <= span[0] and span[1] <= other[1]


def plain(value: Any) -> Any:
    """Mappings, lists, numbers and text only; None is left out, since TOML has no word for it."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, str | bool | int | float):
        return value
    if hasattr(value, "__dataclass_fields__"):
        return {
            name: plain(getattr(value, name)) for name in value.__dataclass_fields__ if getattr(value, name) is not None
        }
    raise ConfigError(f"{value!r} cannot stand in a configuration file; wanted text, numbers, lists or tables")


def environment() -> dict[str, Any]:
    """The machine and the versions a run was made with."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": versions,
    }
