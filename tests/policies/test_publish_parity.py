"""Weights go to the right policy, whole, and an engine that does anything else is caught."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from learner_helpers import (
    PlainEngine,
    adapter_spec,
    identical,
    learner_of,
    model_spec,
    policies_of,
    random_samples,
    snapshot,
)
from rolecall.algorithms.loss import Loss
from rolecall.engines.specs import LoraSpec, PolicySpec
from rolecall.errors import ConfigError, EngineError, ParityError
from rolecall.learner.config import LearnerConfig
from rolecall.learner.learner import Learner
from rolecall.policies.build import Policy
from rolecall.policies.canary import tensor_group
from rolecall.policies.parity import Parity, probe_sequences
from rolecall.policies.publish import Publisher

Tiny = Callable[..., str]


def learner(policy: Policy) -> Learner:
    assert policy.learner is not None
    return policy.learner


def setup(
    specs: Sequence[PolicySpec], engine: Any = None, config: LearnerConfig | None = None
) -> tuple[dict[str, Policy], Any, Publisher, Parity]:
    policies = policies_of(specs, config)
    engine = engine or PlainEngine(specs)
    publisher = Publisher(engine, policies)
    return policies, engine, publisher, Parity(engine, publisher, policies, probe_sequences(261), temperature=0.6)


def three(folder: str) -> list[PolicySpec]:
    return [adapter_spec("solver_a", folder), adapter_spec("solver_b", folder), model_spec("gen1", folder)]


def test_adapters_of_one_model_share_its_base_in_memory(tiny_model: Tiny) -> None:
    policies = policies_of(three(tiny_model()))
    assert learner(policies["solver_a"]).module.model is learner(policies["solver_b"]).module.model
    assert learner(policies["gen1"]).module.model is not learner(policies["solver_a"]).module.model


def test_updating_one_adapter_leaves_every_other_and_the_base_bit_for_bit(tiny_model: Tiny) -> None:
    policies = policies_of(three(tiny_model()))
    a, b = learner(policies["solver_a"]), learner(policies["solver_b"])
    b.update(random_samples(4, policy="solver_b"))
    others = {name: snapshot(learner(policies[name])) for name in ("solver_b", "gen1")}
    base = {n: p.clone() for n, p in a.module.model.named_parameters() if "lora_" not in n}
    exported = b.module.export()
    moments = [{k: v.clone() for k, v in state.items()} for state in b.optimizer.state.values()]
    before = snapshot(a)
    for step in range(3):
        a.update(random_samples(4, policy="solver_a", seed=step))
    assert not any(torch.equal(before[name], tensor) for name, tensor in snapshot(a).items() if "lora_B" in name)
    for name, held in others.items():
        assert identical(snapshot(learner(policies[name])), held)
    assert identical({n: p for n, p in a.module.model.named_parameters() if "lora_" not in n}, base)
    assert identical(b.module.export(), exported)
    assert not identical(a.module.export(), exported)
    after = [{k: v.clone() for k, v in state.items()} for state in b.optimizer.state.values()]
    assert all(torch.equal(x[k], y[k]) for x, y in zip(moments, after, strict=True) for k in x)


def test_an_export_is_a_copy_under_the_names_that_engines_expect(tiny_model: Tiny) -> None:
    policies = policies_of(three(tiny_model()))
    a = learner(policies["solver_a"])
    exported = a.module.export()
    assert exported["model.layers.0.self_attn.q_proj.lora_A"].shape == (4, 32)
    assert exported["model.layers.1.mlp.down_proj.lora_B"].shape == (32, 4)
    held = {name: tensor.clone() for name, tensor in exported.items()}
    a.update(random_samples(4, policy="solver_a"))
    assert identical(exported, held)
    whole = learner(policies["gen1"]).module.export()
    assert "model.embed_tokens.weight" in whole
    assert all(not tensor.requires_grad for tensor in whole.values())


def test_versions_move_by_one_with_published_updates_only(tiny_model: Tiny) -> None:
    async def go() -> None:
        policies, engine, publisher, _ = setup(three(tiny_model()))
        await publisher.start()
        policy = policies["gen1"]
        assert await publisher.publish(policy) == 0
        learner(policy).update(random_samples(3, policy="gen1"))
        assert await publisher.publish(policy) == 1
        assert await publisher.publish(policy) == 1
        assert engine.versions == {"solver_a": 0, "solver_b": 0, "gen1": 1}
        assert engine.loads[3:] == [("gen1", 1)]

    asyncio.run(go())


def test_a_load_that_fails_moves_no_version(tiny_model: Tiny) -> None:
    class Failing(PlainEngine):
        async def load(self, policy: str, version: int, weights: Mapping[str, Any]) -> None:
            raise EngineError("the wire is cut")

    async def go() -> None:
        specs = [model_spec("gen1", tiny_model())]
        policies, _, publisher, _ = setup(specs, Failing(specs))
        learner(policies["gen1"]).update(random_samples(3, policy="gen1"))
        with pytest.raises(EngineError, match="the wire is cut"):
            await publisher.publish(policies["gen1"])
        assert policies["gen1"].version == 0

    asyncio.run(go())


@pytest.mark.parametrize("tie", [True, False])
def test_an_honest_engine_passes_canary_and_probes_and_gets_the_real_weights_back(tiny_model: Tiny, tie: bool) -> None:
    async def go() -> None:
        policies, engine, publisher, parity = setup(three(tiny_model(tie=tie)))
        before = {name: snapshot(learner(policy)) for name, policy in policies.items()}
        reports = await parity.canary()
        assert {name: report.blind for name, report in reports.items()} == dict.fromkeys(policies, ())
        assert max(report.max_abs_diff for report in reports.values()) < 1e-4
        for name, policy in policies.items():
            assert identical(snapshot(learner(policy)), before[name])
            assert identical(snapshot(engine._learner(name)), before[name])
            learner(policy).update(random_samples(4, policy=name))
            await publisher.publish(policy)
            report = await parity.probe(policy)
            assert report.max_abs_diff < 1e-4
            assert report.visible > 0

    asyncio.run(go())


class Broken(PlainEngine):
    """An engine whose `load` says that all is well and does what `fault` says."""

    def __init__(self, specs: Sequence[PolicySpec], fault: str, after: int = 0) -> None:
        super().__init__(specs)
        self.fault = fault
        self.after = after

    def take(self, policy: str, weights: Mapping[str, Any]) -> None:
        if len(self.loads) < self.after:
            return super().take(policy, weights)
        if self.fault == "nothing":
            return None
        if self.fault == "wrong policy":
            return super().take("solver_b" if policy == "solver_a" else "solver_a", weights)
        own = self._learner(policy).parameters
        kept = {name: tensor for name, tensor in weights.items() if tensor_group(name) != self.fault}
        return super().take(policy, {**{name: own[name].detach() for name in own}, **kept})


@pytest.mark.parametrize("group", ["embeddings", "attention", "mlp", "norm", "head"])
def test_an_engine_that_keeps_one_group_of_tensors_is_caught_and_the_group_named(tiny_model: Tiny, group: str) -> None:
    specs = [model_spec("gen1", tiny_model(tie=False))]
    _, _, _, parity = setup(specs, Broken(specs, group))
    with pytest.raises(ParityError, match=f"kept the old tensors of the group '{group}'"):
        asyncio.run(parity.canary())


@pytest.mark.parametrize("group", ["q_proj.lora_A", "down_proj.lora_B"])
def test_an_engine_that_drops_a_lora_factor_is_caught_at_the_first_sync(tiny_model: Tiny, group: str) -> None:
    specs = [adapter_spec("solver_a", tiny_model())]
    _, _, _, parity = setup(specs, Broken(specs, group))
    with pytest.raises(ParityError, match=group):
        asyncio.run(parity.canary())


@pytest.mark.parametrize("kept", [None, "q_proj.lora_A", "down_proj.lora_B"])
def test_a_group_whose_change_is_lost_in_coarse_noise_is_published_alone_and_larger(
    tiny_model: Tiny, kept: str | None
) -> None:
    """With a bound as coarse as that of bfloat16 no group of this adapter shows beside the others; alone each does, and
    an engine that keeps one is caught."""
    specs = [adapter_spec("solver_a", tiny_model())]
    policies = policies_of(specs)
    engine = Broken(specs, kept) if kept else PlainEngine(specs)
    publisher = Publisher(engine, policies)
    parity = Parity(engine, publisher, policies, probe_sequences(261), bounds={"float32": 0.1})
    before = snapshot(learner(policies["solver_a"]))
    if kept:
        with pytest.raises(ParityError, match=f"does not follow a change of .*{kept}"):
            asyncio.run(parity.canary())
    else:
        report = asyncio.run(parity.canary())["solver_a"]
        assert report.blind == ()
        assert len(engine.loads) > 3  # as it is, changed, as it is, and the groups that were looked at alone
        assert identical(snapshot(engine._learner("solver_a")), before)
    assert identical(snapshot(learner(policies["solver_a"])), before)


@pytest.mark.parametrize("kind", ["model", "adapter"])
def test_an_engine_whose_load_does_nothing_is_caught_at_the_first_sync(tiny_model: Tiny, kind: str) -> None:
    folder = tiny_model()
    specs = [model_spec("gen1", folder) if kind == "model" else adapter_spec("gen1", folder)]
    _, _, _, parity = setup(specs, Broken(specs, "nothing"))
    with pytest.raises(ParityError, match=r"its load\(\) does nothing"):
        asyncio.run(parity.canary())


def test_an_engine_that_loads_into_the_wrong_policy_is_caught(tiny_model: Tiny) -> None:
    specs = three(tiny_model())[:2]
    _, _, _, parity = setup(specs, Broken(specs, "wrong policy"))
    with pytest.raises(ParityError, match="loading policy 'solver_a' changed policy 'solver_b'"):
        asyncio.run(parity.canary())


@pytest.mark.parametrize("lr", [1e-3, 1e-5])
def test_an_engine_that_stops_loading_later_is_caught_by_the_probe(tiny_model: Tiny, lr: float) -> None:
    async def step(policy: Policy, publisher: Publisher, parity: Parity) -> None:
        learner(policy).update(random_samples(4, policy="gen1", seed=policy.version))
        await publisher.publish(policy)
        await parity.probe(policy)

    async def go() -> None:
        specs = [model_spec("gen1", tiny_model())]
        policies, _, publisher, parity = setup(specs, Broken(specs, "nothing", after=4), LearnerConfig(lr=lr))
        await parity.canary()  # three loads: as it is, changed, as it is
        await step(policies["gen1"], publisher, parity)
        with pytest.raises(ParityError, match="nearer to the old"):
            await step(policies["gen1"], publisher, parity)

    asyncio.run(go())


def test_an_honest_engine_whose_rounding_grows_with_the_logits_is_not_taken_for_one_that_stopped_loading(
    tiny_model: Tiny,
) -> None:
    class Coarse(PlainEngine):
        error = 0.0

        async def score(self, policy: str, sequences: Any, temperature: float = 1.0) -> list[list[float]]:
            rows = await super().score(policy, sequences, temperature)
            return [[value * (1 + self.error * (-1) ** i) for i, value in enumerate(row)] for row in rows]

    async def go() -> None:
        specs = [model_spec("gen1", tiny_model())]
        policies, engine = policies_of(specs, LearnerConfig(lr=3e-7)), Coarse(specs)
        publisher = Publisher(engine, policies)
        parity = Parity(engine, publisher, policies, probe_sequences(261), temperature=0.1)
        await parity.canary()
        engine.error = 3e-6  # of log-probabilities of up to 58: more than the bound of small ones, within their own
        learner(policies["gen1"]).update(random_samples(4, policy="gen1"))
        await publisher.publish(policies["gen1"])
        assert 1e-4 < (await parity.probe(policies["gen1"])).max_abs_diff < 2e-4

    asyncio.run(go())


def test_every_replica_of_an_engine_is_probed(tiny_model: Tiny) -> None:
    class Replicated(PlainEngine):
        num_replicas = 2

        def __init__(self, specs: Sequence[PolicySpec]) -> None:
            super().__init__(specs)
            self.second = Broken(specs, "nothing")

        async def score_on(self, replica: int, policy: str, sequences: Any, temperature: float) -> list[list[float]]:
            return await (self.second if replica else super()).score(policy, sequences, temperature)

    specs = [model_spec("gen1", tiny_model())]
    _, _, _, parity = setup(specs, Replicated(specs))
    with pytest.raises(ParityError, match="does not follow a large change"):
        asyncio.run(parity.canary())


def test_a_saved_adapter_is_where_a_policy_starts(tiny_model: Tiny, tmp_path: Any) -> None:
    folder = tiny_model()
    first = learner_of(adapter_spec("solver_a", folder))
    first.update(random_samples(4, policy="solver_a"))
    first.module.save(tmp_path / "adapter")
    spec = PolicySpec(name="next", kind="adapter", model=folder, adapter=str(tmp_path / "adapter"))
    assert identical(learner_of(spec).module.export(), first.module.export())
    pulled = learner_of(spec, loss=Loss(kl_coef=1.0))
    sequences = probe_sequences(261)
    wanted = pulled.score(sequences)
    for seed in range(3):
        pulled.update(random_samples(4, policy="next", seed=seed))
    moved, held = pulled.score(sequences), snapshot(pulled)
    with pulled.module.base():
        anchor = pulled.score(sequences)
    assert anchor == wanted != moved  # a KL against "base" holds the policy to where it started, not to the bare model
    assert identical(snapshot(pulled), held)
    clash = PolicySpec(
        name="next", kind="adapter", model=folder, adapter=str(tmp_path / "adapter"), lora=LoraSpec(rank=2)
    )
    with pytest.raises(ConfigError, match="says rank 2"):
        learner_of(clash)


def test_frozen_policies_have_no_learner_and_are_never_loaded(tiny_model: Tiny) -> None:
    specs = [model_spec("gen1", tiny_model()), PolicySpec(name="judge", kind="frozen", model=tiny_model())]
    policies = policies_of(specs)
    assert policies["judge"].learner is None
    assert policies["judge"].version == 0


def test_an_engine_that_samples_from_another_distribution_than_it_scores_is_caught(tiny_model: Tiny) -> None:
    policies, _, _, parity = setup([model_spec("gen1", tiny_model())])
    parity.check_sampled(policies["gen1"], None)
    parity.check_sampled(policies["gen1"], 2e-5)
    for mismatch in (0.02, float("nan")):
        with pytest.raises(ParityError, match="samples from another distribution"):
            parity.check_sampled(policies["gen1"], mismatch)
