"""The weights of one policy as its learner sees them: a whole model, or one LoRA adapter on a shared base.

Tensor names on the way out: a whole model's state dict names; an adapter's are `<module path in the base>.lora_A`,
shape [rank, in], and `.lora_B`, shape [out, rank].
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rolecall.engines.read_model import read_causal_lm, read_tokenizer
from rolecall.errors import CheckpointError, ConfigError, LearnerError
from rolecall.learner.logprobs import Split, find_split

PEFT_PREFIX = "base_model.model."
ADAPTER_FILE = "adapter_model.safetensors"
OLD_NAME = "`is_gradient_checkpointing` is deprecated"
"""PEFT asks a model by a name that Transformers warns about: nothing that a user could change."""


class PolicyModule(ABC):
    """What a `Learner` needs of a policy's weights. `model` may be shared; use it inside `active()` or `base()`."""

    model: Any
    starts_as_base = False  # whether the weights before the first optimizer step are those of `base()`

    @abstractmethod
    def trained(self) -> dict[str, nn.Parameter]:
        """The trained parameters by name, always in the same order."""

    @abstractmethod
    def active(self) -> AbstractContextManager[tuple[Any, Split | None]]:
        """The model with this policy's weights in force, and its split."""

    @abstractmethod
    def base(self) -> AbstractContextManager[tuple[Any, Split | None]]:
        """The model as it was before any training."""

    def forget_base(self) -> None:
        """Free what `base()` keeps in memory; it is loaded again when asked for again."""
        return None

    @abstractmethod
    def export(self) -> dict[str, Tensor]:
        """Detached CPU copies of this policy's weights alone, for an engine."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a folder that Transformers or PEFT can load."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Take the weights of a folder that `save` wrote."""


class WholeModel(PolicyModule):
    """All weights of a causal LM. The model before training is loaded again from `source` when a KL asks for it. Its
    tokenizer is saved beside the weights, so that a saved folder is a model to Transformers."""

    starts_as_base = True

    def __init__(self, model: Any, source: str) -> None:
        self.model = model
        self.source = source
        self._tokenizer: Any = None
        self.split = find_split(model)
        self._base: tuple[Any, Split | None] | None = None
        for parameter in model.parameters():
            parameter.requires_grad_(True)

    def trained(self) -> dict[str, nn.Parameter]:
        return dict(self.model.named_parameters())

    def active(self) -> AbstractContextManager[tuple[Any, Split | None]]:
        return nullcontext((self.model, self.split))

    def base(self) -> AbstractContextManager[tuple[Any, Split | None]]:
        if self._base is None:
            parameter = next(self.model.parameters())
            model = load_causal_lm(self.source, parameter.dtype, parameter.device)
            model.requires_grad_(False)
            self._base = (model, find_split(model))
        return nullcontext(self._base)

    def forget_base(self) -> None:
        self._base = None

    def export(self) -> dict[str, Tensor]:
        return copy_to_cpu(self.model.state_dict())

    def save(self, folder: Path) -> None:
        self.model.save_pretrained(folder)
        if self._tokenizer is None:
            self._tokenizer = read_tokenizer(self.source)
        self._tokenizer.save_pretrained(folder)

    def load(self, folder: Path) -> None:
        parameter = next(self.model.parameters())
        saved = load_causal_lm(str(folder), parameter.dtype, torch.device("cpu"))
        check_fit(self.source, self.model.state_dict(), saved.state_dict())
        self.model.load_state_dict(saved.state_dict())


class SharedBase:
    """One base model in memory and the LoRA adapters on it, kept by PEFT.

    PEFT puts an adapter's name into module paths, where some characters are not allowed and one name may be part of
    another; so adapters live in numbered slots, and policy names never get there.
    """

    def __init__(self, model: Any, source: str) -> None:
        self.model = model
        self.source = source
        self.peft: Any = None
        self.slots: dict[str, str] = {}
        model.requires_grad_(False)

    def add(self, name: str, config: Any, seed: int, *, keep_dtype: bool = False) -> Adapter:
        """A new adapter for policy `name`, initialised from `seed`: A at random, B zero; in float32 whatever the base,
        unless `keep_dtype`."""
        if name in self.slots:
            raise LearnerError(f"policy {name!r} has an adapter on {self.source!r} already")
        from peft import get_peft_model

        slot = f"slot{len(self.slots)}_"
        with torch.random.fork_rng(devices=_cuda_devices()), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=OLD_NAME)
            torch.manual_seed(seed)
            if self.peft is None:
                self.peft = get_peft_model(self.model, config, adapter_name=slot, autocast_adapter_dtype=not keep_dtype)
            else:
                self.peft.add_adapter(slot, config, autocast_adapter_dtype=not keep_dtype)
        self.slots[name] = slot
        return Adapter(self, slot, name)


class Adapter(PolicyModule):
    """One LoRA adapter on a `SharedBase`."""

    def __init__(self, shared: SharedBase, slot: str, name: str) -> None:
        self.shared = shared
        self.slot = slot
        self.name = name
        self.model = shared.model
        self._trained = self._find()
        self._start: dict[str, Tensor] | None = None  # a saved adapter that training started from
        with self.active() as (_, split):
            self.split = split

    def _find(self) -> dict[str, nn.Parameter]:
        found: dict[str, Any] = {}
        for path, module in self.model.named_modules():
            factors = getattr(module, "lora_A", None)
            if isinstance(factors, nn.ModuleDict) and self.slot in factors:
                found[f"{path}.lora_A"] = factors[self.slot].weight
                found[f"{path}.lora_B"] = module.lora_B[self.slot].weight
        if not found:
            raise ConfigError(f"the adapter of policy {self.name!r} touches no linear layer of {self.shared.source!r}")
        return found

    def trained(self) -> dict[str, nn.Parameter]:
        return self._trained

    @contextmanager
    def active(self) -> Iterator[tuple[Any, Split | None]]:
        """PEFT's set_adapter also turns gradients on for this adapter and off for every other."""
        self.shared.peft.set_adapter(self.slot)
        if not hasattr(self, "split"):
            self.split = find_split(self.model)
        yield self.model, self.split

    @contextmanager
    def base(self) -> Iterator[tuple[Any, Split | None]]:
        """The bare model, or the adapter as it was saved when training started from one. Forward passes only."""
        if self._start is None:
            with self.shared.peft.disable_adapter():
                yield self.model, self.split
            return
        present = {name: parameter.detach().clone() for name, parameter in self._trained.items()}
        assign(self._trained, self._start)
        try:
            with self.active() as (model, split):
                yield model, split
        finally:
            assign(self._trained, present)

    def begin_from(self, folder: Path) -> None:
        """Start training from a saved adapter: it is what the policy was before any training."""
        self.load(folder)
        self._start = self.export()

    def export(self) -> dict[str, Tensor]:
        return copy_to_cpu(self._trained)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.shared.peft.peft_config[self.slot].save_pretrained(str(folder))
        save_file(
            {f"{PEFT_PREFIX}{name}.weight": tensor for name, tensor in self.export().items()},
            str(folder / ADAPTER_FILE),
            metadata={"format": "pt"},
        )

    def load(self, folder: Path) -> None:
        saved = load_file(str(folder / ADAPTER_FILE))
        values = {key.removeprefix(PEFT_PREFIX).removesuffix(".weight"): tensor for key, tensor in saved.items()}
        check_fit(self.shared.source, self._trained, values)
        assign(self._trained, values)


def load_causal_lm(source: str, dtype: torch.dtype, device: torch.device) -> Any:
    """A causal LM from a folder or the hub, in evaluation mode: policies have no dropout."""
    return read_causal_lm(source, dtype).to(device).eval()


def check_fit(source: str, wanted: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """`CheckpointError` when saved weights are not those of the model at `source`."""
    unlike = sorted(wanted.keys() ^ saved.keys())
    unlike += [name for name in wanted if name in saved and wanted[name].shape != saved[name].shape]
    if not unlike:
        return
    first = unlike[0]
    shapes = (str(list(side[first].shape)) if first in side else "absent" for side in (saved, wanted))
    raise CheckpointError(
        f"the saved weights are not those of the model {source!r}: {len(unlike)} of {len(wanted)} tensors differ in "
        f"name or shape ({first}: saved {next(shapes)}, here {next(shapes)}); name the model that they were trained on"
    )


@torch.no_grad()
def assign(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy `values` into `parameters` in place; the names must be the same."""
    if parameters.keys() != values.keys():
        missing, extra = sorted(parameters.keys() - values.keys()), sorted(values.keys() - parameters.keys())
        raise LearnerError(f"weights do not fit the policy: missing {missing[:3]}, not wanted {extra[:3]}")
    for name, parameter in parameters.items():
        if parameter.shape != values[name].shape:
            raise LearnerError(f"{name} is {tuple(values[name].shape)}; the policy's is {tuple(parameter.shape)}")
        parameter.copy_(values[name])


def copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached CPU copies; tensors that share storage (tied embeddings) share one copy."""
    copies: dict[tuple[int, torch.Size], Tensor] = {}
    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.shape)
        if place not in copies:
            copies[place] = tensor.detach().to("cpu", copy=True).contiguous()
        result[name] = copies[place]
    return result


def _cuda_devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []


def enable_gradient_checkpointing(model: Any) -> None:
    """Recompute activations in the backward pass; Transformers does so in training mode only, so dropout must be 0."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if getattr(module, "attention_dropout", 0.0):
            module.attention_dropout = 0.0
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
