"""The weights of earlier versions, kept beside a run and loaded into slots of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from rolecall.engines.local import storable
from rolecall.errors import CheckpointError, boundary
from rolecall.learner.learner import Learner


def write_weights(learner: Learner, path: Path) -> None:
    """A policy's own weights as they are now, by the names that `Engine.load` takes."""
    save_file(storable(learner.module.export()), path)


def read_weights(path: Path) -> dict[str, Any]:
    with boundary(CheckpointError, f"reading the earlier version {str(path)!r}"):
        return dict(load_file(str(path)))
