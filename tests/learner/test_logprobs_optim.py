from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from learner_helpers import learner_of, model_spec, random_samples
from rolecall.algorithms.loss import Loss
from rolecall.errors import ConfigError
from rolecall.learner.config import LearnerConfig, check_loss_roles
from rolecall.learner.logprobs import find_split, token_scores
from rolecall.learner.optim import is_out_of_memory, learning_rate, make_optimizer

Tiny = Callable[..., str]


def a_model(kind: str, **knobs: Any) -> Any:
    import transformers as hf

    common = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    if kind == "granite":
        config = hf.GraniteConfig(**common, intermediate_size=16, num_key_value_heads=1, logits_scaling=4.0)
        return hf.GraniteForCausalLM(config).eval()
    if kind == "gemma2":
        config = hf.Gemma2Config(
            **common, intermediate_size=16, num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.5
        )
        return hf.Gemma2ForCausalLM(config).eval()
    if kind == "gpt2":
        return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2)).eval()
    config = hf.Qwen3Config(**common, intermediate_size=16, num_key_value_heads=1, head_dim=8, **knobs)
    return hf.Qwen3ForCausalLM(config).eval()


def scored(model: Any, split: Any, *, temperature: float = 0.7, **knobs: Any) -> Any:
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 0, 0]])
    rows, columns = torch.tensor([0, 0, 0, 1]), torch.tensor([2, 4, 5, 3])
    temperatures = torch.full((4,), temperature)
    return token_scores(model, split, ids, rows, columns, ids[rows, columns], temperatures, **knobs)


@pytest.mark.parametrize("kind", ["qwen3", "granite", "gemma2", "gpt2"])
def test_split_models_reproduce_their_full_logits_with_any_scaling(kind: str) -> None:
    model = a_model(kind)
    split = find_split(model)
    assert split is not None
    with torch.no_grad():
        cut, full = scored(model, split), scored(model, None)
        ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
        logprobs = (model(input_ids=ids).logits[0] / 0.7).log_softmax(-1)
    assert torch.allclose(cut.logprobs_N, full.logprobs_N, atol=1e-5)
    assert torch.allclose(cut.entropies_N, full.entropies_N, atol=1e-5)
    assert cut.logprobs_N[0].item() == pytest.approx(logprobs[1, 3].item(), abs=1e-5)
    assert cut.entropies_N[0].item() == pytest.approx(-(logprobs[1].exp() * logprobs[1]).sum().item(), abs=1e-5)


def test_a_model_that_does_not_come_apart_falls_back_to_its_full_logits() -> None:
    model = a_model("qwen3")
    plain = model.forward

    def shifted(*args: Any, **kwargs: Any) -> Any:
        output = plain(*args, **kwargs)
        output.logits = output.logits.flip(-1)
        return output

    model.forward = shifted
    assert find_split(model) is None
    assert torch.isfinite(scored(model, None).logprobs_N).all()


@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_chunks_with_recomputation_change_neither_values_nor_gradients(entropy_gradient: bool) -> None:
    model = a_model("qwen3")
    split = find_split(model)
    results = []
    for limit in (1 << 20, 2 * 40, 1):  # all at once, two positions a chunk, one position a chunk
        model.zero_grad()
        scores = scored(model, split, entropy_gradient=entropy_gradient, max_chunk_logits=limit)
        assert scores.entropies_N.requires_grad is entropy_gradient
        (scores.logprobs_N.sum() + 0.3 * scores.entropies_N.sum()).backward()
        grads = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
        results.append((scores.logprobs_N.detach(), grads))
    for logprobs, grads in results[1:]:
        assert torch.allclose(logprobs, results[0][0], atol=1e-6)
        assert torch.allclose(grads, results[0][1], atol=1e-6)


def test_only_trained_positions_reach_the_head(tiny_model: Tiny) -> None:
    learner = learner_of(model_spec("team", tiny_model()), LearnerConfig())
    sizes: list[int] = []
    learner.module.model.lm_head.register_forward_pre_hook(lambda _, args: sizes.append(args[0].shape[0]))
    samples = random_samples(6)
    learner.update(samples)
    assert sum(sizes) == sum(sample.num_trained for sample in samples)


def test_warm_up_then_cosine_or_line_down_to_the_floor() -> None:
    cosine = LearnerConfig(lr=1.0, warmup_steps=2, schedule="cosine", schedule_steps=7, min_lr_ratio=0.2)
    line = LearnerConfig(lr=1.0, warmup_steps=2, schedule="linear", schedule_steps=7, min_lr_ratio=0.2)
    assert [learning_rate(cosine, n) for n in (0, 1, 2, 4, 6, 99)] == pytest.approx([0.5, 1.0, 1.0, 0.6, 0.2, 0.2])
    assert [learning_rate(line, n) for n in (2, 3, 4, 6)] == pytest.approx([1.0, 0.8, 0.6, 0.2])


def test_weight_decay_acts_on_matrices_only() -> None:
    parameters = {"matrix": torch.nn.Parameter(torch.ones(2, 2)), "vector": torch.nn.Parameter(torch.ones(2))}
    optimizer = make_optimizer(parameters, LearnerConfig(lr=0.1, weight_decay=0.5))
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert parameters["matrix"].detach().flatten().tolist() == pytest.approx([0.95] * 4)
    assert parameters["vector"].tolist() == [1.0, 1.0]


def test_running_out_of_memory_is_told_from_other_errors() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"schedule": "cosine", "schedule_steps": 2, "warmup_steps": 2}, "set learner.schedule_steps"),
        ({"precision": "fp16"}, "learner.precision"),
        ({"lr": 0.0}, "above 0"),
        ({"minibatches": 0}, "at least 1"),
        ({"role_weights": {"a": math.inf}}, "role_weights.a"),
    ],
)
def test_impossible_knobs_are_refused_with_the_next_move(knobs: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LearnerConfig(**knobs)


def test_a_schedule_without_a_length_is_refused_by_the_learner(tiny_model: Tiny) -> None:
    with pytest.raises(ConfigError, match=r"policy 'team': learner.schedule is 'cosine'"):
        learner_of(model_spec("team", tiny_model()), LearnerConfig(schedule="cosine"))


def test_tables_by_role_that_name_an_unknown_role_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'verifier'"):
        check_loss_roles(Loss(kl_by_role={"verifer": 1.0}), LearnerConfig(), ("solver", "verifier"))
    with pytest.raises(ConfigError, match=r"learner.role_weights"):
        check_loss_roles(Loss(), LearnerConfig(role_weights={"nobody": 1.0}), ("solver",))
