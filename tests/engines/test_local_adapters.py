"""Adapters of one base in one batch, held to PEFT."""

from __future__ import annotations

import pytest
import torch
from local_builders import generate, max_difference, plain_logprobs, ragged_prompts, read_model, request, run
from peft import LoraConfig, PeftModel, get_peft_model

from rolecall.engines.local import LocalEngine
from rolecall.engines.specs import LocalSettings, LoraSpec, PolicySpec
from rolecall.errors import ConfigError, EngineError, RolecallError
from tiny_models import make_tiny_model

INLINE = LocalSettings(mode="inline")
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def random_adapter(folder: str, seed: int, rank: int = 4, alpha: float = 8.0, targets=TARGETS) -> PeftModel:
    """A PEFT model whose LoRA B is not zero, so that it differs from its base."""
    torch.manual_seed(seed)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), task_type="CAUSAL_LM")
    model = get_peft_model(read_model(folder), config)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.normal_(std=0.3)
    return model.eval()


def engine_weights(model: PeftModel) -> dict[str, torch.Tensor]:
    """LoRA tensors under the engine's names."""
    return {
        name.removeprefix("base_model.model.").replace(".default.weight", ""): parameter.detach()
        for name, parameter in model.named_parameters()
        if "lora_" in name
    }


@pytest.fixture(scope="module")
def folder(tiny_model):
    return tiny_model()


@pytest.fixture(scope="module")
def adapters(folder):
    return {
        "solver": random_adapter(folder, 1),
        "verifier": random_adapter(folder, 2, rank=2, alpha=1.0, targets=("q_proj", "down_proj")),
        "corrector": random_adapter(folder, 3, rank=8, alpha=16.0, targets=("v_proj", "up_proj")),
    }


def specs_of(folder, adapters) -> list[PolicySpec]:
    shapes = {
        "solver": LoraSpec(rank=4, alpha=8.0),
        "verifier": LoraSpec(rank=2, alpha=1.0, target_modules=("q_proj", "down_proj")),
        "corrector": LoraSpec(rank=8, alpha=16.0, target_modules=("v_proj", "up_proj")),
    }
    return [PolicySpec(name="base", kind="frozen", model=folder)] + [
        PolicySpec(name=name, kind="adapter", model=folder, lora=shapes[name]) for name in adapters
    ]


@pytest.fixture(scope="module", params=["fast", "generic"])
def engine(request, folder, adapters):
    made = LocalEngine(specs_of(folder, adapters), LocalSettings(mode="inline", fast=request.param == "fast"))
    for name, adapter in adapters.items():
        run(made.load(name, 1, engine_weights(adapter)))
    yield made
    made.shut_down()


def test_a_base_and_three_adapters_in_one_batch_equal_each_alone_and_peft(engine, adapters, folder):
    prompts = ragged_prompts(6)
    policies = ["base", *adapters]
    asked = [request(policy, prompt, seed) for seed, prompt in enumerate(prompts) for policy in policies]
    together = generate(engine, asked)
    references = {"base": read_model(folder), **adapters}
    for i, policy in enumerate(policies):
        alone = generate(engine, asked[i :: len(policies)])
        for one, other, prompt in zip(alone, together[i :: len(policies)], prompts, strict=True):
            assert one.token_ids == other.token_ids
            assert max_difference(one.logprobs, other.logprobs) < 1e-5
            expected = plain_logprobs(references[policy], prompt, one.token_ids)
            assert max_difference(one.logprobs, expected) < 1e-4
    assert len({reply.token_ids for reply in together[: len(policies)]}) == len(policies)


def test_adapters_of_one_base_share_one_base_and_one_forward_pass(folder, adapters, monkeypatch):
    from rolecall.engines import local_host
    from rolecall.engines.local_fast import FastRunner

    bases = []
    load_base = local_host.load_base
    monkeypatch.setattr(local_host, "load_base", lambda *a, **k: bases.append(a[0]) or load_base(*a, **k))
    widths = []
    forward = FastRunner.forward
    monkeypatch.setattr(
        FastRunner, "forward", lambda self, ids, *rest: widths.append(tuple(ids.shape)) or forward(self, ids, *rest)
    )
    engine = LocalEngine(specs_of(folder, adapters), INLINE)
    generate(engine, [request(policy, [1, 2, 3], 0, max_tokens=4) for policy in ("base", *adapters)])
    engine.shut_down()
    assert len(bases) == 1
    assert widths == [(4, 3), (4, 1), (4, 1), (4, 1)]


def test_an_adapter_equals_its_base_until_it_is_loaded(folder, adapters):
    engine = LocalEngine(specs_of(folder, adapters), INLINE)
    base, solver = generate(engine, [request(policy, [1, 2, 3], 0) for policy in ("base", "solver")])
    engine.shut_down()
    assert base == solver


def test_an_isolated_policy_of_exactly_one_role_samples_under_its_adapter(folder, adapters):
    """With one adapter and nothing else in the engine, no shortcut may serve the base."""
    spec = PolicySpec(name="solver", kind="adapter", model=folder, lora=LoraSpec(rank=4, alpha=8.0))
    engine = LocalEngine([spec], INLINE)
    run(engine.load("solver", 1, engine_weights(adapters["solver"])))
    reply = generate(engine, [request("solver", [1, 2, 3], 0)])[0]
    scores = run(engine.score("solver", [([1, 2, 3], reply.token_ids)]))[0]
    engine.shut_down()
    trained = plain_logprobs(adapters["solver"], [1, 2, 3], reply.token_ids)
    untrained = plain_logprobs(read_model(folder), [1, 2, 3], reply.token_ids)
    assert max_difference(reply.logprobs, trained) < 1e-4
    assert max_difference(scores, trained) < 1e-4
    assert max_difference(reply.logprobs, untrained) > 0.1
    assert reply.versions == (1,) * 16


def test_loading_one_adapter_leaves_the_others_and_the_base_bit_for_bit(engine, adapters, folder):
    sequences = [([1, 2, 3], list(range(20)))]
    others = ["base", "verifier", "corrector"]
    before = [run(engine.score(policy, sequences)) for policy in others]
    solver = run(engine.score("solver", sequences))
    run(engine.load("solver", 2, engine_weights(random_adapter(folder, 9))))
    assert [run(engine.score(policy, sequences)) for policy in others] == before
    assert max_difference(run(engine.score("solver", sequences))[0], solver[0]) > 0.1
    run(engine.load("solver", 1, engine_weights(adapters["solver"])))
    assert run(engine.score("solver", sequences)) == solver


def test_names_with_underscores_and_digits_reach_four_distinct_policies(folder):
    names = ["solver_a", "solver_b", "gen1", "gen2"]
    specs = [PolicySpec(name=name, kind="adapter", model=folder, lora=LoraSpec(rank=4, alpha=8.0)) for name in names]
    engine = LocalEngine(specs, INLINE)
    models = {name: random_adapter(folder, 20 + i) for i, name in enumerate(names)}
    for name, model in models.items():
        run(engine.load(name, 1, engine_weights(model)))
    replies = generate(engine, [request(name, [4, 5], 0) for name in names])
    engine.shut_down()
    for name, reply in zip(names, replies, strict=True):
        assert max_difference(reply.logprobs, plain_logprobs(models[name], [4, 5], reply.token_ids)) < 1e-4


def test_an_adapter_saved_by_peft_is_where_adapter_and_frozen_policies_start(folder, adapters, tmp_path):
    adapters["solver"].save_pretrained(tmp_path)
    specs = [
        PolicySpec(name="start", kind="adapter", model=folder, adapter=str(tmp_path)),
        PolicySpec(name="old", kind="frozen", model=folder, adapter=str(tmp_path)),
    ]
    engine = LocalEngine(specs, INLINE)
    replies = generate(engine, [request(policy, [1, 2, 3], 0) for policy in ("start", "old")])
    with pytest.raises(EngineError, match="frozen"):
        run(engine.load("old", 1, engine_weights(adapters["solver"])))
    engine.shut_down()
    expected = plain_logprobs(adapters["solver"], [1, 2, 3], replies[0].token_ids)
    assert all(max_difference(reply.logprobs, expected) < 1e-4 for reply in replies)


def test_all_linear_adapts_every_linear_layer_but_the_head(folder):
    spec = PolicySpec(name="p", kind="adapter", model=folder, lora=LoraSpec(rank=2, target_modules=("all-linear",)))
    engine = LocalEngine([spec], INLINE)
    names = {name.rsplit(".", 2)[-2] for name in engine.manifest["p"][0]}
    engine.shut_down()
    assert names == set(TARGETS)


def test_a_target_that_names_no_layer_is_an_error_that_lists_the_layers(folder):
    spec = PolicySpec(name="p", kind="adapter", model=folder, lora=LoraSpec(target_modules=("query",)))
    with pytest.raises(ConfigError, match=r"'query' names no linear layer.*q_proj"):
        LocalEngine([spec], INLINE)


def test_a_saved_adapter_of_another_rank_than_its_table_is_an_error(folder, adapters, tmp_path):
    adapters["solver"].save_pretrained(tmp_path)
    spec = PolicySpec(name="p", kind="adapter", model=folder, lora=LoraSpec(rank=16), adapter=str(tmp_path))
    with pytest.raises(ConfigError, match="rank 16"):
        LocalEngine([spec], INLINE)


@pytest.mark.parametrize(("made", "words"), [({"hidden": 64}, r"has shape"), ({"layers": 1}, "names no linear layer")])
def test_an_adapter_of_another_base_is_an_error_that_names_the_base_here(folder, adapters, tmp_path, made, words):
    adapters["solver"].save_pretrained(tmp_path / "adapter")
    other = make_tiny_model(tmp_path / "other", **made)
    spec = PolicySpec(name="p", kind="adapter", model=other, adapter=str(tmp_path / "adapter"))
    with pytest.raises(RolecallError, match=words) as error:
        LocalEngine([spec], INLINE)
    assert f"base model {other!r}" in str(error.value)
