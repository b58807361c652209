"""A random two-layer Qwen3 model with a byte-level tokenizer and a chat template, for tests that need real tensors."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ("<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|pad|>")
MIN_VOCAB = 256 + len(SPECIAL_TOKENS)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tiny_model(
    folder: str | Path,
    *,
    vocab: int = MIN_VOCAB,
    layers: int = 2,
    hidden: int = 32,
    tie: bool = True,
    seed: int = 0,
    std: float = 0.2,
    pad_is_eos: bool = False,
) -> str:
    """Write model and tokenizer to `folder` and return it. `std` is that of the initial weights: 0.2 makes next-token
    distributions that are far from uniform, so that a test can tell one model from another."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    if vocab < MIN_VOCAB:
        raise ValueError(f"vocab is {vocab}; the byte-level tokenizer needs at least {MIN_VOCAB}")
    tokenizer = make_byte_tokenizer(pad_is_eos=pad_is_eos)
    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=max(hidden // 4, 8),
        max_position_embeddings=2048,
        tie_word_embeddings=tie,
        initializer_range=std,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def make_byte_tokenizer(*, pad_is_eos: bool = False) -> Any:
    """One token a byte, ids 0 to 255 in the order of the byte alphabet, and the special tokens after them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|end|>",
        pad_token="<|end|>" if pad_is_eos else "<|pad|>",
        additional_special_tokens=list(SPECIAL_TOKENS),
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
