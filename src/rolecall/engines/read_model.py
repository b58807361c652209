"""Reads a causal language model from a folder or the hub: the whole of it, or not at all."""

from __future__ import annotations

from typing import Any

from rolecall.errors import ConfigError


def read_tokenizer(source: str) -> Any:
    """The tokenizer of Transformers at `source`."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(source)


def named_end_ids(source: str) -> tuple[int, ...]:
    """The ids that end a completion as the model itself names them: `eos_token_id` of its generation settings, one or a
    list (Llama 3 and Gemma name two or three, of which their tokenizers know one). Empty where it has no such file."""
    from transformers import GenerationConfig
    from transformers.utils import cached_file

    if cached_file(source, "generation_config.json", _raise_exceptions_for_missing_entries=False) is None:
        return ()
    ends = GenerationConfig.from_pretrained(source).eos_token_id
    return () if ends is None else tuple(dict.fromkeys(ends if isinstance(ends, list | tuple) else [ends]))


def num_positions(source: str) -> int | None:
    """How many tokens, prompt and completion together, the model at `source` was made for; None where it does not
    say."""
    from transformers import AutoConfig

    limit = getattr(AutoConfig.from_pretrained(source).get_text_config(), "max_position_embeddings", None)
    return int(limit) if limit else None


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
