"""Roles of one workflow served by different engines: each request goes to its policy's, and its reply comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from endpoint_server import serve
from rolecall.engines.base import Request
from rolecall.engines.local import LocalEngine
from rolecall.engines.router import RouterEngine, make_engine
from rolecall.engines.specs import EndpointSpec, LocalSettings, PolicySpec, RequestSettings
from rolecall.errors import EngineError
from rolecall.records import Completion, Key, Sampling, Task
from rolecall.testing import check_engine

INLINE = LocalSettings(mode="inline", deterministic=True)
Tiny = Callable[..., str]


def request(policy: str, text: str = "") -> Request:
    return Request(
        policy=policy,
        prompt_ids=(5, 6, 7),
        sampling=Sampling(max_tokens=4),
        seed=1,
        key=Key(policy, 0, 0),
        task=Task(id="t", question="", answer=None),
        messages=({"role": "user", "content": text},),
    )


def served(url: str, name: str = "judge") -> PolicySpec:
    endpoint = EndpointSpec(url=url, requests=RequestSettings(max_retries=0))
    return PolicySpec(name=name, kind="api", model="m", endpoint=endpoint)


def test_each_request_goes_to_the_engine_of_its_policy_and_replies_keep_their_order(tiny_model: Tiny) -> None:
    here = PolicySpec(name="solver", kind="model", model=tiny_model())

    async def both(engine: Any, alone: LocalEngine) -> None:
        mixed = [request("judge", "a"), request("solver"), request("nobody"), request("judge", "b")]
        replies = await engine.generate(mixed)
        assert [replies[0].endpoint.text, replies[3].endpoint.text] == ["a", "b"]
        assert replies[1] == (await alone.generate([request("solver")]))[0]
        assert "unknown policy 'nobody'" in str(replies[2])
        assert engine.version("judge") == engine.version("solver") == 0

    with serve(lambda asked: asked.last) as server:
        engine, alone = make_engine([here, served(server.url)], INLINE), LocalEngine([here], INLINE)
        asyncio.run(both(engine, alone))
        engine.shut_down()
        alone.shut_down()


def test_weights_and_scores_are_the_local_parts(tiny_model: Tiny) -> None:
    folder = tiny_model()
    here = PolicySpec(name="solver", kind="model", model=folder)

    async def use(engine: Any) -> None:
        shapes = engine.local.manifest["solver"][0]
        before = await engine.score("solver", [([5, 6], [7])])
        await engine.load("solver", 3, {name: torch.zeros(shape) for name, shape in shapes.items()})
        assert engine.version("solver") == 3
        assert await engine.score_on(0, "solver", [([5, 6], [7])]) != before
        assert engine.num_replicas == 1
        with pytest.raises(EngineError, match="served by an endpoint and loads no weights"):
            await engine.load("judge", 1, {})
        with pytest.raises(EngineError, match="scores no tokens"):
            await engine.score("judge", [([1], [2])])
        with pytest.raises(EngineError, match=r"unknown policy 'solvr'; did you mean 'solver'\?"):
            await engine.load("solvr", 1, {})

    with serve(lambda asked: asked.last) as server:
        engine = make_engine([here, served(server.url)], INLINE)
        asyncio.run(use(engine))
        asyncio.run(engine.close())


def test_a_router_keeps_an_engines_promises_for_its_local_policy(tiny_model: Tiny) -> None:
    with serve(lambda asked: asked.last) as server:
        engine = make_engine([PolicySpec(name="p", kind="frozen", model=tiny_model()), served(server.url)], INLINE)
        try:
            check_engine(engine, "p", [[5, 6], [7, 8, 9]])
        finally:
            engine.shut_down()


def test_without_endpoints_the_engine_is_the_local_one_and_without_weights_there_is_none(tiny_model: Tiny) -> None:
    engine = make_engine([PolicySpec(name="p", kind="frozen", model=tiny_model())], INLINE)
    assert isinstance(engine, LocalEngine)
    engine.shut_down()
    with serve(lambda asked: asked.last) as server:
        only = make_engine([served(server.url)], INLINE)
        assert isinstance(only, RouterEngine)
        assert only.local is None
        (reply,) = asyncio.run(only.generate([replace(request("judge", "x"))]))
        assert isinstance(reply, Completion)
        with pytest.raises(EngineError, match="scores no tokens"):
            asyncio.run(only.score_on(0, "judge", []))
        only.shut_down()
