"""Checkpoints: all policies of a run under one manifest, whole or not at all.

    <root>/step-00000012/manifest.json               written last; names every file with its size and hash
    <root>/step-00000012/policies/<policy>/weights/  a folder for Transformers, or PEFT for an adapter
    <root>/step-00000012/policies/<policy>/learner.pt
    <root>/step-00000012/rng.pt, extra.json
    <root>/best.json                                 names the best checkpoint, which is never pruned

A checkpoint is written to a folder aside, flushed to disk and renamed; older ones are pruned after that.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch

from rolecall.errors import CheckpointError, boundary, nearest
from rolecall.files import flush, write_aside, write_flushed, writing
from rolecall.learner.learner import Learner

FORMAT = 1
MANIFEST = "manifest.json"
BEST = "best.json"
ASIDE = ".writing-"
FROM_EARLIER = "remove its folder, and --resume goes on from the checkpoint before it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprints:
    """What a checkpoint belongs to: another configuration or task set must not resume from it."""

    config: str
    tasks: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint that was loaded: its step, each policy's version, and the extra state that was saved with it."""

    path: Path
    step: int
    versions: Mapping[str, int]
    extra: Mapping[str, Any] = field(default_factory=dict)


def save_checkpoint(
    root: str | Path,
    learners: Mapping[str, Learner],
    step: int,
    fingerprints: Fingerprints,
    *,
    extra: Mapping[str, Any] | None = None,
    keep_last: int = 2,
    best: bool = False,
) -> Path:
    """Save every trained policy after `step`, with `extra` (plain JSON: baselines, data cursor, ...), and prune.

    The newest `keep_last` and the best stay. Whatever fails on the way leaves all earlier checkpoints as they were.
    """
    root = Path(root)
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    final = _free_name(root, step)
    aside = root / f"{ASIDE}{final.name}"
    with boundary(CheckpointError, f"saving the checkpoint of step {step} to {str(final)!r}"), _swept(root):
        for name, learner in learners.items():
            _save_policy(aside / "policies" / quote(name, safe=""), learner, step)
        torch.save(_rng_state(), aside / "rng.pt")
        writing("checkpoint/rng")
        (aside / "extra.json").write_text(json.dumps(extra or {}), encoding="utf-8")
        writing("checkpoint/extra")
        manifest = {
            "format": FORMAT,
            "step": step,
            "config": fingerprints.config,
            "tasks": fingerprints.tasks,
            "policies": {name: {"version": learner.version} for name, learner in learners.items()},
            "files": {str(path.relative_to(aside)): _stamp(path) for path in _files(aside)},
        }
        write_flushed(aside / MANIFEST, json.dumps(manifest, indent=1))
        writing("checkpoint/manifest")
        _flush_tree(aside)
        writing("checkpoint/rename")
        aside.rename(final)
        flush(root)
    if best:
        mark_best(root, final)
    _prune(root, keep_last)
    return final


def tidy(root: str | Path, keep_last: int) -> None:
    """What the end of `save_checkpoint` does, for a run that was killed before it: sweep and prune."""
    _sweep(Path(root))
    _prune(Path(root), keep_last)


def mark_best(root: str | Path, checkpoint: Path) -> None:
    """Make a checkpoint the best one: it is not pruned until another is."""
    path = Path(root) / BEST
    text = json.dumps({"checkpoint": checkpoint.name})
    write_aside(path, "checkpoint/best", lambda aside: aside.write_text(text, encoding="utf-8"))
    flush(path.parent)


def latest(root: str | Path) -> Path | None:
    """The newest checkpoint under a root, by step; None when there is none. Folders half written do not count."""
    found = _checkpoints(Path(root))
    return found[-1] if found else None


def of_step(root: str | Path, step: int) -> Path | None:
    """The checkpoint of a step, the one saved last; None when it is not kept."""
    found = [path for path in _checkpoints(Path(root)) if _place(path)[0] == step]
    return found[-1] if found else None


def best(root: str | Path) -> Path | None:
    """The checkpoint that `mark_best` named last, or None."""
    path = Path(root) / BEST
    if not path.is_file():
        return None
    return Path(root) / str(json.loads(path.read_text(encoding="utf-8"))["checkpoint"])


def load_latest(
    root: str | Path, learners: Mapping[str, Learner], fingerprints: Fingerprints | None
) -> Checkpoint | None:
    """`load_checkpoint` of the newest; None when the run has none yet."""
    path = latest(root)
    return None if path is None else load_checkpoint(path, learners, fingerprints)


def load_checkpoint(
    path: str | Path, learners: Mapping[str, Learner], fingerprints: Fingerprints | None, *, rng: bool = True
) -> Checkpoint:
    """Put weights, optimisers, schedules, versions and (with `rng`) random state back as they were saved.

    Everything is checked before anything is touched; `CheckpointError` says what does not fit: half written, another
    configuration or task set, other policies, policies at different steps. `fingerprints=None` asks for no match.
    """
    path = Path(path)
    manifest = read_manifest(path)
    _check_fingerprints(path, manifest, fingerprints)
    _check_policies(path, manifest, learners)
    states: dict[str, Any] = {}
    for name in learners:
        states[name] = torch.load(_folder(path, name) / "learner.pt", weights_only=True, map_location="cpu")
    steps = {name: state["step"] for name, state in states.items()}
    if any(step != manifest["step"] for step in steps.values()):
        raise CheckpointError(
            f"checkpoint {str(path)!r} is of step {manifest['step']}, but its policies are at {steps}; policies of one "
            "run must resume from the same step: use a checkpoint that was not put together by hand"
        )
    _check_files(path, manifest)
    for name, learner in learners.items():
        with boundary(CheckpointError, f"loading policy {name!r} from {str(path)!r}"):
            learner.module.load(_folder(path, name) / "weights")
            learner.load_state_dict(states[name]["learner"])
    if rng:
        _set_rng_state(torch.load(path / "rng.pt", weights_only=True, map_location="cpu"))
    return Checkpoint(
        path=path,
        step=manifest["step"],
        versions={name: learner.version for name, learner in learners.items()},
        extra=json.loads((path / "extra.json").read_text(encoding="utf-8")),
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint; `CheckpointError` when there is none, or one of another format."""
    file = path / MANIFEST
    if not file.is_file():
        raise CheckpointError(
            f"checkpoint {str(path)!r} has no {MANIFEST}: it is half written, or none; {FROM_EARLIER}"
        )
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise CheckpointError(f"{str(file)!r} is not JSON: it is half written; {FROM_EARLIER}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{str(file)!r} is not a manifest of format {FORMAT}; it is of another version of rolecall"
        )
    return manifest


def _check_fingerprints(path: Path, manifest: Mapping[str, Any], wanted: Fingerprints | None) -> None:
    if wanted is None:
        return
    for what, key, value in (("configuration", "config", wanted.config), ("task set", "tasks", wanted.tasks)):
        if manifest[key] != value:
            raise CheckpointError(
                f"checkpoint {str(path)!r} was made under another {what} (fingerprint {manifest[key]!r}, this run has "
                f"{value!r}); resume with the one it was made with, or start a new run"
            )


def _check_policies(path: Path, manifest: Mapping[str, Any], learners: Mapping[str, Learner]) -> None:
    saved = manifest["policies"]
    for name in learners:
        if name not in saved:
            raise CheckpointError(f"checkpoint {str(path)!r} has no policy {name!r}{nearest(name, saved)}")
    extra = sorted(saved.keys() - learners.keys())
    if extra:
        raise CheckpointError(f"checkpoint {str(path)!r} holds the policy {extra[0]!r}, which this run does not train")
    for name in learners:
        for part in ("learner.pt", "weights"):
            if not (_folder(path, name) / part).exists():
                raise CheckpointError(f"checkpoint {str(path)!r}: {part} of policy {name!r} is missing; it is damaged")


def _check_files(path: Path, manifest: Mapping[str, Any]) -> None:
    for relative, stamp in manifest["files"].items():
        file = path / relative
        if not file.is_file() or _stamp(file) != stamp:
            state = "is missing" if not file.is_file() else "is not as it was written"
            raise CheckpointError(f"checkpoint {str(path)!r}: {relative} {state}; {FROM_EARLIER}")


def _save_policy(folder: Path, learner: Learner, step: int) -> None:
    (folder / "weights").mkdir(parents=True)
    learner.module.save(folder / "weights")
    writing("checkpoint/weights")
    torch.save({"step": step, "learner": learner.state_dict()}, folder / "learner.pt")
    writing("checkpoint/learner")


def _folder(path: Path, policy: str) -> Path:
    return path / "policies" / quote(policy, safe="")


def seed_random(seed: int) -> None:
    """Begin all random state that a checkpoint holds from `seed`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _rng_state() -> dict[str, Any]:
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": (
            str(kind),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(gauss),
        ),
    }


def _set_rng_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))


def _checkpoints(root: Path) -> list[Path]:
    """Complete checkpoints in order of step; of one step, the one saved last comes last."""
    found = [path for path in root.glob("step-*") if (path / MANIFEST).is_file()]
    return sorted(found, key=_place)


def _place(path: Path) -> list[int]:
    return [int(part) for part in path.name.removeprefix("step-").split(".")]


def _free_name(root: Path, step: int) -> Path:
    """`step-00000012`, or `step-00000012.1` and so on when a resumed run saves a step again."""
    path, number = root / f"step-{step:08d}", 0
    while path.exists():
        number += 1
        path = root / f"step-{step:08d}.{number}"
    return path


def _prune(root: Path, keep_last: int) -> None:
    kept = best(root)
    for path in _checkpoints(root)[: -max(keep_last, 1)]:
        if path != kept:
            doomed = path.with_name(f"{ASIDE}{path.name}")
            writing("checkpoint/prune")
            path.rename(doomed)  # so that a kill while deleting leaves no damaged checkpoint
            writing("checkpoint/prune/delete")
            shutil.rmtree(doomed)


def _sweep(root: Path) -> None:
    """Remove what a kill left half written."""
    for path in root.glob(f"{ASIDE}*"):
        shutil.rmtree(path)


@contextmanager
def _swept(root: Path) -> Iterator[None]:
    """Whatever fails in here leaves nothing half written: a full disk gets its room back."""
    try:
        yield
    except BaseException:
        _sweep(root)
        raise


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _stamp(path: Path) -> dict[str, Any]:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return {"bytes": path.stat().st_size, "blake2b": digest.hexdigest()}


def _flush_tree(folder: Path) -> None:
    for path in [*sorted(folder.rglob("*")), folder]:
        flush(path)
