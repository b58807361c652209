"""The forward pass of the Llama family (Llama, Qwen2, Qwen3) with little Python between the kernels.

At a million parameters most of a decoding step is the interpreter. This runner reads the weights of the Transformers
module where they are, so that a published weight can never be missed; projections of one input are made views of one
tensor, and multiplied at once. `GenericRunner` is the reference that a test holds it to.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rolecall.engines.local_cache import ColumnCache
from rolecall.engines.local_lora import LoraLinear

FAMILY = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}


def is_fast(model: Any) -> bool:
    """Whether this runner computes what `model` computes: the exact class, full attention, plain weights."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ("full_attention",))
    return (
        type(model).__name__ in FAMILY
        and kinds == {"full_attention"}
        and getattr(config, "pretraining_tp", 1) == 1
        and type(model.model.layers[0].mlp.gate_proj) in (nn.Linear, LoraLinear)
    )


class Fused:
    """Linear layers of one input as one product; their weights become views of one tensor, so they stay in step."""

    def __init__(self, layers: list[Any]) -> None:
        self.sizes = [layer.out_features for layer in layers]
        self.weight = torch.cat([layer.weight.data for layer in layers])
        for layer, part in zip(layers, torch.split(self.weight, self.sizes), strict=True):
            layer.weight.data = part
        self.bias: torch.Tensor | None = None
        if layers[0].bias is not None:
            self.bias = torch.cat([layer.bias.data for layer in layers])
            for layer, part in zip(layers, torch.split(self.bias, self.sizes), strict=True):
                layer.bias.data = part
        self.adapted = [layer if isinstance(layer, LoraLinear) else None for layer in layers]
        self.gate = next((layer.gate for layer in self.adapted if layer is not None), None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = F.linear(x, self.weight, self.bias)
        if self.gate is not None and self.gate.rows_BR is not None:
            for layer, part in zip(self.adapted, torch.split(y, self.sizes, dim=-1), strict=True):
                if layer is not None:
                    part += layer.adapted(x)
        return y


class Norm:
    """The RMS norms of layers that share an input; their weights are read where they are.

    As in Transformers: the mean square in float32, the weight applied in the model's dtype. On a CPU in few kernels:
    with n the Euclidean norm of x, x / sqrt(n^2 / size + eps) * weight.
    """

    def __init__(self, *layers: Any, repeats: tuple[int, ...] = ()) -> None:
        """`repeats`: of several layers, how many heads each of them takes, in their order along the last but one
        dimension of the input."""
        first = layers[0].weight
        self.layers, self.repeats = layers, repeats
        self.eps = float(layers[0].variance_epsilon)
        self.plain = first.dtype == torch.float32 and first.device.type == "cpu"
        self.eps_tensor = torch.tensor(self.eps)

    @property
    def weight(self) -> torch.Tensor:
        if not self.repeats:
            found: torch.Tensor = self.layers[0].weight
            return found
        parts = zip(self.layers, self.repeats, strict=True)
        return torch.cat([layer.weight.expand(repeats, -1) for layer, repeats in parts])

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.plain:
            length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            scale = torch.addcmul(self.eps_tensor, length, length, value=1.0 / x.shape[-1]).rsqrt_()
            return torch.mul(x, scale).mul_(self.weight)
        return self.weight * F.rms_norm(x.float(), (x.shape[-1],), None, self.eps).to(x.dtype)


class Block:
    """One decoder layer."""

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        self.index: int = attention.layer_idx
        self.head_size: int = attention.head_dim
        self.group: int = attention.num_key_value_groups
        self.scaling: float = attention.scaling
        self.qkv = Fused([attention.q_proj, attention.k_proj, attention.v_proj])
        self.gate_up = Fused([layer.mlp.gate_proj, layer.mlp.up_proj])
        self.num_kv = self.qkv.sizes[1] // self.head_size
        self.num_q = self.qkv.sizes[0] // self.head_size
        self.norm_qk: Norm | None = None
        if hasattr(attention, "q_norm"):
            self.norm_qk = Norm(attention.q_norm, attention.k_norm, repeats=(self.num_q, self.num_kv))
        self.out, self.down, self.act = attention.o_proj, layer.mlp.down_proj, layer.mlp.act_fn
        self.norm1, self.norm2 = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)

    def attend(self, h: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor], mask: Any, cache: Any) -> torch.Tensor:
        """[B, T, hidden] -> [B, T, hidden]; the cache takes the new keys and values."""
        B, T, _ = h.shape
        heads = self.qkv(h).view(B, T, self.num_q + 2 * self.num_kv, self.head_size)
        qk = heads[:, :, : -self.num_kv]
        if self.norm_qk is not None:
            qk = self.norm_qk(qk)
        cos, sin = rope
        low, high = qk.chunk(2, dim=-1)
        qk = (qk * cos).addcmul_(torch.cat((high, low), dim=-1), sin).transpose(1, 2)
        q = qk[:, : self.num_q]
        k, v = cache.layer(self.index).update(qk[:, self.num_q :], heads[:, :, -self.num_kv :].transpose(1, 2))
        if self.group > 1:
            if T == 1:
                q = q.reshape(B, self.num_kv, self.group, self.head_size)
            else:
                k, v = k.repeat_interleave(self.group, dim=1), v.repeat_interleave(self.group, dim=1)
        causal = mask is None and T > 1
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=self.scaling)
        y = y.reshape(B, self.num_q, T, self.head_size).transpose(1, 2).reshape(B, T, -1)
        out: torch.Tensor = self.out(y)
        return out

    def __call__(self, x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor], mask: Any, cache: Any) -> torch.Tensor:
        x = x + self.attend(self.norm1(x), rope, mask, cache)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        out: torch.Tensor = x + self.down(self.act(gate) * up)
        return out


class FastRunner:
    """See `local_runner.Runner`. Build it after the adapters are patched in: it keeps the patched layers."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.vocab_size = int(model.config.vocab_size)
        self.blocks = [Block(layer) for layer in model.model.layers]
        self.norm = Norm(model.model.norm)
        self.rotary = model.model.rotary_emb
        self.dtype = model.model.embed_tokens.weight.dtype

    def mask(self, start_B: torch.Tensor, cache: ColumnCache, num: int) -> torch.Tensor | None:
        """[B, 1, T, columns], 0 where a query sees a column, -inf elsewhere; None where plain causality says it all."""
        columns = torch.arange(cache.low, cache.write + num, device=start_B.device)
        padded = bool((start_B > cache.low).any())
        if not padded and (num == 1 or cache.write == cache.low):
            return None
        seen = (columns >= start_B[:, None])[:, None]
        if num > 1:
            queries = columns[-num:, None]
            seen = (seen & (columns <= queries)) | (columns == queries)  # padding sees itself, so no row is empty
        zero = torch.zeros((), dtype=self.dtype, device=start_B.device)
        return torch.where(seen, zero, -torch.inf)[:, None]

    def forward(self, ids_BT: torch.Tensor, start_B: torch.Tensor, cache: ColumnCache, last: int) -> torch.Tensor:
        num = ids_BT.shape[1]
        mask = self.mask(start_B, cache, num)
        columns = torch.arange(cache.write, cache.write + num, device=ids_BT.device)
        x = self.model.model.embed_tokens(ids_BT)
        cos, sin = self.rotary(x, (columns - start_B[:, None]).clamp_(min=0))
        half = sin.shape[-1] // 2
        rope = (cos[:, :, None], torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)[:, :, None])
        for block in self.blocks:
            x = block(x, rope, mask, cache)
        x = self.norm(x[:, -last:])
        cache.write += num
        logits: torch.Tensor = self.model.lm_head(x)
        return logits
