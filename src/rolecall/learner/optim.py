"""AdamW over named parameters, and a learning rate that depends on nothing but the optimizer steps made."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn

from rolecall.learner.config import LearnerConfig


def make_optimizer(parameters: Mapping[str, nn.Parameter], config: LearnerConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019); weight decay acts on matrices and leaves vectors (norms, biases) alone."""
    decayed = [parameter for parameter in parameters.values() if parameter.ndim > 1]
    others = [parameter for parameter in parameters.values() if parameter.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters.values())
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=config.lr, betas=config.betas, eps=config.eps, fused=fused
    )


def learning_rate(config: LearnerConfig, done: int) -> float:
    """The rate of the next step after `done` of them: optimizer steps, or training steps under `fixed_minibatch`.

    Linear warm-up to `lr` over `warmup_steps`; then constant, or down to `min_lr_ratio * lr` along half a cosine or a
    line, reached with the last of `schedule_steps`, and kept.

    >>> [learning_rate(LearnerConfig(lr=1.0, warmup_steps=2), n) for n in range(3)]
    [0.5, 1.0, 1.0]
    """
    if done < config.warmup_steps:
        return config.lr * (done + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    span = max(config.schedule_steps - config.warmup_steps - 1, 1)
    progress = min((done - config.warmup_steps) / span, 1.0)
    remaining = 1.0 - progress if config.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return config.lr * (config.min_lr_ratio + (1.0 - config.min_lr_ratio) * remaining)


def clip_factor(norm: float, max_norm: float) -> float:
    """What clipping multiplies a gradient of this norm by: max_norm / norm where the norm is larger, else 1.

    >>> clip_factor(4.0, 1.0), clip_factor(0.5, 1.0)
    (0.25, 1.0)
    """
    return max_norm / norm if norm > max_norm else 1.0


def clip_gradients(parameters: Mapping[str, nn.Parameter], norm: float, max_norm: float) -> None:
    """Scale all gradients by max_norm / norm when their joint norm is larger."""
    if norm <= max_norm:
        return
    for parameter in parameters.values():
        if parameter.grad is not None:
            parameter.grad.mul_(clip_factor(norm, max_norm))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out, on a device or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("out of memory", "can't allocate memory", "not enough memory")
    )
