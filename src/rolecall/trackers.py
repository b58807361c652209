"""Trackers show a run's metrics elsewhere: TensorBoard always, Weights & Biases when it is asked for.

The metrics files of the run folder are what counts; a tracker holds a copy. After a resume a tracker goes on under its
id, and every step is in it once.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from rolecall.config import RunConfig
from rolecall.errors import ConfigError, RolecallError, boundary
from rolecall.files import write_aside, writing
from rolecall.run_folder import RunFolder

IDS = "trackers.json"
EVENTS = "events.out.tfevents.*"


class Tracker(Protocol):
    """Takes the metrics of one step after the other."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Trackers:
    """All trackers of a run. One that fails while the run goes on is named once and left out; the run goes on."""

    def __init__(self, trackers: Mapping[str, Tracker], ids: Mapping[str, str], note: Callable[[str], None]) -> None:
        self.trackers, self.ids, self.note = dict(trackers), dict(ids), note

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._each("logging to", lambda tracker: tracker.log(step, values))

    def close(self) -> None:
        self._each("closing", lambda tracker: tracker.close())
        self.trackers = {}

    def _each(self, doing: str, act: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                with boundary(RolecallError, f"{doing} {name}"):
                    act(tracker)
            except RolecallError as error:
                del self.trackers[name]
                self.note(f"{error}; the run goes on without it, its metrics are in the run folder")


def open_trackers(
    config: RunConfig, folder: RunFolder, *, step: int, saved: Mapping[str, str], note: Callable[[str], None]
) -> Trackers:
    """The trackers of a run that stands at `step` (-1: before anything was measured); `saved` are the ids in its
    checkpoint, of which a resumed run reads `trackers.json` only when there is one (a run may have been killed before
    its first checkpoint)."""
    state = dict(folder.read_json(IDS)) if (folder.path / IDS).is_file() else {}
    trackers: dict[str, Tracker] = {}
    with folder.storing(folder.path / "tensorboard"):
        trackers["TensorBoard"] = TensorBoard(folder.path / "tensorboard", step)
    if config.tracking.wandb:
        mine = state.setdefault("wandb", {"id": saved.get("wandb") or secrets.token_hex(4), "logged": -1})
        folder.write_json(IDS, state, "trackers")

        def remember(step: int) -> None:
            mine["logged"] = step
            folder.write_json(IDS, state, "trackers")

        trackers["Weights & Biases"] = WeightsAndBiases(config, folder.path, mine["id"], mine["logged"], remember)
    return Trackers(trackers, {name: one["id"] for name, one in state.items()}, note)


class TensorBoard:
    """Event files for TensorBoard, written as they come: no thread that a full disk could end unseen.

    A resumed run keeps the events up to its step, in a new file that begins with the mark which makes a TensorBoard
    that is open drop what it has read.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(exist_ok=True)
        old = sorted(folder.glob(EVENTS))
        events = [
            Event(wall_time=time.time(), file_version="brain.Event:2"),
            Event(wall_time=time.time(), session_log=SessionLog(status=SessionLog.START)),
        ]
        events += [event for path in old for event in read_events(path) if event.summary.value and event.step <= step]
        path = folder / f"{EVENTS.removesuffix('*')}{time.time_ns()}.rolecall"
        data = b"".join(record(event.SerializeToString()) for event in events)
        write_aside(path, "tensorboard", lambda aside: aside.write_bytes(data))
        for one in old:
            one.unlink()
        self._file = path.open("ab", buffering=0)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        points = [Summary.Value(tag=key, simple_value=value) for key, value in values.items()]
        event = Event(wall_time=time.time(), step=step, summary=Summary(value=points))
        writing("tensorboard")
        self._file.write(record(event.SerializeToString()))

    def close(self) -> None:
        self._file.close()


class WeightsAndBiases:
    """A Weights & Biases run, online or offline as the configuration or `WANDB_MODE` says.

    A step is remembered before it is sent, so none is sent twice; a kill between the two costs the tracker that step.
    """

    def __init__(
        self, config: RunConfig, folder: Path, run_id: str, logged: int, remember: Callable[[int], None]
    ) -> None:
        settings = config.tracking
        try:
            import wandb
        except ImportError:
            raise ConfigError(
                "tracking.wandb = true, and the package is not installed: pip install 'rolecall[wandb]', or set "
                "tracking.wandb = false"
            ) from None
        with boundary(ConfigError, "starting Weights & Biases (tracking.wandb = true)"):
            self._run: Any = wandb.init(
                project=settings.wandb_project,
                name=config.name,
                id=run_id,
                resume="allow",
                dir=str(folder),
                mode=settings.wandb_mode,
                config=config.model_dump(mode="json"),
            )
        self._logged, self._remember = logged, remember

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step <= self._logged:
            return
        self._remember(step)
        self._logged = step
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


def record(data: bytes) -> bytes:
    """One record of an event file: length, its checksum, data, its checksum."""
    from tensorboardX.record_writer import masked_crc32c

    header = struct.pack("<Q", len(data))
    return header + struct.pack("<I", masked_crc32c(header)) + data + struct.pack("<I", masked_crc32c(data))


def read_events(path: Path) -> Iterator[Any]:
    """The events of a file, up to the first that is not whole: a kill may cut the last one."""
    from tensorboardX.proto.event_pb2 import Event

    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        whole = data[at : at + size + 16]
        body = whole[12:-4]
        if len(whole) < size + 16 or record(body) != whole:
            return
        yield Event.FromString(body)
        at += size + 16
