"""Several LoRA adapters over one base in one batch: linear layers that add each row's own low-rank part.

The adapters of a layer are laid side by side: `A` is [n * rank, in], `B` is [out, n * rank], and a row's gate
[n * rank] holds its adapter's scaling in its own block and zero elsewhere, so one product serves rows of every adapter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from rolecall.engines.specs import LoraSpec
from rolecall.errors import ConfigError

ALL_LINEAR = "all-linear"


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterSlot:
    """One adapter of a base: the columns [start, start + rank) of every patched layer."""

    policy: str
    spec: LoraSpec
    start: int

    @property
    def stop(self) -> int:
        return self.start + self.spec.rank


class LoraGate:
    """What the patched layers of one base share: the gate of the rows in the forward pass that runs now."""

    def __init__(self) -> None:
        self.rows_BR: torch.Tensor | None = None  # None: no row uses an adapter


class LoraLinear(nn.Linear):
    """A linear layer with the weights of another, plus the gated adapters; its `state_dict` is that of the original."""

    def __init__(self, base: nn.Linear, gate: LoraGate, width: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias = base.weight, base.bias
        self.gate = gate
        self.lora_A = base.weight.new_zeros(width, base.in_features).requires_grad_(False)
        self.lora_B = base.weight.new_zeros(base.out_features, width).requires_grad_(False)

    def adapted(self, x: torch.Tensor) -> torch.Tensor:
        """The adapters' part alone, for [B, T, in] or [B, in] with the gate set."""
        gate = self.gate.rows_BR
        assert gate is not None
        if x.dim() == 3:
            gate = gate[:, None]
        return F.linear(F.linear(x, self.lora_A) * gate, self.lora_B)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight, self.bias)
        return y if self.gate.rows_BR is None else y + self.adapted(x)


def target_names(model: Any, spec: LoraSpec, base: str) -> tuple[str, ...]:
    """Paths of the linear layers that `spec` adapts, in the model's order; `ConfigError`, with the name of the `base`
    model, when one names nothing."""
    head = model.get_output_embeddings()
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head]
    if spec.target_modules == (ALL_LINEAR,):
        return tuple(linear)
    found: set[str] = set()
    for target in spec.target_modules:
        hits = {name for name in linear if name == target or name.endswith(f".{target}")}
        if not hits:
            last = sorted({name.rsplit(".", 1)[-1] for name in linear})
            raise ConfigError(
                f"lora target {target!r} names no linear layer of the base model {base!r}; it has {', '.join(last)}"
            )
        found |= hits
    return tuple(name for name in linear if name in found)


class AdapterBank:
    """The adapters of one base model, and the patched layers that hold them. `base` is the model's name, for errors."""

    def __init__(self, model: Any, adapters: Sequence[tuple[str, LoraSpec]], base: str) -> None:
        self.gate = LoraGate()
        self.slots: dict[str, AdapterSlot] = {}
        self.targets: dict[str, tuple[str, ...]] = {}
        self.layers: dict[str, LoraLinear] = {}
        for policy, spec in adapters:
            self.targets[policy] = target_names(model, spec, base)
            self.slots[policy] = AdapterSlot(policy=policy, spec=spec, start=self.width)
        for name in dict.fromkeys(name for names in self.targets.values() for name in names):
            parent, _, last = name.rpartition(".")
            layer = LoraLinear(model.get_submodule(name), self.gate, self.width)
            setattr(model.get_submodule(parent), last, layer)
            self.layers[name] = layer
        some = next(model.parameters())
        self.gates_NR = torch.zeros(len(adapters) + 1, self.width, dtype=some.dtype, device=some.device)
        self.index = {None: 0} | {policy: number for number, (policy, _) in enumerate(adapters, start=1)}
        for policy, slot in self.slots.items():
            self.gates_NR[self.index[policy], slot.start : slot.stop] = slot.spec.scaling

    @property
    def width(self) -> int:
        return sum(slot.spec.rank for slot in self.slots.values())

    def activate(self, rows: torch.Tensor | None) -> None:
        """Set the gate for a forward pass whose rows use the adapters numbered `rows` [B] (None: the base alone)."""
        self.gate.rows_BR = None if rows is None or not self.slots else self.gates_NR[rows]

    def shapes(self, policy: str) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the tensors that `load` wants for an adapter."""
        rank = self.slots[policy].spec.rank
        return {
            f"{name}.lora_{letter}": (rank, self.layers[name].in_features)
            if letter == "A"
            else (self.layers[name].out_features, rank)
            for name in self.targets[policy]
            for letter in "AB"
        }

    @torch.no_grad()
    def load(self, policy: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy tensors that `shapes` describes into the adapter's block; names and shapes were checked before."""
        slot = self.slots[policy]
        for name in self.targets[policy]:
            layer = self.layers[name]
            layer.lora_A[slot.start : slot.stop].copy_(tensors[f"{name}.lora_A"])
            layer.lora_B[:, slot.start : slot.stop].copy_(tensors[f"{name}.lora_B"])


def read_adapter(folder: str) -> tuple[LoraSpec, dict[str, torch.Tensor]]:
    """A LoRA adapter saved by PEFT: its shape, and its tensors under the engine's names. `ConfigError` when the folder
    holds none, or one with parts that the engine would leave out."""
    path = Path(folder).expanduser()
    if not (path / "adapter_config.json").is_file() or not (path / "adapter_model.safetensors").is_file():
        raise ConfigError(
            f"adapter {folder!r}: wanted adapter_config.json and adapter_model.safetensors in that folder"
        )
    config = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
    unsupported = [
        key for key in ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias") if config.get(key)
    ]
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none" or unsupported:
        raise ConfigError(f"adapter {folder!r} is not a plain LoRA ({unsupported or config.get('peft_type')})")
    tensors = {
        name.removeprefix("base_model.model.").removesuffix(".weight"): tensor
        for name, tensor in load_file(path / "adapter_model.safetensors").items()
    }
    wrong = [name for name in tensors if not name.endswith((".lora_A", ".lora_B"))]
    if wrong or not tensors:
        raise ConfigError(f"adapter {folder!r} holds {wrong or 'no tensors'}; wanted lora_A and lora_B tensors only")
    rank = int(config["r"])
    alpha = float(config["lora_alpha"]) * (math.sqrt(rank) if config.get("use_rslora") else 1.0)
    modules = tuple(sorted(name.removesuffix(".lora_A") for name in tensors if name.endswith(".lora_A")))
    return LoraSpec(rank=rank, alpha=alpha, target_modules=modules), tensors
