"""One forward pass of a causal language model over right-aligned columns: any architecture of Transformers.

`Runner.forward` is all that decoding and scoring know of a model; `local_fast` has a quicker one for the Llama family.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from torch import nn

from rolecall.engines.local_cache import ColumnCache
from rolecall.errors import ConfigError

ATTENTION_KINDS = {"full_attention", "sliding_attention", "chunked_attention", "attention"}


class Runner(Protocol):
    """Runs a model on columns [write, write + T) of a cache and moves the write column on."""

    vocab_size: int

    def forward(self, ids_BT: torch.Tensor, start_B: torch.Tensor, cache: ColumnCache, last: int) -> torch.Tensor:
        """Logits of the last `last` columns, [B, last, V]. Row b occupies the columns from `start_B[b]` on, what stands
        before is padding, and its positions count from there."""
        ...


def check_architecture(config: Any, name: str) -> None:
    """`ConfigError` for models whose state is not keys and values by column."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if config.is_encoder_decoder or not kinds <= ATTENTION_KINDS:
        other = "an encoder and a decoder" if config.is_encoder_decoder else f"layers {sorted(kinds - ATTENTION_KINDS)}"
        raise ConfigError(
            f"model {name!r} has {other}; the local engine runs decoders of attention layers only: choose another model"
        )


class GenericRunner:
    """Calls the model's own forward with a mask and position ids: right for every architecture, if not the fastest."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.vocab_size = int(model.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]
        names = inspect.signature(model.forward).parameters
        self.cache_name = "cache" if "cache" in names else "past_key_values"
        self.takes_positions = "position_ids" in names
        self.takes_keep = "logits_to_keep" in names

    def forward(self, ids_BT: torch.Tensor, start_B: torch.Tensor, cache: ColumnCache, last: int) -> torch.Tensor:
        num = ids_BT.shape[1]
        end = cache.write + num
        columns = torch.arange(cache.low, end, device=ids_BT.device)
        inside = columns >= start_B[:, None]
        arguments: dict[str, Any] = {self.cache_name: cache, "use_cache": True, "return_dict": True}
        arguments["attention_mask"] = None if bool(inside.all()) else inside.long()
        if self.takes_positions:
            arguments["position_ids"] = (columns[-num:] - start_B[:, None]).clamp_(min=0)
        if self.takes_keep:
            arguments["logits_to_keep"] = last
        logits: torch.Tensor = self.model(input_ids=ids_BT, **arguments).logits
        cache.write = end
        return logits[:, -last:]
