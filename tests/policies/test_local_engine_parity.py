"""The learner against the real local engine: what is sampled is what is trained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from learner_helpers import adapter_spec, make_turn, make_unit, model_spec, policies_of, random_samples
from rolecall.engines.base import Request
from rolecall.engines.local import LocalEngine
from rolecall.engines.specs import LocalSettings
from rolecall.learner.samples import build_samples
from rolecall.policies.parity import Parity, probe_sequences
from rolecall.policies.publish import Publisher
from rolecall.records import Completion, Key, Sampling, Task

Tiny = Callable[..., str]


@pytest.mark.parametrize("tie", [True, False])
def test_local_engine_samples_the_trained_weights_at_temperature_0_6(tiny_model: Tiny, tie: bool) -> None:
    async def go() -> None:
        folder = tiny_model(tie=tie)
        specs = [adapter_spec("solver_a", folder), adapter_spec("solver_b", folder), model_spec("gen1", folder)]
        policies = policies_of(specs)
        engine = LocalEngine(specs, LocalSettings(mode="inline"))
        try:
            publisher = Publisher(engine, policies)
            parity = Parity(engine, publisher, policies, probe_sequences(261), temperature=0.6)
            reports = await parity.canary()
            assert all(report.blind == () for report in reports.values())
            for name, policy in policies.items():
                assert policy.learner is not None
                policy.learner.update(random_samples(6, policy=name))
                assert await publisher.publish(policy) == 1
                report = await parity.probe(policy)
                assert report.visible > 0
                assert report.max_abs_diff < 1e-4

                sampling = Sampling(temperature=0.6, max_tokens=12)
                request = Request(
                    policy=name,
                    prompt_ids=(5, 6, 7),
                    sampling=sampling,
                    seed=3,
                    key=Key("solver", 0, 0),
                    task=Task(id="t", question="", answer=None),
                    messages=(),
                )
                [reply] = await engine.generate([request])
                assert isinstance(reply, Completion)
                turn = replace(make_turn("a", request.prompt_ids, [0], policy=name), completion=reply)
                unit = make_unit(["a"], 1.0, policy=name)
                samples = build_samples([unit], {"a": turn}, sampling={"solver": sampling})
                metrics = policy.learner.update(samples).metrics
                assert metrics[f"learner/{name}/mismatch_max"] < 1e-4
                assert metrics[f"learner/{name}/ratio_max_deviation"] < 1e-4
        finally:
            await engine.close()

    asyncio.run(go())
