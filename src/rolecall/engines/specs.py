"""What a policy is made of, in words that need no torch: shared by the engines, the learner and the policy table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rolecall.errors import ConfigError, nearest

PolicyKind = Literal["model", "adapter", "frozen"]

BUILTIN_PREFIX = "builtin:"
BUILTIN_ROOT = Path(__file__).resolve().parent.parent / "models"

HUB_ID = re.compile(r"^[\w][\w.-]*(/[\w][\w.-]*)?$")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraSpec:
    """The shape of a LoRA adapter: `y = W x + (alpha / rank) B (A x)` on every linear layer whose last name is in
    `target_modules`; `("all-linear",)` means all linear layers but the LM head.

    >>> LoraSpec(rank=8, alpha=16.0).scaling
    2.0
    """

    rank: int = 16
    alpha: float = 32.0
    target_modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ConfigError(f"lora.rank is {self.rank}; it must be at least 1")
        if not self.target_modules:
            raise ConfigError('lora.target_modules is empty; name the layers to adapt, or use ["all-linear"]')

    @property
    def scaling(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySpec:
    """One policy: a whole `model`, an `adapter` on the base `model`, or a `frozen` one (a model, or a model and a saved
    adapter). `model` is a folder, a hub id, or `builtin:tiny`; `adapter` is a PEFT folder: where an adapter policy
    starts, or what a frozen policy adds to its base.

    >>> PolicySpec(name="solver", kind="adapter", model="builtin:tiny", lora=LoraSpec(rank=8)).trained
    True
    """

    name: str
    kind: PolicyKind
    model: str
    lora: LoraSpec | None = None
    adapter: str | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.kind not in ("model", "adapter", "frozen"):
            raise ConfigError(f"policy {self.name!r} has kind {self.kind!r}; wanted 'model', 'adapter' or 'frozen'")
        if self.kind == "model" and (self.lora is not None or self.adapter is not None):
            raise ConfigError(f"policy {self.name!r} is a whole model but names an adapter; use kind = 'adapter'")
        if self.kind == "adapter" and self.lora is None and self.adapter is None:
            raise ConfigError(f"policy {self.name!r} is an adapter without a lora table and without a saved adapter")

    @property
    def trained(self) -> bool:
        return self.kind != "frozen"


def resolve_model(model: str) -> str:
    """Where a model is: the folder of a built-in or local model, or the hub id as it stands. `ConfigError` when a named
    folder does not exist or holds no model."""
    if model.startswith(BUILTIN_PREFIX):
        name = model.removeprefix(BUILTIN_PREFIX)
        folder = BUILTIN_ROOT / name
        if not (folder / "config.json").is_file():
            shipped = [path.parent.name for path in sorted(BUILTIN_ROOT.glob("*/config.json"))]
            raise ConfigError(f"model {model!r}: rolecall ships no built-in model {name!r}{nearest(name, shipped)}")
        return str(folder)
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"model {model!r} is a folder without config.json; wanted one saved by save_pretrained")
        return str(folder)
    if not HUB_ID.match(model):
        raise ConfigError(f"model {model!r} is no folder and no hub id; wanted a path, 'owner/name' or 'builtin:tiny'")
    return model


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSettings:
    """How the local engine runs. `mode="processes"` starts `workers` processes of `threads_per_worker` threads, each
    with a copy of all weights; `"inline"` runs in a thread of this process. Limits are per worker and base model.

    `deterministic`: one list of requests is one wave, split over the workers by a rule that depends on the list alone,
    and nothing joins it: the same list under the same weights gives the same completions bit for bit. Otherwise a
    request joins the running batch at the next token.
    """

    mode: Literal["processes", "inline"] = "processes"
    workers: int = 2
    threads_per_worker: int = 1
    deterministic: bool = False
    max_batch_rows: int = 256
    max_batch_tokens: int = 1 << 17  # rows times columns in the key-value cache
    prefill_tokens: int = 1 << 13  # rows times columns run through the model at once when requests join
    fast: bool = True  # the quick forward pass where a model has one; False: always the model's own

    def __post_init__(self) -> None:
        if self.mode not in ("processes", "inline"):
            raise ConfigError(f"engine.mode is {self.mode!r}; wanted 'processes' or 'inline'")
        for name in ("workers", "threads_per_worker", "max_batch_rows", "max_batch_tokens", "prefill_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"engine.{name} is {getattr(self, name)}; it must be at least 1")

    @property
    def num_workers(self) -> int:
        return self.workers if self.mode == "processes" else 1
