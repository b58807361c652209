"""An engine in parts: each request goes to the engine of its policy, on this machine or at an endpoint.

The local part is the one that loads weights and is probed; endpoints do neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from rolecall.engines.base import Reply, Request
from rolecall.engines.local import LocalEngine
from rolecall.engines.openai import OpenAIEngine
from rolecall.engines.specs import LocalSettings, PolicySpec
from rolecall.errors import EngineError, nearest

Part = LocalEngine | OpenAIEngine


class RouterEngine:
    """See `engines.base.Engine`; `local` is None when endpoints serve every policy."""

    def __init__(self, local: LocalEngine | None, endpoints: OpenAIEngine) -> None:
        self.local, self.endpoints = local, endpoints
        self.parts: dict[str, Part] = dict.fromkeys(endpoints.endpoints, endpoints)
        if local is not None:
            self.parts |= dict.fromkeys(local.specs, local)

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        """See `Engine.generate`. The requests of each part stay one list, in their order."""
        places: dict[Part, list[int]] = {}
        replies: dict[int, Reply] = {}
        for place, request in enumerate(requests):
            part = self.parts.get(request.policy)
            if part is None:
                replies[place] = EngineError(f"unknown policy {request.policy!r}{nearest(request.policy, self.parts)}")
            else:
                places.setdefault(part, []).append(place)
        answers = await asyncio.gather(*[part.generate([requests[i] for i in its]) for part, its in places.items()])
        for its, answer in zip(places.values(), answers, strict=True):
            replies.update(zip(its, answer, strict=True))
        return [replies[place] for place in range(len(requests))]

    async def load(self, policy: str, version: int, weights: Mapping[str, Any]) -> None:
        await self.part(policy).load(policy, version, weights)

    async def score(
        self, policy: str, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> list[list[float]]:
        return await self.part(policy).score(policy, sequences, temperature)

    async def score_on(
        self,
        worker: int,
        policy: str,
        sequences: Sequence[tuple[Sequence[int], Sequence[int]]],
        temperature: float = 1.0,
    ) -> list[list[float]]:
        """The scores of one of the local part's `num_replicas` copies of the weights."""
        if self.local is None:
            raise EngineError(f"policy {policy!r} is served by an endpoint, which scores no tokens")
        return await self.local.score_on(worker, policy, sequences, temperature)

    @property
    def num_replicas(self) -> int:
        return self.local.num_replicas if self.local is not None else 1

    def version(self, policy: str) -> int:
        return self.part(policy).version(policy)

    def part(self, policy: str) -> Part:
        """The engine that serves a policy."""
        if policy not in self.parts:
            raise EngineError(f"unknown policy {policy!r}{nearest(policy, self.parts)}")
        return self.parts[policy]

    async def close(self) -> None:
        await asyncio.to_thread(self.shut_down)

    def shut_down(self) -> None:
        """What `close` does, for places without an event loop."""
        self.endpoints.shut_down()
        if self.local is not None:
            self.local.shut_down()


def make_engine(specs: Sequence[PolicySpec], settings: LocalSettings) -> LocalEngine | RouterEngine:
    """The engine of these policies: the local one, or one in parts where endpoints serve some of them."""
    served = [spec for spec in specs if not spec.local]
    if not served:
        return LocalEngine(specs, settings)
    endpoints = OpenAIEngine(served)  # first: it is quick to say that a key or a server is not there
    here = [spec for spec in specs if spec.local]
    try:
        local = LocalEngine(here, settings) if here else None
    except BaseException:
        endpoints.shut_down()
        raise
    return RouterEngine(local, endpoints)
