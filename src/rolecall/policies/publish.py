"""Publishing: a learner's weights become the next version, and engines load it."""

from __future__ import annotations

from collections.abc import Mapping

from rolecall.engines.base import Engine
from rolecall.errors import EngineError
from rolecall.policies.build import Policy


class Publisher:
    """Sends detached CPU copies of one policy's own weights to an engine, and counts versions."""

    def __init__(self, engine: Engine, policies: Mapping[str, Policy]) -> None:
        self.engine = engine
        self.policies = policies
        self._sent: dict[str, int] = {}  # optimizer steps in the weights that the engine has

    async def start(self) -> None:
        """Give the engine every trained policy as it is, under the version it has: at the start and after a resume."""
        for policy in self.policies.values():
            if policy.learner is not None:
                await self.send(policy, policy.version)

    async def publish(self, policy: Policy) -> int:
        """Publish a policy that was updated: its version moves by one. One that was not keeps its version, and nothing
        is sent. Returns the version in force; when the engine fails to load, no version moves."""
        learner = policy.learner
        if learner is None or self._sent.get(policy.name) == learner.optimizer_steps:
            return policy.version
        await self.send(policy, learner.version + 1)
        learner.version += 1
        return learner.version

    async def send(self, policy: Policy, version: int) -> None:
        """Load a policy's present weights into the engine as `version`, and see that it says so."""
        assert policy.learner is not None
        await self.engine.load(policy.name, version, policy.learner.module.export())
        if (seen := self.engine.version(policy.name)) != version:
            raise EngineError(f"policy {policy.name!r}: the engine says version {seen} after loading version {version}")
        self._sent[policy.name] = policy.learner.optimizer_steps
