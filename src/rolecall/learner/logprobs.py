"""Log-probabilities and entropies of chosen tokens, without ever holding the logits of a whole batch.

Only the positions that predict a trained token go through the LM head, in chunks whose logits are computed again in the
backward pass. Which part of a model is the head is found by measurement: body, head and the usual scalings of logits
are tried on a few tokens and must reproduce the model's own logits; a model that does not come apart this way falls
back to its full logits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rolecall.learner.fast_body import FastBody, is_plain

MAX_CHUNK_LOGITS = 2**25
"""Logits that may be held at once: 128 MiB in float32, whatever the vocabulary."""


class TokenScores(NamedTuple):
    """Log-probability of each chosen token and entropy of its distribution, in nats, both at the temperature. [N]"""

    logprobs_N: Tensor
    entropies_N: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A causal LM in two parts: `finish(head(body(ids).last_hidden_state))` are its logits. `fast(ids)` gives the same
    hidden states as the body, and takes positions and a mask too; None where there is no such way."""

    body: nn.Module
    head: nn.Module
    finish: Callable[[Tensor], Tensor]
    fast: FastBody | None = None


def find_split(model: Any) -> Split | None:
    """The split of a Transformers causal LM that reproduces its logits, or None when none does."""
    body = getattr(model, getattr(model, "base_model_prefix", ""), None)
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if not isinstance(body, nn.Module) or body is model or not isinstance(head, nn.Module):
        return None
    device = next(model.parameters()).device
    ids = torch.arange(6, device=device).unsqueeze(0) % model.config.get_text_config().vocab_size
    with torch.no_grad():
        wanted = model(input_ids=ids, use_cache=False).logits.float()
        output = body(input_ids=ids, use_cache=False)
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is None:
            return None
        raw = head(hidden)
        tolerance = 1e-3 * max(float(wanted.abs().max()), 1e-3)
        for finish in _finishes(model.config.get_text_config()):
            seen = finish(raw).float()
            if seen.shape == wanted.shape and float((seen - wanted).abs().max()) <= tolerance:
                return Split(body=body, head=head, finish=finish, fast=_fast(model, body, ids, hidden))
    return None


def _fast(model: Any, body: Any, ids: Tensor, hidden: Tensor) -> FastBody | None:
    """The quick body, where there is one and it gives the same hidden states."""
    if not is_plain(model):
        return None
    fast = FastBody(body)
    return fast if float((fast(ids) - hidden).abs().max()) <= 1e-4 * float(hidden.abs().max()) else None


def token_scores(
    model: Any,
    split: Split | None,
    input_ids_BT: Tensor,
    rows_N: Tensor,
    columns_N: Tensor,
    targets_N: Tensor,
    temperatures_N: Tensor,
    *,
    layout: tuple[Tensor, Tensor] | None = None,
    fast: bool = False,
    entropy_gradient: bool = False,
    max_chunk_logits: int = MAX_CHUNK_LOGITS,
) -> TokenScores:
    """log softmax(logits / temperature) of `targets_N`, the tokens predicted at (`rows_N`, `columns_N` - 1), and the
    entropies.

    Entropies carry a gradient only when asked for. Rows are padded on the right, where a causal model cannot see, so
    no attention mask is passed; rows laid out otherwise come with their `layout`, positions and mask. `fast`: run the
    split's quick body, which a layout needs.
    """
    if split is None:
        logits_BTV = model(input_ids=input_ids_BT, use_cache=False).logits
        return _scores(logits_BTV[rows_N, columns_N - 1], targets_N, temperatures_N, entropy_gradient)
    if fast and split.fast is not None:
        hidden_BTH = split.fast(input_ids_BT, *(layout or ()))
    else:
        assert layout is None
        hidden_BTH = split.body(input_ids=input_ids_BT, use_cache=False).last_hidden_state
    hidden_NH = hidden_BTH[rows_N, columns_N - 1]

    def of_chunk(hidden_CH: Tensor, targets_C: Tensor, temperatures_C: Tensor) -> TokenScores:
        return _scores(split.finish(split.head(hidden_CH)), targets_C, temperatures_C, entropy_gradient)

    size = max(1, max_chunk_logits // model.config.get_text_config().vocab_size)
    if len(targets_N) <= size:
        return of_chunk(hidden_NH, targets_N, temperatures_N)
    chunks = zip(*(torch.split(tensor, size) for tensor in (hidden_NH, targets_N, temperatures_N)), strict=True)
    if torch.is_grad_enabled():
        scores = [checkpoint(of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    else:
        scores = [of_chunk(*chunk) for chunk in chunks]
    return TokenScores(torch.cat([s.logprobs_N for s in scores]), torch.cat([s.entropies_N for s in scores]))


def _scores(logits_NV: Tensor, targets_N: Tensor, temperatures_N: Tensor, entropy_gradient: bool) -> TokenScores:
    """log p = z_target - logsumexp z and H = logsumexp z - sum p z, for z = logits / temperature in float32."""
    scaled_NV = logits_NV.float() / temperatures_N[:, None]
    normaliser_N = scaled_NV.logsumexp(-1)
    logprobs_N = scaled_NV.gather(-1, targets_N[:, None]).squeeze(-1) - normaliser_N
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        source_NV = scaled_NV if entropy_gradient else scaled_NV.detach()
        ends_N = normaliser_N if entropy_gradient else normaliser_N.detach()
        entropies_N = ends_N - ((source_NV - ends_N[:, None]).exp() * source_NV).sum(-1)
    return TokenScores(logprobs_N, entropies_N)


def _finishes(config: Any) -> list[Callable[[Tensor], Tensor]]:
    """What a model may do to the output of its head: nothing, divide, multiply, or cap softly."""
    finishes: list[Callable[[Tensor], Tensor]] = [lambda logits: logits]
    divide, multiply = getattr(config, "logits_scaling", None), getattr(config, "logit_scale", None)
    cap = getattr(config, "final_logit_softcapping", None)
    if divide:
        finishes.append(lambda logits: logits / divide)
    if multiply:
        finishes.append(lambda logits: logits * multiply)
    if cap:
        finishes.append(lambda logits: torch.tanh(logits / cap) * cap)
    return finishes
