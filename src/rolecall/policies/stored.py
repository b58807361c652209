"""The weights of one policy in a checkpoint, as engines load them: no learner, no optimiser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from safetensors.torch import load_file

from rolecall.errors import CheckpointError, EngineError, boundary, nearest
from rolecall.learner.checkpoint import read_manifest
from rolecall.learner.modules import PEFT_PREFIX


@contextmanager
def fitting(checkpoint: Path, policy: str, model: str) -> Iterator[None]:
    """An engine that refuses weights here refuses those of another model: `CheckpointError` says so."""
    try:
        yield
    except EngineError as error:
        raise CheckpointError(
            f"the weights of {policy!r} in {str(checkpoint)!r} are not those of the model {model!r} ({error}); name "
            "the model that they were trained on"
        ) from error


def stored_weights(checkpoint: Path, policy: str) -> tuple[int, dict[str, Any]]:
    """The version of `policy` in a checkpoint, and its tensors by the names that `Engine.load` takes."""
    saved = read_manifest(checkpoint)["policies"]
    if policy not in saved:
        raise CheckpointError(f"checkpoint {str(checkpoint)!r} has no policy {policy!r}{nearest(policy, saved)}")
    files = sorted((checkpoint / "policies" / quote(policy, safe="") / "weights").glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"checkpoint {str(checkpoint)!r} holds no weights of {policy!r}; it is damaged")
    tensors: dict[str, Any] = {}
    for file in files:
        with boundary(CheckpointError, f"reading {str(file)!r}"):
            tensors |= load_file(str(file))
    if all(name.startswith(PEFT_PREFIX) for name in tensors):
        tensors = {name.removeprefix(PEFT_PREFIX).removesuffix(".weight"): one for name, one in tensors.items()}
    return int(saved[policy]["version"]), tensors
