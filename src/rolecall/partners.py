"""The earlier partners of a run: remembered at each validation, dealt at the start of each step.

    <run>/partners/00000010-<policy>.safetensors    the weights of a policy after step 10

An earlier version is a policy of its own in the engine (`policy@memory0`): for the local engine a second adapter, or a
second copy of a whole model; for an engine of adapter slots, a slot. Its turns carry that name and the version that
wrote them, so that they can never be trained. Which versions are remembered is part of every checkpoint; files that no
checkpoint needs any more go after the next one is saved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rolecall.assemble import Plan
from rolecall.engines.specs import PolicySpec
from rolecall.interventions.partners import Dealt, RankedMemory, Remembered, deal, slots_of
from rolecall.policies.build import Policy
from rolecall.policies.memory import read_weights, write_weights
from rolecall.policies.parity import Parity
from rolecall.records import CreditUnit, GradedEpisode
from rolecall.rollout.samplers import EpisodePlan
from rolecall.run_folder import RunFolder

FOLDER = "partners"


def partner_specs(plan: Plan) -> list[PolicySpec]:
    """The slots of the engine that hold earlier versions; [] when partners are off."""
    slots = slots_of(plan.learners, plan.config.partners)
    return [replace(plan.table.specs[policy], name=name) for name, policy in slots.items()]


class Partners:
    """Call `remember` after each validation, `deal` with the plans of each step, `metrics` with its episodes."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        policies: Mapping[str, Policy],
        parity: Parity,
        run: Callable[[Coroutine[Any, Any, float]], float],
    ) -> None:
        self.plan, self.folder, self.parity, self.run = plan, folder, parity, run
        self.settings = plan.config.partners
        self.policies = {name: policies[name] for name in plan.learners}
        self.slots = slots_of(plan.learners, self.settings)
        self.memory = RankedMemory(self.settings.bucket_width, self.settings.max_versions)
        self.dealt = Dealt()
        self._holds: dict[str, tuple[str, int]] = {}  # what is in each slot: policy and version
        self._difference = 0.0

    def remember(self, step: int, accuracy: float) -> None:
        """Keep the present weights of every trained policy under the accuracy that they have reached."""
        if not math.isfinite(accuracy):
            return
        learners = {name: policy.learner for name, policy in self.policies.items() if policy.learner is not None}
        scores = {name: learner.score(self.parity.sequences) for name, learner in learners.items()}
        versions = {name: learner.version for name, learner in learners.items()}
        one = Remembered(step=step, accuracy=accuracy, versions=versions, scores=scores)
        self.memory.add(one)
        if one in self.memory.kept:
            for name, learner in learners.items():
                self.folder.write(self._file(one, name), "partners", partial(write_weights, learner))

    def deal(self, plans: Sequence[EpisodePlan], step: int) -> list[EpisodePlan]:
        """The plans of a step, some with partners, which are then in the engine: all episodes of a task have the same
        ones, so that they stay comparable."""
        places = sorted({plan.order for plan in plans})
        self.dealt = deal(
            self.memory,
            self.settings,
            num_tasks=len(places),
            roles=self.plan.table.roles,
            train_roles=self.plan.table.train_roles,
            trained=list(self.policies),
            seed=self.plan.config.seed,
            step=step,
        )
        self._difference = 0.0
        for name, (policy, one) in self.dealt.loaded.items():
            if self._holds.get(name) != (policy, one.versions[policy]):
                self._difference = max(self._difference, self.run(self._load(name, policy, one)))
                self._holds[name] = (policy, one.versions[policy])
        tables = {places[place]: table for place, table in self.dealt.tables.items()}
        return [replace(plan, partners=tables.get(plan.order, {})) for plan in plans]

    def metrics(self, graded: Sequence[GradedEpisode]) -> dict[str, float]:
        """`partners/...`: who played, and how teams with earlier partners did beside current ones."""
        mixed: dict[bool, list[float]] = {True: [], False: []}
        for one in graded:
            if one.team.score is not None:
                mixed[any(turn.policy in self.slots for turn in one.episode.turns)].append(one.team.score)
        loaded = list(self.dealt.loaded.values())
        present = {name: policy.version for name, policy in self.policies.items()}
        figures = {
            "tasks": float(len(self.dealt.tables)),
            "episodes": float(sum(any(t.policy in self.slots for t in one.episode.turns) for one in graded)),
            "versions": float(len(self.memory.kept)),
            "buckets": float(len(self.memory.buckets())),
        }
        means = {
            "team": mixed[True],
            "current_team": mixed[False],
            "accuracy": [one.accuracy for _, one in loaded],
            "age": [float(present[policy] - one.versions[policy]) for policy, one in loaded],
        }
        figures |= {name: math.fsum(values) / len(values) for name, values in means.items() if values}
        if loaded:
            figures["max_abs_diff"] = self._difference
        return {f"partners/{name}": value for name, value in figures.items()}

    def current(self, units: Sequence[CreditUnit]) -> list[CreditUnit]:
        """The units of current policies: what an earlier version wrote is not trained."""
        return [unit for unit in units if unit.policy not in self.slots]

    def state(self) -> list[dict[str, Any]]:
        """Plain JSON, for a checkpoint."""
        return [one.to_dict() for one in self.memory.kept]

    def restore(self, state: Sequence[Mapping[str, Any]], note: Callable[[str], None]) -> None:
        """Go on with what `state` gave; a version whose files are gone is left out, and named."""
        self.memory.kept = []
        for one in (Remembered(**data) for data in state):
            missing = [name for name in one.versions if not (self.folder.path / self._file(one, name)).is_file()]
            if missing:
                note(f"the earlier version of step {one.step} has no file {self._file(one, missing[0])!r}: left out")
            else:
                self.memory.kept.append(one)

    def tidy(self) -> None:
        """Remove the weights of versions that are not remembered any more; call after a checkpoint was saved."""
        wanted = {self._file(one, name) for one in self.memory.kept for name in one.versions}
        for path in (self.folder.path / FOLDER).glob("*.safetensors"):
            if f"{FOLDER}/{path.name}" not in wanted:
                path.unlink()

    async def _load(self, slot: str, policy: str, one: Remembered) -> float:
        """Load an earlier version into a slot, and prove that it is the one that was kept."""
        path = self.folder.path / self._file(one, policy)
        await self.parity.engine.load(slot, one.versions[policy], read_weights(path))
        return await self.parity.check_slot(self.policies[policy], slot, one.scores[policy])

    def _file(self, one: Remembered, policy: str) -> str:
        return str(Path(FOLDER) / f"{one.step:08d}-{quote(policy, safe='')}.safetensors")
