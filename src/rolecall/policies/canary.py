"""A large change of every group of a policy's tensors, made and taken back: what the parity canary publishes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from rolecall.learner.learner import Learner

CANARY_VERSION = -1
"""The version under which canary weights are loaded; nothing is ever sampled from it."""


def tensor_group(name: str) -> str:
    """The group that a tensor falls into: LoRA tensors by factor and module type, others by the part of the model.

    >>> tensor_group("model.layers.3.self_attn.q_proj.lora_A")
    'q_proj.lora_A'
    >>> tensor_group("model.layers.3.mlp.up_proj.weight"), tensor_group("model.embed_tokens.weight")
    ('mlp', 'embeddings')
    """
    parts = name.split(".")
    if parts[-1] in ("lora_A", "lora_B"):
        return ".".join(parts[-2:])
    lowered = name.lower()
    if "lm_head" in lowered or "embed_out" in lowered:
        return "head"
    if "norm" in lowered or ".ln_" in lowered:
        return "norm"
    if "embed" in lowered or ".wte" in lowered or ".wpe" in lowered:
        return "embeddings"
    if "attn" in lowered or "attention" in lowered:
        return "attention"
    if "mlp" in lowered or "feed_forward" in lowered or "expert" in lowered or ".fc" in lowered:
        return "mlp"
    return "other"


class Perturbation:
    """Random changes of a learner's tensors, about as large as they are themselves; the real ones wait on the CPU."""

    def __init__(self, learner: Learner, seed: int, size: float = 0.5) -> None:
        self.parameters = learner.parameters
        self.seed = seed
        self.size = size
        self.real = {name: parameter.detach().to("cpu", copy=True) for name, parameter in self.parameters.items()}
        self.groups: dict[str, list[str]] = {}
        for name in self.parameters:
            self.groups.setdefault(tensor_group(name), []).append(name)

    def beside(self, group: str) -> tuple[str, ...]:
        """The groups that a change of `group` needs to show: of a LoRA factor both factors, for one alone is
        multiplied by zeros at first; of others the group itself."""
        module, dot, factor = group.rpartition(".")
        if factor not in ("lora_A", "lora_B"):
            return (group,)
        return tuple(name for name in self.groups if name.startswith(module + dot))

    @contextmanager
    def applied(
        self, without: Sequence[str] = (), only: Sequence[str] | None = None, size: float | None = None
    ) -> Iterator[None]:
        """The learner with changed tensors, of the groups `only` (None: of all) but for those `without`; the real ones
        come back exactly. `size` in place of the usual one."""
        changed = {name for group in (self.groups if only is None else only) for name in self.groups[group]}
        changed -= {name for group in without for name in self.groups[group]}
        try:
            with torch.no_grad():
                for number, (name, parameter) in enumerate(self.parameters.items()):
                    if name in changed:
                        _change(parameter, self.seed + number, self.size if size is None else size)
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self.parameters.items():
                    parameter.copy_(self.real[name])


def _change(tensor: Tensor, seed: int, size: float) -> None:
    """tensor += size * scale * noise, where scale is the tensor's root mean square, or 0.05 when it is nearly zero."""
    generator = torch.Generator(device=tensor.device).manual_seed(seed % 2**63)
    noise = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    scale = float(tensor.float().square().mean().sqrt())
    tensor.add_((size * (scale if scale > 1e-3 else 0.05) * noise).to(tensor.dtype))
