"""The chains under way: the task that each began with, its groups, which candidates go on, and all of it saved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rolecall.pipeline.candidates import GroupWork, Play
from rolecall.pipeline.chains import Candidate, Chain
from rolecall.pipeline.saved import groups_state, restored_groups
from rolecall.pipeline.scheduler import Group, Scheduler
from rolecall.pipeline.step_figures import Tick
from rolecall.pipeline.stuck import SchedulerStuck
from rolecall.records import GradedEpisode
from rolecall.rewards.agent_specific import AgentSpecific
from rolecall.rollout.agentic import AgenticGroups
from rolecall.rollout.runner import Frontier
from rolecall.rollout.transcript import Finished, Transcript
from rolecall.tasks.stream import TaskStream

SCORE = AgentSpecific()
"""What candidates are picked by: what each claims itself, whatever the reward is that they are trained on."""


class Forest:
    """Makes groups and hands them to the scheduler. `back_up`: parents remember which groups followed from them."""

    def __init__(
        self,
        play: Play,
        stream: TaskStream,
        sampler: AgenticGroups,
        scheduler: Scheduler,
        *,
        run_seed: int,
        back_up: bool,
    ) -> None:
        self.play, self.stream, self.sampler, self.scheduler = play, stream, sampler, scheduler
        self.run_seed, self.back_up = run_seed, back_up
        self.chains: dict[int, Chain] = {}
        self.groups: dict[tuple[int, int, int], Group] = {}
        self.num_chains = 0
        self.step = 0
        self.indices: Counter[str] = Counter()  # how often a task was admitted in this step
        self.without_call = 0  # tasks in a row whose workflow ended before it called anybody

    def begin_step(self, step: int) -> None:
        """Tasks are admitted under the number of a step, and those of one task are told apart in it."""
        self.step, self.indices = step, Counter()

    async def admit(self, num_tasks: int, tick: Tick) -> None:
        """Begin a chain for each of the next tasks: its workflow runs up to its first call."""
        starts = []
        while num_tasks > 0:
            tasks = self.stream.take(min(num_tasks, self.stream.size))
            num_tasks -= len(tasks)
            for task in tasks:
                index, seed = self.indices[task.id], self.run_seed
                self.indices[task.id] += 1
                starts.append(Transcript(task=task, index=index, step=self.step, run_seed=seed))
        stands = await asyncio.gather(*[self.play.stand(start) for start in starts])
        for start, stand in zip(starts, stands, strict=True):
            tick.admitted += 1
            if not isinstance(stand, Frontier):
                self._ends_at_once(stand, tick)
                continue
            self.without_call = 0
            number, self.num_chains = self.num_chains, self.num_chains + 1
            self.chains[number] = Chain(self.sampler, self.run_seed, start.step, start.task.id, start.index)
            self._submit(stand, chain=number, stage=0, number=0)

    def _ends_at_once(self, stand: Finished, tick: Tick) -> None:
        """Count a task whose workflow called nobody; overlapped, a set of such tasks alone would be drawn for ever."""
        tick.chains_ended["no_call"] += 1
        tick.flat += 1
        tick.outcomes[str(stand.episode.outcome_class)] += 1
        self.without_call += 1
        enough = max(self.stream.size, self.scheduler.tasks_per_step)
        if not self.scheduler.schedule.ticks and self.without_call >= enough:
            failure = stand.episode.failure
            why = f"; the last one failed: {failure.detail}" if failure is not None else ""
            raise SchedulerStuck(
                f"the workflow ended before its first call on {self.without_call} tasks in a row, so that there is "
                f"nothing to generate{why}"
            )

    def _submit(self, frontier: Frontier, *, chain: int, stage: int, number: int) -> Group:
        role = frontier.keys[0].role
        group = Group.of(
            self.sampler.n,
            chain=chain,
            stage=stage,
            number=number,
            policy=self.play.roles[role].policy,
            role=role,
            data=GroupWork.at(frontier, self.sampler.n),
        )
        self.groups[group.place] = group
        self.scheduler.submit(group)
        return group

    def follow(self, group: Group, tick: Tick) -> None:
        """Put the candidates of a group into its chain's pool, and submit the groups that follow."""
        candidates = candidates_of(group)
        if group.stage == 0:
            tick.flat += len({one.score for one in candidates if one.score is not None}) < 2
        chain = self.chains[group.chain]
        successors = chain.complete(group.stage, candidates, tick.picks)
        if group.stage not in chain.pools:
            self._pooled(group)
        for successor in successors:
            frontier = successor.candidate.onward
            following = self._submit(frontier, chain=group.chain, stage=successor.stage, number=successor.number)
            if self.back_up:
                number, candidate = successor.candidate.place
                self.groups[group.chain, group.stage, number].data.children[candidate] = following
        if chain.ended:
            tick.chains_ended[chain.why_ended] += 1
            del self.chains[group.chain]

    def _pooled(self, group: Group) -> None:
        """The pool of a stage is closed: its groups are kept only until they are trained."""
        numbers = [group.number]
        if self.sampler.pool == "task":
            numbers = list(range(self.chains[group.chain].numbers[group.stage]))
        for number in numbers:
            sibling = self.groups[group.chain, group.stage, number]
            sibling.data.pooled = True
            self.forget(sibling)

    def forget(self, group: Group) -> None:
        """Let go of a group that is trained, once its stage needs it no more."""
        if group.data.pooled and all(row.trained for row in group.rows):
            self.groups.pop(group.place, None)

    def state(self) -> dict[str, Any]:
        """Everything under way, as plain data: chains, groups, unfinished completions with their versions."""
        return {
            "stream": self.stream.state(),
            "num_chains": self.num_chains,
            "without_call": self.without_call,
            "chains": {str(number): chain.state() for number, chain in self.chains.items()},
            "groups": groups_state(self.groups.values()),
        }

    async def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.stream.restore(state["stream"])
        self.num_chains, self.without_call = state["num_chains"], state["without_call"]
        self.chains = {
            int(number): Chain.from_state(self.sampler, self.run_seed, saved)
            for number, saved in state["chains"].items()
        }
        groups = await restored_groups(state["groups"], self.play)
        self.groups = {group.place: group for group in groups}
        for group in groups:
            if group.scored and not group.data.pooled:
                self.chains[group.chain].pools.setdefault(group.stage, []).extend(candidates_of(group))


def candidates_of(group: Group) -> list[Candidate]:
    """The graded completions of a group as its chain sees them: the workflow goes on with one where a call waits."""
    work: GroupWork = group.data
    return [
        candidate_of(group.number, number, graded, stand)
        for number, (graded, stand) in enumerate(zip(work.graded, work.stands, strict=True))
        if graded is not None and stand is not None
    ]


def candidate_of(group: int, number: int, graded: GradedEpisode, stand: Frontier | Finished) -> Candidate:
    key = stand.keys[0] if isinstance(stand, Frontier) else None
    return Candidate(
        place=(group, number),
        score=SCORE(graded)[graded.episode.turns[0].id].total,
        receiver=(key.role, key.call) if key is not None else None,
        onward=stand,
    )
