"""What an episode run by hand needs: the plan of a recipe or run, its tasks, an engine in this process, graders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rolecall.assemble import Plan, make_plan, make_renderers, role_settings
from rolecall.config import RunConfig, apply_overrides, load_config, make_config, read_recipe
from rolecall.engines.base import Reply, Request
from rolecall.engines.local import LocalEngine
from rolecall.engines.router import RouterEngine, make_engine
from rolecall.errors import EngineError, RolecallError, UsageError, boundary
from rolecall.grading.episodes import grade_episodes
from rolecall.grading.pool import GraderPool
from rolecall.policies.stored import stored_weights
from rolecall.records import Episode, GradedEpisode, Reward, Sampling
from rolecall.rollout.transcript import RoleSettings
from rolecall.run_folder import RunFolder
from rolecall.serving import find_checkpoint


def read_target(path: Path, overrides: Sequence[str] = (), checkpoint: str = "best") -> tuple[RunConfig, Path | None]:
    """The configuration of a recipe, or of a run folder with the checkpoint to take (None: the weights before
    training)."""
    if not path.is_dir():
        return load_config(path, overrides), None
    folder = RunFolder.open(path)
    saved = folder.path / "config.toml"
    config = make_config(apply_overrides(read_recipe(saved), overrides), source=str(saved))
    return config, find_checkpoint(folder, checkpoint)


class LazyEngine:
    """The engine of a plan, started when a call first asks for it, with the weights of `checkpoint`."""

    def __init__(self, plan: Plan, checkpoint: Path | None, note: Callable[[str], None]) -> None:
        self.plan, self.checkpoint, self.note = plan, checkpoint, note
        self.engine: LocalEngine | RouterEngine | None = None

    @property
    def weights(self) -> str:
        return self.checkpoint.name if self.checkpoint is not None else "the weights before training"

    async def generate(self, requests: Sequence[Request]) -> list[Reply]:
        if not requests:
            return []
        if self.engine is None:
            self.engine = await self._start()
        return await self.engine.generate(requests)

    async def load(self, policy: str, version: int, weights: Mapping[str, object]) -> None:
        raise EngineError(f"policy {policy!r}: an episode run by hand publishes no weights")

    async def score(
        self, policy: str, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], temperature: float = 1.0
    ) -> list[list[float]]:
        if self.engine is None:
            self.engine = await self._start()
        return await self.engine.score(policy, sequences, temperature)

    def version(self, policy: str) -> int:
        return self.engine.version(policy) if self.engine is not None else 0

    async def close(self) -> None:
        self.shut_down()

    def shut_down(self) -> None:
        if self.engine is not None:
            self.engine.shut_down()
            self.engine = None

    async def _start(self) -> LocalEngine | RouterEngine:
        self.note(f"loading {', '.join(self.plan.table.specs)} ({self.weights})")
        config = self.plan.config
        inline = config.engine.model_copy(update={"mode": "inline"})
        engine = make_engine(list(self.plan.table.specs.values()), inline.local(deterministic=config.deterministic))
        try:
            for name, spec in self.plan.table.specs.items():
                if self.checkpoint is not None and spec.trained:
                    version, tensors = stored_weights(self.checkpoint, name)
                    await engine.load(name, version, tensors)
        except RolecallError:
            engine.shut_down()
            raise
        return engine


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """Open while episodes are run by hand; use `open_stage`."""

    plan: Plan
    engine: LazyEngine
    graders: GraderPool

    def roles(self, sampling: Mapping[str, Sampling]) -> dict[str, RoleSettings]:
        """How each role's calls are made; reads the tokenizers."""
        return role_settings(self.plan, make_renderers(self.plan), sampling)

    def grade(self, episode: Episode) -> GradedEpisode:
        return grade_episodes([episode], self.graders)[0]

    def rewards(self, graded: GradedEpisode) -> Mapping[str, Reward]:
        """What the recipe's algorithm gives each turn."""
        with boundary(UsageError, f"the reward of algorithm {self.plan.algorithm.name!r}"):
            return self.plan.algorithm.reward(graded)


@contextmanager
def open_stage(config: RunConfig, checkpoint: Path | None, note: Callable[[str], None]) -> Iterator[Stage]:
    """A stage for the plan of `config`; its processes and threads end with the context."""
    plan = make_plan(config)
    engine = LazyEngine(plan, checkpoint, note)
    with GraderPool(**(config.grading.pool() | {"workers": 1})) as graders:
        try:
            yield Stage(plan=plan, engine=engine, graders=graders)
        finally:
            engine.shut_down()
