"""How the local engine draws a token: counter-based uniforms and inverse-CDF sampling, nothing that knows of slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from rolecall.records import Sampling

UINT64 = np.uint64
GOLDEN = UINT64(0x9E3779B97F4A7C15)


def mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: a bijection on 64-bit numbers in which every input bit moves every output bit."""
    value = (value ^ (value >> UINT64(30))) * UINT64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> UINT64(27))) * UINT64(0x94D049BB133111EB)
    return value ^ (value >> UINT64(31))


def uniforms(seeds: npt.NDArray[np.uint64], positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """One number in [0, 1) for each (seed, token position of the completion), a multiple of 2**-24. [B], [B] -> [B]

    >>> bool(uniforms(np.array([7], dtype=np.uint64), np.array([0]))[0] < 1.0)
    True
    """
    bits = mix(mix(seeds) + (positions.astype(UINT64) + UINT64(1)) * GOLDEN)
    return (bits >> UINT64(40)).astype(np.float32) * np.float32(2.0**-24)


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingRows:
    """The sampling settings of the rows of a batch as tensors [B], with what is off for all rows left out (None)."""

    divisor_B: torch.Tensor | None  # temperature; 1 for greedy rows
    greedy_B: torch.Tensor | None
    all_greedy: bool
    top_k_B: torch.Tensor | None
    top_p_B: torch.Tensor | None

    @classmethod
    def of(cls, rows: Sequence[Sampling], device: torch.device | str = "cpu") -> SamplingRows:
        divisors = [1.0 if row.greedy else row.temperature for row in rows]
        greedy = [row.greedy for row in rows]
        top_k = [0 if row.greedy else row.top_k for row in rows]
        top_p = [1.0 if row.greedy else row.top_p for row in rows]
        return cls(
            divisor_B=torch.tensor(divisors, device=device) if any(d != 1.0 for d in divisors) else None,
            greedy_B=torch.tensor(greedy, device=device) if any(greedy) else None,
            all_greedy=all(greedy),
            top_k_B=torch.tensor(top_k, device=device) if any(top_k) else None,
            top_p_B=torch.tensor(top_p, device=device) if any(p < 1.0 for p in top_p) else None,
        )


def truncate(logits_BV: torch.Tensor, top_k_B: torch.Tensor | None, top_p_B: torch.Tensor | None) -> torch.Tensor:
    """Set logits outside the support to -inf: first all but the `top_k` largest (0: off), then, of the renormalised
    rest in falling order, each token before which the mass already reached `top_p`. The likeliest token always stays;
    of equal logits the lower ids stay. [B, V] -> [B, V]"""
    if top_k_B is None and top_p_B is None:
        return logits_BV
    sorted_BV, order_BV = torch.sort(logits_BV, dim=-1, descending=True, stable=True)
    if top_k_B is not None:
        limit_B = torch.where(top_k_B > 0, top_k_B, logits_BV.shape[-1])
        rank_V = torch.arange(logits_BV.shape[-1], device=logits_BV.device)
        sorted_BV = sorted_BV.masked_fill(rank_V >= limit_B[:, None], -torch.inf)
    if top_p_B is not None:
        probs_BV = torch.softmax(sorted_BV, dim=-1)
        before_BV = probs_BV.cumsum(dim=-1) - probs_BV
        outside_BV = (before_BV >= top_p_B[:, None]) & (top_p_B[:, None] < 1.0)
        outside_BV[:, 0] = False
        sorted_BV = sorted_BV.masked_fill(outside_BV, -torch.inf)
    return torch.empty_like(logits_BV).scatter_(-1, order_BV, sorted_BV)


def sample(logits_BV: torch.Tensor, rows: SamplingRows, uniforms_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and their natural log-probabilities under the distribution they were drawn from (greedy rows: under the
    distribution at temperature 1). [B, V], [B] -> [B], [B]

    Inverse CDF in vocabulary order: the first token whose cumulated probability exceeds u times the total. As u is a
    multiple of 2**-24 below 1, u times the total stays below the total, so a token without probability is never drawn.
    A GPU adds in parallel, and in float32 over a large vocabulary its sums may fall from one token to the next, which a
    search in a sorted row cannot bear: there they are float64 (the CPU adds in order, in float64, whatever it returns).
    """
    logits_BV = logits_BV.float()
    if rows.divisor_B is not None:
        logits_BV = logits_BV / rows.divisor_B[:, None]
    logits_BV = truncate(logits_BV, rows.top_k_B, rows.top_p_B)
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    if rows.all_greedy:
        tokens_B = logprobs_BV.argmax(dim=-1)
    else:
        cdf_BV = logprobs_BV.exp().cumsum(dim=-1, dtype=torch.float64 if logits_BV.is_cuda else torch.float32)
        goal_B1 = uniforms_B[:, None] * cdf_BV[:, -1:]
        tokens_B = torch.searchsorted(cdf_BV, goal_B1, right=True)[:, 0].clamp_(max=logits_BV.shape[-1] - 1)
        if rows.greedy_B is not None:
            tokens_B = torch.where(rows.greedy_B, logprobs_BV.argmax(dim=-1), tokens_B)
    return tokens_B, logprobs_BV.gather(-1, tokens_B[:, None])[:, 0]
