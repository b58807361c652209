"""A run is a folder: the resolved configuration, the environment, metrics and episodes, checkpoints, the summary.

Every file is written aside and renamed, so a kill leaves the old file or the new one, never half of either. A file
that cannot be written is a `WriteError` that says what is kept and how to go on.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from rolecall.config import RunConfig, make_config, read_recipe
from rolecall.errors import CheckpointError, ConfigError, UsageError, WriteError
from rolecall.files import hold, write_aside, writing

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
ROW_GROUP = {"metrics": 1 << 20, "episodes": 1024}
"""Rows a group: metrics are read whole, and of the episodes a reader opens one at a time, with the group around it."""
ENDS = ("summary.json", "evaluation_after.json", "evaluations/after.parquet", "report.html")
"""What the end of a run writes: it goes when the run goes on."""
LOCK = ".lock"
ALARMS = "alarms.json"
PACKAGES = ("rolecall", "torch", "transformers", "tokenizers", "peft", "numpy", "reasoning-gym", "math-verify")


class RunFolder:
    """The files of one run under `path`; made by `create`, gone on with by `reopen`, read by `open`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()  # a workflow may change the working directory
        self._lock: IO[str] | None = None

    @classmethod
    def create(cls, path: Path, config: RunConfig, *, overwrite: bool) -> RunFolder:
        """Make a new run folder; one that exists is an error unless it is a run and `overwrite` says to replace it, or
        it is left from a start that failed before anything was measured."""
        try:
            there = _contents(path)
        except OSError as error:
            raise UsageError(
                f"run folder {str(path)[:80]!r} cannot be read ({error.strerror}); choose another with --run"
            ) from None
        if there and not (path / "config.toml").is_file():
            raise UsageError(f"{str(path)!r} exists and is not a run folder; choose another folder with --run")
        if holds_steps(path) and not overwrite:
            raise UsageError(
                f"{str(path)!r} already holds a run; go on with it (--resume), replace it (--overwrite), or choose "
                "another folder with --run"
            )
        folder = cls(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder.claim()
        except OSError as error:
            raise UsageError(
                f"run folder {str(path)!r} cannot be made ({error.strerror}); choose another with --run"
            ) from None
        with folder._closed_on_error():
            for old in there:  # all but the configuration, which keeps it a run folder until it is replaced
                if old.name != "config.toml":
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
            folder.write_config(config)
            folder.write_json("environment.json", environment(), "environment")
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of an earlier run, to read."""
        if not (path / "config.toml").is_file():
            raise UsageError(f"{str(path)!r} is not a run folder (no config.toml in it); give the folder of a run")
        return cls(path)

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """The folder of an earlier run, to go on with: no other process writes to it, and leftovers are gone."""
        folder = cls.open(path)
        folder.claim()
        with folder._closed_on_error():
            for leftover in [*path.glob(".*.tmp"), *path.glob("*/.*.tmp")]:
                leftover.unlink()
            if not (path / "environment.json").is_file():
                folder.write_json("environment.json", environment(), "environment")
        return folder

    def claim(self) -> None:
        """Hold the folder for this process until it ends or calls `close`; `UsageError` when another one does."""
        self._lock = (self.path / LOCK).open("a+", encoding="utf-8")
        held = hold(self._lock)
        if held is False:
            self._lock.seek(0)
            owner = self._lock.read().strip()
            self.close()
            raise UsageError(
                f"another process ({owner or 'unknown'}) is writing to run folder {str(self.path)!r}; wait until it "
                "has ended, or end it"
            )
        if held is None:
            return
        self._lock.truncate(0)
        self._lock.write(f"{os.getpid()}\n")
        self._lock.flush()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def storing(self, what: Path) -> Iterator[None]:
        """A file that cannot be written is an error that names it, says what is kept, and what to do."""
        try:
            yield
        except (OSError, CheckpointError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            raise WriteError(f"{str(what)!r} could not be written ({reason}); {self._kept()}") from error

    def _kept(self) -> str:
        """What a run that stops now keeps, and how to go on."""
        if not (self.path / "config.toml").is_file():
            return "nothing is kept; make room or give access, then start the run again"
        saved = sorted(path.name for path in self.checkpoints.glob("step-*"))
        state = f"kept is all up to checkpoint {saved[-1]}" if saved else "there is no checkpoint yet"
        return f"{state}. Make room or give access, then go on with: rolecall train --resume --run {self.path}"

    def write(self, name: str, point: str, write: Callable[[Path], object]) -> None:
        """Write one file aside and rename it; `point` names the place for tests that kill or fill the disk."""
        target = self.path / name
        with self.storing(target):
            target.parent.mkdir(exist_ok=True)
            write_aside(target, point, write)

    def write_config(self, config: RunConfig) -> None:
        """The resolved configuration; one that is there already is left alone when it says the same."""
        text = tomli_w.dumps(plain(config.model_dump()))
        file = self.path / "config.toml"
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            self.write("config.toml", "config", lambda path: path.write_text(text, encoding="utf-8"))

    def config(self) -> RunConfig:
        """The resolved configuration of the run."""
        return make_config(read_recipe(self.path / "config.toml"), source=str(self.path / "config.toml"))

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def write_json(self, name: str, data: Any, point: str) -> None:
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        self.write(name, point, lambda path: path.write_text(text, encoding="utf-8"))

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
        table = pa.Table.from_pylist([dict(r) for r in rows], schema=EPISODE_SCHEMA)
        self._write_parquet(f"evaluations/{name}.parquet", "evaluation/episodes", table, ROW_GROUP["episodes"])

    def write_alarms(self, alarms: Iterable[Mapping[str, Any]]) -> None:
        """Every alarm raised so far (`Alarm.to_dict`), in `alarms.json`, oldest first."""
        found = {"alarms": list(alarms)}
        if not (self.path / ALARMS).is_file() or self.read_json(ALARMS) != found:
            self.write_json(ALARMS, found, "alarms")

    def read_metrics(self) -> list[tuple[int, str, float]]:
        """All metric rows in order of step."""
        tables = [pq.read_table(path) for path in self._parts("metrics")]
        rows = [row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]
        return sorted(rows, key=lambda row: row[0])

    def forget_after(self, step: int) -> None:
        """Remove metrics, episodes and alarms past `step`: the steps that a resumed run does again."""
        for kind in ("metrics", "episodes"):
            parts = self._parts(kind)
            self._remove_but(kind, parts)
            for path in parts:
                first, last = _span(path)
                if first <= step < last:
                    kept = pq.read_table(path, filters=[("step", "<=", step)])
                    self._write_parquet(f"{kind}/{first:08d}-{step:08d}.parquet", "forget", kept, ROW_GROUP[kind])
                if last > step:
                    path.unlink()
        if (self.path / ALARMS).is_file():
            self.write_alarms(alarm for alarm in self.read_json(ALARMS)["alarms"] if alarm["step"] <= step)

    def forget_ends(self) -> None:
        """Remove what the end of a run has written: the run goes on."""
        for name in ENDS:
            (self.path / name).unlink(missing_ok=True)

    def _parts(self, kind: str) -> list[Path]:
        """The files of one kind; one whose span lies inside another's is a leftover of a kill while folding."""
        parts = sorted((self.path / kind).glob("[0-9]*.parquet"))
        spans = {part: _span(part) for part in parts}
        return [part for part in parts if not any(_inside(spans[part], spans[other]) for other in parts)]

    def _write_table(self, kind: str, step: int, table: pa.Table) -> None:
        self._write_parquet(f"{kind}/{step:08d}-{step:08d}.parquet", kind, table, ROW_GROUP[kind])
        parts = self._parts(kind)
        if len(parts) >= COMPACT_AT:
            self._compact(kind, parts)

    def _write_parquet(self, name: str, point: str, table: pa.Table, row_group: int) -> None:
        self.write(name, point, lambda path: pq.write_table(table, path, compression="zstd", row_group_size=row_group))

    def _compact(self, kind: str, parts: list[Path]) -> None:
        """Fold many small files into one that covers their span; the small ones go once it stands."""
        first, last = _span(parts[0])[0], max(_span(part)[1] for part in parts)
        name = f"{kind}/{first:08d}-{last:08d}.parquet"
        table = pa.concat_tables([pq.read_table(part) for part in parts])
        self._write_parquet(name, "compact", table, ROW_GROUP[kind])
        self._remove_but(kind, [self.path / name])

    def _remove_but(self, kind: str, parts: list[Path]) -> None:
        """Remove the files of one kind that are folded into `parts`."""
        for path in sorted((self.path / kind).glob("[0-9]*.parquet")):
            if path not in parts:
                with self.storing(path):
                    writing("compact/delete")
                    path.unlink()


def _contents(path: Path) -> list[Path]:
    """What is at a path where a run is to be; a first write that was killed leaves nothing that counts."""
    if not path.is_dir():
        return [path] if path.exists() else []
    return [one for one in path.iterdir() if one.name not in (LOCK, ".config.toml.tmp")]


def holds_steps(path: Path) -> bool:
    """Whether a run folder holds anything that took work: an evaluation, a step, calls in flight."""
    tables = [f"{kind}/*.parquet" for kind in ("metrics", "episodes", "evaluations")]
    kinds = [*tables, "evaluation_*.json", "checkpoints/step-*", "inflight/*.jsonl"]
    return any(next(path.glob(kind), None) is not None for kind in kinds)


def _span(path: Path) -> tuple[int, int]:
    first, _, last = path.stem.partition("-")
    return int(first), int(last or first)


def _inside(span: tuple[int, int], other: tuple[int, int]) -> bool:
    return span != other and other[0] <= span[0] and span[1] <= other[1]


def nothing_left(config: RunConfig, summary: Mapping[str, Any]) -> bool:
    """Whether a summary is that of a whole run under this configuration: all steps, the token budget, or an end that
    the cliff guard would make again. What a broken file leaves out is not done."""
    tokens, cliff = (one if isinstance(one := summary.get(name), dict) else {} for name in ("tokens", "cliff"))
    generated, steps = (n if isinstance(n, int) else -1 for n in (tokens.get("generated"), summary.get("steps")))
    spent = config.token_budget is not None and generated >= config.token_budget
    how, again = config.evaluation.on_cliff, config.evaluation.max_rollbacks
    stopped = bool(cliff.get("stopped")) and cliff.get("on_cliff") == how
    if how == "rollback":
        stopped = stopped and len(cliff.get("rollbacks") or ()) >= again
    return spent or stopped or steps >= config.steps


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
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "packages": versions,
    }


def environment_changes(folder: RunFolder) -> list[str]:
    """What is not as it was when the run began, in words; another machine or version may round differently."""
    then, now = folder.read_json("environment.json"), environment()
    then, now = ({**side, **side["packages"]} for side in (then, now))
    names = [name for name in now if name not in ("packages", "platform")]
    return [
        f"{name} was {then.get(name)} when the run began and is {now[name]} now"
        for name in names
        if then.get(name) != now[name]
    ]
