"""Reads a causal language model from a folder or the hub: the whole of it, or not at all."""

from __future__ import annotations

from typing import Any

from rolecall.errors import ConfigError


def read_causal_lm(source: str, dtype: Any) -> Any:
    """The model of Transformers at `source`. Weights that its files lack are an error: Transformers would draw them at
    random, differently in the learner and in every worker of an engine."""
    from transformers import AutoModelForCausalLM

    model, found = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, output_loading_info=True)
    missing = sorted(found["missing_keys"])
    if missing:
        raise ConfigError(
            f"model {source!r}: its files hold no weights for {len(missing)} of its tensors ({', '.join(missing[:3])}"
            f"{', ...' if missing[3:] else ''}); the folder is incomplete, or its config.json is that of another model"
        )
    return model
