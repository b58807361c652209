"""The body of a Llama-family model (Llama, Qwen2, Qwen3) for training on a CPU, with few passes over memory.

At a million parameters most of an update is not matrix products but the passes between them. Here norms and rotary
embeddings have a forward and a backward pass of their own. Weights are used where they are, through the model's own
layers, so adapters work and gradients arrive where they always do. It computes what the model computes, up to rounding;
`logprobs.find_split` tries it and takes it only if it does.

Unlike the model's own, it takes positions and a mask, so that completions of one prompt can share it (`packing`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

FAMILY = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}


class RmsNorm(torch.autograd.Function):
    """y = w * x / sqrt(mean(x^2) + eps) over the last dimension (Zhang and Sennrich 2019).

    With r = 1 / sqrt(mean(x^2) + eps) and t = w * dL/dy: dL/dx = r t - x r^3 mean(t x), dL/dw = sum(dL/dy * x r).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, scale)
        y: Tensor = (x * scale).mul_(weight)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight, scale = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad * weight
            along = (grad_x * x).sum(-1, keepdim=True).mul_(scale.pow(3)).div_(-x.shape[-1])
            grad_x.mul_(scale).addcmul_(x, along)
        if ctx.needs_input_grad[1]:
            grad_weight = (grad * x).mul_(scale).flatten(0, -2).sum(0)
        return grad_x, grad_weight, None


class Rotate(torch.autograd.Function):
    """Rotary position embedding (Su et al. 2021) in halves: the backward pass turns the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return turn(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return turn(grad, cos, -sin), None, None


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(a, b) -> (a cos - b sin, b cos + a sin) for the halves of the last dimension. [..., D], [..., D / 2]"""
    half = x.shape[-1] // 2
    low, high = x[..., :half], x[..., half:]
    y = torch.empty_like(x)
    torch.mul(low, cos, out=y[..., :half]).addcmul_(high, sin, value=-1)
    torch.mul(high, cos, out=y[..., half:]).addcmul_(low, sin)
    return y


def is_plain(model: Any) -> bool:
    """Whether the model is one of the family, with full attention, in float32 on a CPU."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    parameters = list(model.parameters())
    return (
        type(model).__name__ in FAMILY
        and kinds == {"full_attention"}
        and getattr(config, "pretraining_tp", 1) == 1
        and all(p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters)
    )


class FastBody:
    """Hidden states after the last norm; see the head of this file."""

    def __init__(self, body: Any) -> None:
        self.body = body

    def __call__(self, ids_BT: Tensor, positions_BT: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """[B, T] -> [B, T, H]. Rows are causal sequences padded on the right; or as `positions_BT` and `mask`
        ([B, 1, T, T], 0 where a query sees a key and -inf elsewhere) say."""
        body = self.body
        x = body.embed_tokens(ids_BT)
        if positions_BT is None:
            positions_BT = torch.arange(ids_BT.shape[1], device=ids_BT.device)[None]
        with torch.no_grad():
            cos, sin = (
                part[:, :, None, : part.shape[-1] // 2].contiguous() for part in body.rotary_emb(x, positions_BT)
            )
        for layer in body.layers:
            x = x + attend(layer.self_attn, norm(layer.input_layernorm, x), cos, sin, mask)
            x = x + layer.mlp(norm(layer.post_attention_layernorm, x))
        return norm(body.norm, x)


def norm(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = RmsNorm.apply(x, layer.weight, layer.variance_epsilon)  # type: ignore[no-untyped-call]
    return y


def attend(layer: Any, h: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
    """[B, T, H] -> [B, T, H]"""
    B, T, _ = h.shape
    q, k, v = (project(h).view(B, T, -1, layer.head_dim) for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    if hasattr(layer, "q_norm"):
        q, k = norm(layer.q_norm, q), norm(layer.k_norm, k)
    q, k = Rotate.apply(q, cos, sin), Rotate.apply(k, cos, sin)  # type: ignore[no-untyped-call]
    y = F.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        scale=layer.scaling,
        enable_gqa=layer.num_key_value_groups > 1,
    )
    out: Tensor = layer.o_proj(y.transpose(1, 2).reshape(B, T, -1))
    return out
