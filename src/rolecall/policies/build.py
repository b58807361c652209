"""From policy specs to weights in memory, each trained policy with its learner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rolecall.algorithms.loss import Loss
from rolecall.engines.base import request_seed
from rolecall.engines.specs import PolicySpec, resolve_model
from rolecall.errors import ConfigError, boundary
from rolecall.interventions.settings import Intervention
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.learner.modules import PolicyModule, SharedBase, WholeModel, load_causal_lm
from rolecall.records import EMPTY


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """A policy of the run. `learner` is None for a frozen one, whose weights only engines hold; `tokenizer` is where
    its tokenizer is."""

    name: str
    spec: PolicySpec
    learner: Learner | None
    tokenizer: str

    @property
    def version(self) -> int:
        return self.learner.version if self.learner is not None else 0


def build_policies(
    specs: Mapping[str, PolicySpec] | Sequence[PolicySpec],
    learners: LearnerConfig | Mapping[str, LearnerConfig],
    loss: Loss | Mapping[str, Loss] | None = None,
    *,
    device: str = "auto",
    seed: int = 0,
    interventions: Mapping[str, Intervention] = EMPTY,
    roles: Mapping[str, str] = EMPTY,
) -> dict[str, Policy]:
    """Load every policy by name. Adapters over one model share one base in memory (per precision); a whole model is
    alone. `learners` and `loss`: one for all trained policies, or one a policy. `device="auto"`: a GPU if there is one.
    `interventions` by role, and with them `roles`: the trained roles and their policies.
    """
    bases: dict[tuple[str, torch.dtype], SharedBase] = {}
    place = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    policies: dict[str, Policy] = {}
    for spec in specs.values() if isinstance(specs, Mapping) else specs:
        learner: Learner | None = None
        if spec.trained:
            config = _of(learners, spec.name, "learner configuration")
            wanted = _of(loss if loss is not None else Loss(), spec.name, "loss")
            with boundary(ConfigError, f"loading policy {spec.name!r} from {spec.model!r}"):
                module = _module(spec, config, bases, place, seed)
            own = [role for role, policy in roles.items() if policy == spec.name]
            table = {role: interventions[role] for role in own if role in interventions}
            learner = Learner(spec.name, module, config, wanted, table, own)
        policies[spec.name] = Policy(name=spec.name, spec=spec, learner=learner, tokenizer=resolve_model(spec.model))
    return policies


def _of(table: Any, name: str, what: str) -> Any:
    if not isinstance(table, Mapping):
        return table
    if name not in table:
        raise ConfigError(f"policy {name!r} is trained and has no {what}; there are some for {sorted(table)}")
    return table[name]


def _module(
    spec: PolicySpec,
    config: LearnerConfig,
    bases: dict[tuple[str, torch.dtype], SharedBase],
    device: torch.device,
    seed: int,
) -> PolicyModule:
    path = resolve_model(spec.model)
    if spec.kind == "model":
        dtype = torch.bfloat16 if config.precision == "bfloat16_plain" else torch.float32
        return WholeModel(load_causal_lm(path, dtype, device), path)
    dtype = torch.float32 if config.precision == "float32" else torch.bfloat16
    if (path, dtype) not in bases:
        bases[(path, dtype)] = SharedBase(load_causal_lm(path, dtype, device), path)
    lora = _lora_config(spec)
    start = request_seed(seed, "adapter", spec.name) % 2**63
    adapter = bases[(path, dtype)].add(spec.name, lora, start, keep_dtype=config.precision == "bfloat16_plain")
    if spec.adapter is not None:
        adapter.begin_from(Path(spec.adapter).expanduser())
    return adapter


def _lora_config(spec: PolicySpec) -> Any:
    """The PEFT configuration of an adapter, without dropout: what is sampled and what is trained must be one policy."""
    from peft import LoraConfig

    if spec.adapter is not None:
        saved = LoraConfig.from_pretrained(spec.adapter)
        alpha = saved.lora_alpha * (math.sqrt(saved.r) if saved.use_rslora else 1.0)
        if spec.lora is not None and (spec.lora.rank, spec.lora.alpha) != (saved.r, alpha):
            raise ConfigError(
                f"policy {spec.name!r} says rank {spec.lora.rank}, alpha {spec.lora.alpha}, and its adapter "
                f"{spec.adapter!r} has rank {saved.r}, alpha {alpha}; make them equal, or leave the table out"
            )
        saved.lora_dropout = 0.0
        saved.inference_mode = False
        return saved
    assert spec.lora is not None
    targets = spec.lora.target_modules
    return LoraConfig(
        r=spec.lora.rank,
        lora_alpha=spec.lora.alpha,
        lora_dropout=0.0,
        target_modules="all-linear" if targets == ("all-linear",) else list(targets),
        bias="none",
        task_type="CAUSAL_LM",
    )
