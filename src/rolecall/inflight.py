"""`--keep-inflight`: the calls of episodes in flight, recorded as they come, so that a resumed run goes on with them.

    <run>/inflight/00000007.jsonl    one line a call or effect of step 7: episode, kind, record

A file stays until a checkpoint holds its step. A step whose calls are all recorded is done again at no engine cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from rolecall.errors import WriteError
from rolecall.files import write_aside, writing
from rolecall.rollout.samplers import EpisodePlan
from rolecall.rollout.serial import from_dict, to_dict
from rolecall.rollout.transcript import CallRecord, EffectRecord, Transcript
from rolecall.run_folder import RunFolder


class InFlight:
    """The journal of a run. `record` is the `journal` of its collector."""

    def __init__(self, folder: RunFolder) -> None:
        self.run_folder, self.folder = folder, folder.path / "inflight"
        self._file: IO[bytes] | None = None
        self._failed: OSError | None = None

    def begin(self, step: int, blanks: Iterable[Transcript], version: Callable[[str], int]) -> dict[str, Transcript]:
        """Open the journal of a step; returns what it holds of the episodes `blanks`, by id.

        A call that was sampled under another version than its policy has now cannot be gone on with: its whole
        episode is left out, and sampled again.
        """
        path = self._path(step)
        with self.run_folder.storing(path):
            self.folder.mkdir(exist_ok=True)
            lines = read_lines(path) if path.is_file() else []
            stale = {line["episode"] for line in lines if not _is_current(line, version)}
            kept = [line for line in lines if line["episode"] not in stale]
            if path.is_file():
                text = b"".join(map(_encode, kept))
                write_aside(path, "inflight", lambda aside: aside.write_bytes(text))
            self._file = path.open("ab", buffering=0)
        recorded = {}
        for blank in blanks:
            mine = [line for line in kept if line["episode"] == blank.id]
            if mine:
                calls = tuple(from_dict(CallRecord, line["record"]) for line in mine if line["kind"] == "call")
                effects = tuple(from_dict(EffectRecord, line["record"]) for line in mine if line["kind"] == "effect")
                recorded[blank.id] = replace(blank, calls=calls, effects=effects)
        return recorded

    def record(self, episode: str, made: CallRecord | EffectRecord) -> None:
        """Write one line. A full disk must not look like a failure of the workflow that waits for this: `end` says."""
        if self._file is None or self._failed is not None:
            return
        kind = "call" if isinstance(made, CallRecord) else "effect"
        try:
            writing("inflight")
            self._file.write(_encode({"episode": episode, "kind": kind, "record": to_dict(made)}))
        except OSError as error:
            self._failed = error

    def end(self, step: int) -> None:
        """Close the journal of a step whose episodes have ended; `WriteError` when a line could not be written."""
        if self._file is not None:
            self._file.close()
            self._file = None
        failed, self._failed = self._failed, None
        if failed is not None:
            with self.run_folder.storing(self._path(step)):
                raise failed

    def forget(self, up_to: int | None = None) -> None:
        """Remove the journals of the steps up to `up_to`, which a checkpoint holds; of all steps without it."""
        for path in self.folder.glob("*.jsonl"):
            if up_to is None or int(path.stem) <= up_to:
                path.unlink()

    def _path(self, step: int) -> Path:
        return self.folder / f"{step:08d}.jsonl"


def blank_transcripts(plans: Sequence[EpisodePlan], *, step: int, run_seed: int, attempts: int) -> list[Transcript]:
    """Every episode that a step may start, without records."""
    return [
        Transcript(task=plan.task, index=plan.index, step=step, attempt=attempt, run_seed=run_seed)
        for plan in plans
        for attempt in range(attempts)
    ]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal; a kill may cut the last one."""
    *whole, _ = path.read_bytes().split(b"\n")
    try:
        return [json.loads(line) for line in whole]
    except ValueError as error:
        raise WriteError(
            f"{str(path)!r} is damaged ({error}); remove it, and --resume samples the step's episodes again"
        ) from None


def _encode(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _is_current(line: Mapping[str, Any], version: Callable[[str], int]) -> bool:
    turn = line["record"].get("turn")
    return turn is None or all(one == version(turn["policy"]) for one in turn["completion"]["versions"])
