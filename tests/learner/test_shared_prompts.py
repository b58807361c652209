"""Completions that share a prompt's pass, and the quick body that makes it possible: layout, never another gradient."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from rolecall.learner.fast_body import FastBody, RmsNorm, Rotate
from rolecall.learner.logprobs import find_split, token_scores
from rolecall.learner.packing import Bundle, Weighted, bundle, collate, pack, sight
from rolecall.records import Sample, Span

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def qwen3() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(head_dim=8, initializer_range=0.3, **SIZES)).eval()


def row(number: int, prompt: tuple[int, ...], completion: tuple[int, ...]) -> Weighted:
    size, ids = len(prompt), (*prompt, *completion)
    span = Span(turn_id=str(number), start=size, stop=len(ids), advantage=1.0, version=0)
    sample = Sample(
        policy="p",
        role="solver",
        copy=0,
        token_ids=ids,
        logprobs=(0.0,) * size + (-1.0,) * len(completion),
        spans=(span,),
    )
    return Weighted(sample=sample, weights=(0.5 + number,), number=number)


ROWS = [
    row(0, (5, 6, 7, 8), (9, 2)),
    row(1, (5, 6, 7, 8), (10, 11, 2)),
    row(2, (5, 6), (1,)),
    row(3, (5, 6, 7, 8), (9,)),
    row(4, (5, 6, 7, 8), (12, 13, 14)),
]


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_the_quick_body_gives_the_hidden_states_and_gradients_of_the_model(kind: str) -> None:
    torch.manual_seed(1)
    model = qwen3() if kind == "qwen3" else LlamaForCausalLM(LlamaConfig(initializer_range=0.3, **SIZES)).eval()
    ids = torch.randint(0, 40, (3, 9))
    pull = torch.randn(3, 9, 16)
    found = []
    for body in (lambda i: model.model(input_ids=i, use_cache=False).last_hidden_state, FastBody(model.model)):
        model.zero_grad()
        hidden = body(ids)
        (hidden * pull).sum().backward()
        grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found.append((hidden.detach(), grads))
    (wanted, wanted_grads), (seen, seen_grads) = found
    torch.testing.assert_close(seen, wanted, rtol=1e-5, atol=1e-5)
    assert seen_grads.keys() == wanted_grads.keys()
    for name, grad in wanted_grads.items():
        assert float((seen_grads[name] - grad).norm() / grad.norm()) < 1e-5, name


def test_norm_and_rotation_have_the_derivatives_of_what_they_compute() -> None:
    torch.manual_seed(2)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(2, 3, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a, w: RmsNorm.apply(a, w, 1e-6), (x, weight))
    assert torch.autograd.gradcheck(lambda a: Rotate.apply(a, angle.cos(), angle.sin()), (x,))


def test_a_model_outside_the_family_or_the_precision_keeps_its_own_body() -> None:
    split = find_split(qwen3())
    assert split is not None
    assert split.fast is not None
    half = find_split(qwen3().bfloat16())
    assert half is None or half.fast is None


def test_completions_see_their_prompt_and_themselves_and_never_each_other() -> None:
    """A prompt of one token, a completion of two, one of one, one of padding."""
    seen = sight(torch.tensor([[0, 1, 1, 2, -1]]))[0, 0] == 0.0
    assert seen.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 0, 1],
    ]


def test_a_row_holds_a_prompt_and_completions_of_at_most_twice_its_length() -> None:
    """Prompt of 4: room for 8 completion tokens, so 2 + 3 + 1 share and the last 3 do not fit; others are alone."""
    found = bundle(ROWS, share=True)
    assert sorted((tuple(r.number for r in one.rows), one.prompt, one.length) for one in found) == [
        ((0, 1, 3), 4, 10),
        ((2,), 0, 3),
        ((4,), 0, 7),
    ]
    assert [one.prompt for one in bundle(ROWS, share=False)] == [0] * 5


def test_the_first_token_of_every_completion_is_predicted_by_the_last_of_the_prompt() -> None:
    batch = collate([Bundle(rows=(ROWS[0], ROWS[1]), prompt=4)], CPU)
    assert batch.input_ids_BT.tolist() == [[5, 6, 7, 8, 9, 2, 10, 11, 2]]
    assert batch.positions_BT is not None
    assert batch.positions_BT.tolist() == [[0, 1, 2, 3, 4, 5, 4, 5, 6]]
    assert batch.columns_N.tolist() == [4, 5, 4, 7, 8]
    assert batch.targets_N.tolist() == [9, 2, 10, 11, 2]
    assert (batch.numbers, batch.counts) == ((0, 1), (2, 3))


def test_sharing_prompts_changes_log_probabilities_and_gradient_by_rounding_alone() -> None:
    model = qwen3()
    split = find_split(model)
    assert split is not None
    found = []
    for share in (False, True):
        model.zero_grad()
        scored: dict[int, torch.Tensor] = {}
        tokens = 0
        for batch in pack(ROWS, 64, device=CPU, share=share)["solver"]:
            layout = None if batch.mask is None or batch.positions_BT is None else (batch.positions_BT, batch.mask)
            scores = token_scores(
                model, split, batch.input_ids_BT, batch.rows_N, batch.columns_N, batch.targets_N,
                batch.temperatures_N, layout=layout, fast=share,
            )  # fmt: skip
            (scores.logprobs_N * batch.weights_N).sum().backward()
            parts = torch.split(scores.logprobs_N.detach(), list(batch.counts))
            scored.update(zip(batch.numbers, parts, strict=True))
            tokens += int(batch.input_ids_BT.numel())
        grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found.append((scored, grads, tokens))
    (plain, plain_grads, plain_tokens), (shared, shared_grads, shared_tokens) = found
    assert shared_tokens < plain_tokens
    assert plain.keys() == shared.keys() == set(range(5))
    for number, logprobs in plain.items():
        torch.testing.assert_close(shared[number], logprobs, rtol=1e-5, atol=1e-5)
    for name, grad in plain_grads.items():
        assert float((shared_grads[name] - grad).norm() / grad.norm()) < 1e-5, name
